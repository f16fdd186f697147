//! QEMU as the engine: where there is no KVM, or on request.
//!
//! For the library OS the machine is QEMU's microvm with virtio over MMIO, which starts in a third of
//! q35's time since its firmware has no PCI to set up (and little to be emulated,
//! where KVM emulates); for Linux it is q35 with virtio over PCI. The guest ends through the same port (`isa-debug-exit`). QEMU says less than Tare's monitor:
//! a reset or triple fault of the guest looks like a power-off, and any status
//! of the application like 0. The control socket speaks QMP instead of HTTP.
//! `supervise` starts QEMU and waits for it, here or in a session of its own.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, read, retry_on_intr};
use tare_control::config::{DiskCache, GuestKind};
use tare_devices::blk::Access;
use tare_qemu::{Accelerator, CommandLine, GuestSystem, MachineType, escaped};
use tare_rootfs::guest;

use crate::Terminal;
use crate::background;
use crate::disk::OpenDisk;
use crate::failure::Failure;
use crate::linux::stdio;
use crate::machine::{Launched, Link, LinkEnd, PreparedMachine, RunFileError};
use crate::request::Place;
use crate::supervise::{self, Supervised, Uplink};

/// How long QEMU may take to greet a client.
const GREETING_LIMIT: Duration = Duration::from_millis(250);

/// How long a guest may say nothing before its machine counts as started.
const SPEECH_LIMIT: Duration = Duration::from_secs(1);

/// QEMU's own system call filter (`-sandbox`, libseccomp): no obsolete calls, no change
/// of user, no new processes, no change of scheduling or limits.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// Starts QEMU for a prepared machine.
pub(crate) fn start(
    program: &Path,
    accelerator: Accelerator,
    mut machine: PreparedMachine,
    terminal: &dyn Terminal,
) -> Result<Launched, Failure> {
    let dir = machine.run_dir.dir().clone();
    let (arguments, streams) = arguments(accelerator, &machine)
        .map_err(|errno: Errno| RunFileError::of("descriptors for QEMU", &dir)(errno.into()))?;
    let supervised = Supervised {
        program: program.to_owned(),
        arguments,
        run_dir: dir.path().to_owned(),
        guest: machine.spec.guest,
        filter: machine.link.as_ref().and_then(|link| match &link.end {
            LinkEnd::Passt { filter, .. } => Some(filter.clone()),
            LinkEnd::Tap { .. } => None,
        }),
    };
    let uplink = uplink(&machine)
        .map_err(|errno| RunFileError::of("a socket to passt", &dir)(errno.into()))?;
    match machine.spec.place {
        Place::Foreground => {
            machine
                .record
                .write(&dir)
                .map_err(RunFileError::of("run.json", &dir))?;
            // While QEMU starts, passt does too.
            let uplink = uplink.map(|socket| Uplink {
                socket,
                qemu_input: Stdio::inherit(),
            });
            stdio::keep_blocking(streams);
            supervise::run(&supervised, uplink, || machine.connect()).map(Launched::Ended)
        }
        Place::Background => {
            machine.connect()?;
            let command = supervise::command(&supervised, uplink)
                .map_err(RunFileError::of("the supervisor's task", &dir))?;
            let begin = Instant::now();
            let (socket, log) = (dir.control_socket(), dir.console_log());
            background::detach(command, machine, terminal, || {
                greets(&socket) && (speaks(&log) || begin.elapsed() > SPEECH_LIMIT)
            })
        }
    }
}

/// The machine's end of its socket to passt, which the supervisor's relay uses.
fn uplink(machine: &PreparedMachine) -> Result<Option<OwnedFd>, Errno> {
    match machine.link.as_ref().map(|link| &link.end) {
        Some(LinkEnd::Passt { passt, .. }) => {
            let copy = fcntl_dupfd_cloexec(passt.socket(), 0)?;
            Ok(Some(copy))
        }
        _ => Ok(None),
    }
}

/// Whether the guest has printed something. QEMU drops frames that come before
/// the guest's driver, and passt waits 10 s before it tries a connection again,
/// so a machine counts as started once it speaks.
fn speaks(console_log: &Path) -> bool {
    std::fs::metadata(console_log).is_ok_and(|log| log.len() > 0)
}

fn greets(socket: &Path) -> bool {
    let greeting = UnixStream::connect(socket).and_then(|stream| {
        stream.set_read_timeout(Some(GREETING_LIMIT))?;
        // A read with a limit is not begun again after a signal (signal(7)).
        Ok(retry_on_intr(|| read(&stream, &mut [0; 16]))?)
    });
    greeting.is_ok_and(|bytes| bytes > 0)
}

