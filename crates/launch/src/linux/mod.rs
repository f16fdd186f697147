//! `tare run --kernel`: a Linux kernel, its command line, and a root that a
//! first process of ours prepares.

pub(crate) mod emulated;
mod kernel;
mod root;
mod root_disk;
pub(crate) mod stdio;

use std::net::Ipv4Addr;
use std::path::Path;

use tare_control::exit::ExitCode;
use tare_init::address::Address;
use tare_rootfs::guest;

use crate::failure::{Explain, Failure};
use crate::net_choice::NetChoice;
use crate::plan::{Chosen, Files, open_files};
use crate::request::Request;
use crate::{Terminal, cmdline, image, machine_size, passt};

pub use root::parts;
pub(crate) use root::{LinuxRoot, files};

/// Options of `tare run` that do not go together for Linux.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinuxError {
    /// A command without files.
    #[error("a command needs files to run in: add --root DIR or --root IMAGE.tar")]
    NoRoot,
    /// The library OS's word.
    #[error("--idle applies to the library OS only; Linux has its own idle loop")]
    Idle,
}

impl Explain for LinuxError {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

/// Opens the kernel and gathers what it boots with.
pub(crate) fn choose(
    kernel: &Path,
    args: &Request,
    memory_mib: u32,
    terminal: &dyn Terminal,
) -> Result<Chosen, Failure> {
    if args.idle.is_some() {
        return Err(LinuxError::Idle.into());
    }
    if args.root.is_none() && !args.command.is_empty() {
        return Err(LinuxError::NoRoot.into());
    }
    let kernel = kernel::open(kernel, terminal)?;
    let room = machine_size::room_for_files(memory_mib, kernel.image.bytes);
    let (name, files) = match &args.root {
        None => (
            image::stem(&kernel.image.path),
            open_files(args.initrd.clone(), memory_mib, room)?,
        ),
        Some(from) => {
            let store = match args.root_disk {
                // The archive and what is unpacked from it are there at once.
                None => root::Store::Memory {
                    room_bytes: room / 2,
                },
                Some(size) => root::Store::Disk {
                    bytes: u64::from(size.mib) << 20,
                },
            };
            let root = root::gather(from, &args.command, &kernel, store)?;
            (image::stem(from), Files::Linux(root))
        }
    };
    let hostname = args.name.clone().unwrap_or_else(|| name.clone());
    Ok(Chosen {
        cmdline: cmdline::linux(&parameters(args, &hostname, &files), &args.cmdline)?,
        image: kernel.image,
        name,
        files,
    })
}

fn parameters(args: &Request, hostname: &str, files: &Files) -> String {
    let mut parameters = vec![guest::WORDS.to_owned(), guest::UNTIMED.to_owned()];
    if matches!(files, Files::Linux(_)) {
        // The console is the command's.
        parameters.push("quiet".to_owned());
        parameters.push(guest::CMDLINE.to_owned());
    }
    if matches!(args.net, NetChoice::User(_)) {
        parameters.push(address(hostname).word());
    }
    parameters.join(" ")
}

/// With passt the address is known: the guest need not ask for it.
fn address(hostname: &str) -> Address {
    Address {
        client: Ipv4Addr::from(passt::GUEST),
        prefix: passt::PREFIX,
        gateway: Some(Ipv4Addr::from(passt::GATEWAY)),
        hostname: Some(hostname.to_owned()),
        device: None,
    }
}
