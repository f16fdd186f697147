//! The guest's machine: QEMU with two serial ports and a disk for the finds.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use tare_control::exit::ExitCode;
use tare_host::program::{ProgramError, find_program};
use tare_launch::publish::Publish;
use tare_probe::guest::archive::{self, ArchiveError, PIECE_MAX};
use tare_qemu::{self as qemu, Accelerator, CommandLine, GuestSystem, HostForward, MachineType};
use tare_rootfs::Kernel;
use tare_rootfs::guest::{CMDLINE, UNTIMED, WORDS};

use crate::failure::{Explain, Failure};
use crate::profile::plan::Plan;
use crate::signals;

/// How long a guest may take to boot and to end, beyond its observation.
const BOOT: Duration = Duration::from_secs(120);
const TURN: Duration = Duration::from_millis(50);
/// How long it may take to end when asked to.
const LAST: Duration = Duration::from_secs(30);

/// A machine that cannot be had.
#[derive(Debug, thiserror::Error)]
enum MachineError {
    #[error("QEMU is needed for a guest; install qemu-system-x86")]
    NoQemu(#[source] ProgramError),
    #[error("cannot {what}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
    #[error("the guest did not end in time")]
    Late,
}

impl Explain for MachineError {
    fn code(&self) -> ExitCode {
        match self {
            Self::NoQemu(_) => ExitCode::NoEngine,
            Self::Io { .. } => ExitCode::Internal,
            Self::Late => ExitCode::GuestStatus,
        }
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> MachineError {
    move |source| MachineError::Io { what, source }
}

/// A guest that runs.
pub(super) struct ProfiledMachine {
    qemu: Child,
    finds: File,
    orders: UnixStream,
    asked: Arc<AtomicBool>,
    limit: Option<Duration>,
}

impl ProfiledMachine {
    /// Boots a guest.
    pub(super) fn start(
        kernel: &Kernel,
        initramfs: &impl AsFd,
        memory_mib: u32,
        plan: &Plan,
    ) -> Result<Self, Failure> {
        let program = find_program(qemu::PROGRAM).map_err(MachineError::NoQemu)?;
        let finds = finds().map_err(failed("make a disk in memory"))?;
        let (orders, theirs) = UnixStream::pair().map_err(failed("make a pair of sockets"))?;
        let asked = signals::flag().map_err(failed("watch signals"))?;
        let inherit = |fd: &dyn AsFd| {
            fcntl_setfd(fd.as_fd(), FdFlags::empty())
                .map(|()| fd.as_fd().as_raw_fd())
                .map_err(|errno| failed("hand over a descriptor")(errno.into()))
        };
        let mut line = CommandLine::new(MachineType::Q35, Accelerator::Tcg, GuestSystem::Linux, 1);
        let initrd = PathBuf::from(format!("/proc/self/fd/{}", inherit(initramfs)?));
        line.sandbox()
            .memory_mib(memory_mib)
            .serial("stdio")
            .option(
                "-chardev",
                format!("socket,id=orders,fd={}", inherit(&theirs)?),
            )
            .serial("chardev:orders")
            .virtio("virtio-rng", "")
            .kernel(&kernel.image)
            .initrd(&initrd)
            .append(&words(plan))
            .option("-drive", drive(inherit(&finds)?));
        network(plan, &mut line);
        let mut command = Command::new(program);
        line.apply(&mut command)
            // Ctrl-C is for the observer within.
            .process_group(0)
            .stdin(Stdio::null());
        if plan.json {
            // Standard output is the profile's.
            command.stdout(Stdio::from(io::stderr()));
        }
        let qemu = command.spawn().map_err(failed("start QEMU"))?;
        Ok(Self {
            qemu,
            finds,
            orders,
            asked,
            limit: plan.length.map(|length| length + BOOT),
        })
    }

    /// Waits for the guest's end, and reads what it handed over.
    pub(super) fn finish(
        mut self,
    ) -> Result<Result<std::collections::BTreeMap<String, Vec<u8>>, ArchiveError>, Failure> {
        let begin = Instant::now();
        let mut asked_at = None;
        while self
            .qemu
            .try_wait()
            .map_err(failed("wait for QEMU"))?
            .is_none()
        {
            if asked_at.is_none() && self.asked.load(Ordering::Relaxed) {
                // If the guest is gone, so is the need.
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

impl Drop for ProfiledMachine {
    fn drop(&mut self) {
        // Only one that is late still runs.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// The disk, in memory: nothing of it stays behind.
fn finds() -> io::Result<File> {
    let file = File::from(memfd_create("tare-finds", MemfdFlags::CLOEXEC)?);
    file.set_len(2 * PIECE_MAX)?;
    Ok(file)
}

fn words(plan: &Plan) -> String {
    let address = if plan.publish.is_empty() {
        ""
    } else {
        qemu::USER_NETWORK
    };
    format!("{WORDS} quiet {UNTIMED} {CMDLINE} {address}")
}

fn drive(fd: i32) -> String {
    format!("file=/proc/self/fd/{fd},format=raw,if=virtio,file.locking=off")
}

fn network(plan: &Plan, line: &mut CommandLine) {
    if plan.publish.is_empty() {
        return;
    }
    let forward = |it: &Publish| HostForward {
        protocol: it.protocol.name(),
        address: it.address,
        host: it.host,
        guest: it.guest,
    };
    let forwards: Vec<HostForward<'_>> = plan.publish.iter().map(forward).collect();
    line.user_network(&forwards, false);
}