fn arguments(
    accelerator: Accelerator,
    machine: &PreparedMachine,
) -> Result<(Vec<String>, Vec<OwnedFd>), Errno> {
    let spec = &machine.spec;
    let (machine_type, system) = match machine.spec.guest {
        GuestKind::LibraryOs | GuestKind::Program => (MachineType::Microvm, GuestSystem::LibraryOs),
        GuestKind::Linux => (MachineType::Q35, GuestSystem::Linux),
    };
    let mut line = CommandLine::new(machine_type, accelerator, system, spec.cpus);
    let name = machine.run_dir.dir().name();
    line.option("-sandbox", SANDBOX)
        // Threads with names, by which `tare pin` finds the vCPUs.
        .option("-name", format!("{name},debug-threads=on"))
        .memory_mib(spec.memory_mib)
        .kernel(&inherited(&machine.spec.image.file)?)
        .append(&machine.spec.cmdline)
        .exit_port()
        .virtio("virtio-rng", "");
    if let Some(initrd) = &machine.initrd {
        line.initrd(&inherited(initrd)?);
    }
    // A held lock says that the machine runs: QEMU keeps it too.
    fcntl_setfd(machine.run_dir.lock(), FdFlags::empty())?;
    // And its passt's user is this machine's alone as long as it runs.
    if let Some(claim) = machine
        .spec
        .user
        .as_ref()
        .and_then(|user| user.claim.as_ref())
    {
        fcntl_setfd(claim, FdFlags::empty())?;
    }
    let kept = console(machine, &mut line)?;
    let socket = escaped(&machine.run_dir.dir().control_socket());
    line.option("-qmp", format!("unix:{socket},server=on,wait=off"));
    if let Some(link) = &machine.link {
        net(link, &mut line)?;
    }
    for (number, disk) in machine.spec.disks.iter().enumerate() {
        drive(number, disk, &mut line)?;
    }
    let args = line.args().iter();
    let args = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    Ok((args, kept))
}

/// The console, or the streams of a pipeline; descriptors to keep until QEMU runs.
fn console(machine: &PreparedMachine, line: &mut CommandLine) -> Result<Vec<OwnedFd>, Errno> {
    let path = machine.run_dir.dir().console_log();
    let log = escaped(&path);
    match machine.spec.place {
        Place::Foreground if guest::starts_init(&machine.spec.cmdline) && stdio::wanted() => {
            return stdio::add(line, &path);
        }
        Place::Foreground => line.option(
            "-chardev",
            format!("stdio,id=console,signal=on,logfile={log},logappend=on"),
        ),
        Place::Background => {
            line.option("-chardev", format!("file,id=console,path={log},append=on"))
        }
    };
    line.serial("chardev:console");
    Ok(Vec::new())
}

fn net(link: &Link, line: &mut CommandLine) -> Result<(), Errno> {
    // The supervisor adds the one that leads to its relay and so to passt.
    if let LinkEnd::Tap { file, .. } = &link.end {
        let backend = format!("tap,id=net,fd={},vhost=off", inherit(file)?);
        line.option("-netdev", backend);
    }
    let [a, b, c, d, e, f] = link.mac;
    let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
    line.virtio("virtio-net", &format!("netdev=net,mac={mac}"));
    Ok(())
}

/// QEMU opens the file once more: the lock that comes with the inherited
/// descriptor keeps others away, and would keep QEMU away as well.
fn drive(number: usize, disk: &OpenDisk, line: &mut CommandLine) -> Result<(), Errno> {
    let file = format!("/proc/self/fd/{}", inherit(&disk.file)?);
    let read_only = match disk.access {
        Access::ReadOnly => "on",
        Access::ReadWrite => "off",
    };
    let cache = match disk.cache {
        DiskCache::Writeback => "writeback",
        DiskCache::Writethrough => "writethrough",
    };
    let source = match disk.latency_us {
        0 => format!("format=raw,file={file},file.locking=off"),
        latency_us => slowly(&file, disk_bytes(&disk.file)?, latency_us),
    };
    line.option(
        "-drive",
        format!(
            "if=none,id=disk{number},{source},readonly={read_only},cache={cache},discard=unmap"
        ),
    );
    let serial = escaped(Path::new(&disk.serial));
    let queues = disk.queues;
    let properties = format!("drive=disk{number},num-queues={queues},serial={serial}");
    line.virtio("virtio-blk", &properties);
    Ok(())
}

/// A file whose requests take so long. QEMU has no filter that delays, but a null
/// device that does, and a quorum that waits for all its members: the file, asked twice,
/// outvotes the null device.
fn slowly(file: &str, bytes: u64, latency_us: u32) -> String {
    let member = |n: u8| {
        format!(
            "children.{n}.driver=raw,children.{n}.file.driver=file,\
             children.{n}.file.filename={file},children.{n}.file.locking=off"
        )
    };
    let latency_ns = u64::from(latency_us) * 1000;
    format!(
        "driver=quorum,vote-threshold=2,{},{},children.2.driver=null-co,\
         children.2.size={bytes},children.2.latency-ns={latency_ns}",
        member(0),
        member(1)
    )
}

/// Of a file or a block device.
fn disk_bytes(file: &File) -> Result<u64, Errno> {
    rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
}

/// A path that names the descriptor in the process that inherits it.
fn inherited(file: &File) -> Result<PathBuf, Errno> {
    Ok(format!("/proc/self/fd/{}", inherit(file)?).into())
}

fn inherit(fd: &impl AsFd) -> Result<i32, Errno> {
    fcntl_setfd(fd, FdFlags::empty())?;
    Ok(fd.as_fd().as_raw_fd())
}
