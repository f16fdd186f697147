//! The guest's machine: QEMU with two serial ports and a disk for the output.

use std::env;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use tare_control::exit::ExitCode;
use tare_host::program::{ProgramError, find_program};
use tare_launch::jailed_guest::{JailedGuest, RunningGuest};
use tare_probe::guest::archive::{self, ArchiveError, PIECE_MAX};
use tare_qemu::{self as qemu, Accelerator, GuestSystem, MachineType};
use tare_rootfs::Kernel;
use tare_rootfs::guest::{CMDLINE, UNTIMED, WORDS};

use crate::failure::{Explain, Failure};
use crate::output::warn;
use crate::profile::plan::Plan;
use crate::signals::Requests;

/// How long a guest may take to boot and to end, beyond its observation.
const BOOT: Duration = Duration::from_secs(120);
const TURN: Duration = Duration::from_millis(50);
/// How long it may take to end after a request.
const LAST: Duration = Duration::from_secs(30);

/// Why the machine is unavailable.
#[derive(Debug, thiserror::Error)]
enum MachineError {
    #[error("QEMU is needed for a guest; install qemu-system-x86")]
    NoQemu(#[source] ProgramError),
    #[error("cannot {what}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
    #[error("cannot publish the guest's ports")]
    Ports(#[source] io::Error),
    #[error("the guest did not end in time")]
    Late,
}

impl Explain for MachineError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NoQemu(_) => ExitCode::NoEngine,
            Self::Io { .. } => ExitCode::Internal,
            Self::Ports(_) => ExitCode::PortInUse,
            Self::Late => ExitCode::GuestStatus,
        }
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> MachineError {
    move |source| MachineError::Io { what, source }
}

/// A running guest.
pub(super) struct ProfiledMachine {
    qemu: RunningGuest,
    finds: File,
    orders: UnixStream,
    limit: Option<Duration>,
}

impl ProfiledMachine {
    /// Boots a guest.
    pub(super) fn start(
        kernel: &Kernel,
        initramfs: &File,
        memory_mib: u32,
        plan: &Plan,
    ) -> Result<Self, Failure> {
        let program = find_program(qemu::PROGRAM).map_err(MachineError::NoQemu)?;
        let tare = env::current_exe().map_err(failed("find this program"))?;
        let finds = finds().map_err(failed("make a disk in memory"))?;
        let (orders, theirs) = UnixStream::pair().map_err(failed("make a pair of sockets"))?;
        let image = File::open(&kernel.image).map_err(failed("open the guest's kernel"))?;
        let mut guest = Self::guest(&image, initramfs, &finds, &theirs)
            .map_err(failed("prepare the guest's machine"))?;
        guest.line().memory_mib(memory_mib).append(&boot_line(plan));
        if !plan.publish.is_empty() {
            let published = guest.publish(&plan.publish);
            published.map_err(MachineError::Ports)?;
        }
        let started = guest.start(&tare, &program, |command| streams(command, plan));
        let qemu = started.map_err(failed("start QEMU in its jail"))?;
        if let Some(warning) = qemu.warning() {
            warn(warning);
        }
        Ok(Self {
            qemu,
            finds,
            orders,
            limit: plan.length.map(|length| length + BOOT),
        })
    }

    /// QEMU's options that every plan shares.
    fn guest(
        image: &File,
        initramfs: &File,
        finds: &File,
        orders: &UnixStream,
    ) -> io::Result<JailedGuest> {
        let mut guest =
            JailedGuest::new(MachineType::Q35, Accelerator::Tcg, GuestSystem::Linux, 1)?;
        let image = guest.readable(image)?;
        let initrd = guest.readable(initramfs)?;
        let orders = guest.hand(orders)?;
        let finds = guest.disk(finds)?;
        guest
            .line()
            .serial("stdio")
            .option("-chardev", format!("socket,id=orders,fd={orders}"))
            .serial("chardev:orders")
            .virtio("virtio-rng", "")
            .kernel(&image)
            .initrd(&initrd)
            .option("-drive", drive(&finds));
        Ok(guest)
    }

    /// Waits for the guest's end, which a signal asks for, and reads its output.
    pub(super) fn finish(
        mut self,
        requests: &Requests,
    ) -> Result<Result<std::collections::BTreeMap<String, Vec<u8>>, ArchiveError>, Failure> {
        let begin = Instant::now();
        let mut asked_at = None;
        while self
            .qemu
            .try_wait()
            .map_err(failed("wait for QEMU"))?
            .is_none()
        {
            if asked_at.is_none() && requests.check().is_err() {
                // If the guest is gone, there is nothing to end.
                let _ = self.orders.write_all(b"\n");
                asked_at = Some(Instant::now());
            }
            let is_late = self.limit.is_some_and(|limit| begin.elapsed() > limit)
                || asked_at.is_some_and(|at: Instant| at.elapsed() > LAST);
            if is_late {
                return Err(MachineError::Late.into());
            }
            thread::sleep(TURN);
        }
        let start = self.finds.seek(SeekFrom::Start(0));
        start.map_err(failed("read the guest's disk"))?;
        Ok(archive::read(&mut io::BufReader::new(&self.finds)))
    }
}

/// The disk, in memory, so that nothing stays behind.
fn finds() -> io::Result<File> {
    let file = File::from(memfd_create("tare-finds", MemfdFlags::CLOEXEC)?);
    file.set_len(2 * PIECE_MAX)?;
    Ok(file)
}

fn boot_line(plan: &Plan) -> String {
    let address = if plan.publish.is_empty() {
        ""
    } else {
        qemu::USER_NETWORK
    };
    format!("{WORDS} quiet {UNTIMED} {CMDLINE} {address}")
}

fn drive(path: &str) -> String {
    format!("file={path},format=raw,if=virtio,file.locking=off")
}

fn streams(command: &mut Command, plan: &Plan) {
    command.stdin(Stdio::null());
    if plan.json {
        // Standard output belongs to the profile.
        command.stdout(Stdio::from(io::stderr()));
    }
}
