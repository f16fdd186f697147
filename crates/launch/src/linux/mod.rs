//! `tare run --kernel`: a Linux kernel, its command line, and a root that our first process
//! prepares.

pub(crate) mod emulated;
mod kernel;
pub(crate) mod root;
mod root_disk;
pub(crate) mod stdio;

use std::net::Ipv4Addr;
use std::path::Path;

use tare_control::exit::ExitCode;
use tare_init::address::Address;
use tare_rootfs::guest;

use crate::failure::{Explain, Failure};
use crate::machine::{Boot, Files};
use crate::net_choice::NetChoice;
use crate::request::Request;
use crate::{Terminal, cmdline, image, initrd, machine_size, passt};

pub use root::parts;

/// Options of `tare run` that exclude each other for Linux.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinuxError {
    /// A command without files.
    #[error("a command needs files to run in: add --root DIR or --root IMAGE.tar")]
    NoRoot,
    /// An option of the library OS.
    #[error("--idle applies to the library OS only; Linux has its own idle loop")]
    Idle,
}

impl Explain for LinuxError {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

/// Opens the kernel and collects what it boots with.
pub(crate) fn choose(
    kernel: &Path,
    request: &Request,
    memory_mib: u32,
    terminal: &dyn Terminal,
) -> Result<Boot, Failure> {
    if request.idle.is_some() {
        return Err(LinuxError::Idle.into());
    }
    if request.root.is_none() && request.names_command() {
        return Err(LinuxError::NoRoot.into());
    }
    let kernel = kernel::open(kernel, terminal)?;
    let room = machine_size::room_for_files(memory_mib, kernel.image.bytes);
    let (name, files) = match &request.root {
        None => (
            image::stem(&kernel.image.path),
            initrd::open(request.initrd.clone(), memory_mib, room)?,
        ),
        Some(from) => {
            let store = match request.root_disk {
                // The archive and its unpacked files are in memory at the same time.
                None => root::Store::Memory {
                    room_bytes: room / 2,
                },
                Some(size) => root::Store::Disk {
                    bytes: u64::from(size.mib) << 20,
                },
            };
            let root = root::gather(from, request, &kernel, store)?;
            (image::stem(from), Files::Linux(root))
        }
    };
    let hostname = request.name.clone().unwrap_or_else(|| name.clone());
    Ok(Boot {
        stop_signal: match &files {
            Files::Linux(root) => root.stop_signal,
            _ => None,
        },
        cmdline: cmdline::linux(&parameters(request, &hostname, &files), &request.cmdline)?,
        image: kernel.image,
        name,
        files,
    })
}

fn parameters(request: &Request, hostname: &str, files: &Files) -> String {
    let mut parameters = vec![guest::WORDS.to_owned(), guest::UNTIMED.to_owned()];
    if matches!(files, Files::Linux(_)) {
        // The console belongs to the command.
        parameters.push("quiet".to_owned());
        parameters.push(guest::CMDLINE.to_owned());
    }
    if matches!(request.net, NetChoice::User(_)) {
        parameters.push(address(hostname).word());
    }
    parameters.join(" ")
}

/// With passt the address is known, so the guest needs no DHCP.
fn address(hostname: &str) -> Address {
    Address {
        client: Ipv4Addr::from(passt::GUEST),
        prefix: passt::PREFIX,
        gateway: Some(Ipv4Addr::from(passt::GATEWAY)),
        hostname: Some(hostname.to_owned()),
        device: None,
        resolver: Some(Ipv4Addr::from(passt::GATEWAY)),
    }
}
