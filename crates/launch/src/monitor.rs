//! Tare's engine: this process becomes `tare-monitor`, or starts it in a
//! new session and waits until the machine answers.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::stdio::stdin;
use rustix::termios::isatty;
use tare_control::client::Client;
use tare_control::config::{
    Console, DedicatedCpu, Descriptor, DiskConfig, ForwardConfig, ForwardedPort, GuestKind, Jail,
    JailUser, Leaves, MachineConfig, NetBackend, NetConfig, PasstConfig, StreamConfig, Streams,
};
use tare_control::exit::ExitCode;
use tare_control::rundir::RunDir;
use tare_devices::blk::Access;
use tare_host::child::{holds_back, in_own_session};
use tare_host::signals::hold_back;

use crate::attempt::Output;
use crate::disk::OpenDisk;
use crate::failure::{Explain, Failure};
use crate::machine::{FilteredPasst, Launched, Link, LinkEnd, PreparedMachine, RunFileError};
use crate::ports::PortSocket;
use crate::request::JobMode;
use crate::user::MachineUser;
use crate::{Terminal, background, dedicated_cpus, passt};

/// Timeout of one attempt to get an answer, so that an early end is noticed soon.
const ATTEMPT: Duration = Duration::from_millis(250);

/// The monitor cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MonitorError {
    /// The program cannot be executed.
    #[error("cannot execute {}", program.display())]
    Execute {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A descriptor cannot be passed on.
    #[error("cannot pass a descriptor to the monitor")]
    Inherit(#[source] rustix::io::Errno),
    /// The configuration cannot be written as JSON.
    #[error("cannot write the machine's configuration")]
    Configuration(#[source] serde_json::Error),
}

impl Explain for MonitorError {
    fn code(&self) -> ExitCode {
        ExitCode::Internal
    }
}

/// Starts the monitor for a prepared machine.
pub(crate) fn start(
    program: &Path,
    mut machine: PreparedMachine,
    terminal: &dyn Terminal,
) -> Result<Launched, Failure> {
    machine.connect()?;
    let dir = machine.run_dir.dir().clone();
    let socket = UnixListener::bind(dir.control_socket())
        .map_err(RunFileError::of("the control socket", &dir))?;
    let config = configuration(&machine, &socket)?;
    let document = serde_json::to_vec_pretty(&config).map_err(MonitorError::Configuration)?;
    let path = dir.machine_json();
    let machine_json = dir
        .write_file(&path, &document)
        .and_then(|()| File::open(&path))
        .map_err(RunFileError::of("machine.json", &dir))?;
    let descriptor = inherit(&machine_json)?;
    let arguments = ["--config".to_owned(), descriptor.0.to_string()];
    match machine.spec.place {
        JobMode::Foreground | JobMode::Attempt(_) => foreground(program, &arguments, machine),
        JobMode::Background => background(program, &arguments, machine, socket, terminal),
    }
}

fn configuration(
    machine: &PreparedMachine,
    socket: &UnixListener,
) -> Result<MachineConfig, MonitorError> {
    let log = inherit(&machine.console_log)?;
    Ok(MachineConfig {
        name: machine.run_dir.dir().name().to_owned(),
        cpus: machine.spec.cpus,
        memory_mib: machine.spec.memory_mib,
        huge_pages: machine.spec.huge_pages,
        cmdline: machine.spec.cmdline.clone(),
        image_path: machine.record.image.clone(),
        guest: machine.spec.guest,
        has_init: machine.spec.has_init(),
        stop_signal: machine.spec.stop_signal,
        image: inherit(&machine.spec.image.file)?,
        initrd: machine.files.own.as_ref().map(inherit).transpose()?,
        shared_files: machine.files.shared.as_ref().map(inherit).transpose()?,
        net: machine
            .link
            .as_ref()
            .map(|link| net(link, &mut |fd| inherit(&fd)))
            .transpose()?,
        disks: machine
            .spec
            .disks
            .iter()
            .map(disk)
            .collect::<Result<_, _>>()?,
        rng: true,
        halt: machine.spec.halt,
        dedicated_cpus: machine
            .spec
            .dedicated_cpus
            .iter()
            .map(dedicated_cpu)
            .collect::<Result<_, _>>()?,
        console: match machine.spec.place {
            JobMode::Foreground | JobMode::Attempt(Output::Terminal) => Console::Stdio { log },
            JobMode::Background | JobMode::Attempt(Output::Log) => Console::Log { log },
        },
        streams: streams(machine),
        leaves: match machine.spec.place {
            JobMode::Foreground => Leaves::Nothing,
            JobMode::Background => Leaves::OwnEnd,
            JobMode::Attempt(_) => Leaves::ForKeeper,
        },
        control: inherit(socket)?,
        run_dir: machine.run_dir.dir().path().to_string_lossy().into_owned(),
        lock: inherit(machine.run_dir.lock())?,
        probe: machine
            .spec
            .probe
            .as_ref()
            .map(serde_json::to_value)
            .transpose()
            .map_err(MonitorError::Configuration)?,
        jail: Jail {
            namespaces: true,
            user: machine.spec.user.as_ref().map(jail_user).transpose()?,
        },
    })
}

/// A program always has ports. The command of a Linux guest has them when its input is a pipe, as
/// in QEMU: with a terminal it uses the serial console, which is one.
fn streams(machine: &PreparedMachine) -> Streams {
    let has_command = || machine.spec.has_init() && !isatty(stdin());
    match (machine.spec.guest, machine.spec.place) {
        (GuestKind::Program, _) => Streams::Ports,
        (GuestKind::Linux, JobMode::Foreground | JobMode::Attempt(Output::Terminal))
            if has_command() =>
        {
            Streams::Ports
        }
        _ => Streams::Serial,
    }
}

/// Lets the next program have a descriptor.
pub(crate) type Hand<'a> = &'a mut dyn FnMut(BorrowedFd<'_>) -> Result<Descriptor, MonitorError>;

/// A machine's network for the program that serves it.
pub(crate) fn net(link: &Link, hand: Hand<'_>) -> Result<NetConfig, MonitorError> {
    Ok(NetConfig {
        mac: link.mac,
        mtu: passt::MTU,
        frames_per_s: link.limits.frames_per_s,
        bytes_per_s: link.limits.bytes_per_s,
        backend: match &link.end {
            LinkEnd::Passt(passt) => NetBackend::Stream(stream(passt, hand)?),
            LinkEnd::Direct {
                sockets,
                has_ipv6,
                passt,
            } => NetBackend::Forward(ForwardConfig {
                ports: sockets
                    .iter()
                    .map(|socket| port(socket, hand))
                    .collect::<Result<_, _>>()?,
                gateway_mac: passt::GATEWAY_MAC,
                guest: passt::GUEST.into(),
                gateway: passt::GATEWAY.into(),
                v6: has_ipv6.then_some((passt::GUEST_V6, passt::GATEWAY_V6)),
                passt: passt
                    .as_ref()
                    .map(|passt| beside(passt, hand))
                    .transpose()?,
            }),
            LinkEnd::Tap { name, file } => NetBackend::Tap {
                fd: hand(file.as_fd())?,
                name: name.clone(),
            },
        },
    })
}

fn stream(passt: &FilteredPasst, hand: Hand<'_>) -> Result<StreamConfig, MonitorError> {
    Ok(StreamConfig {
        fd: hand(passt.passt.socket().as_fd())?,
        filter: passt.filter.clone(),
    })
}

fn beside(passt: &FilteredPasst, hand: Hand<'_>) -> Result<PasstConfig, MonitorError> {
    Ok(PasstConfig {
        stream: stream(passt, hand)?,
        start: passt.passt.start(),
    })
}

fn port(socket: &PortSocket, hand: Hand<'_>) -> Result<ForwardedPort, MonitorError> {
    Ok(ForwardedPort {
        fd: hand(socket.socket.as_fd())?,
        protocol: socket.protocol,
        guest: socket.guest,
        all_addresses: socket.all_addresses,
    })
}

fn disk(disk: &OpenDisk) -> Result<DiskConfig, MonitorError> {
    Ok(DiskConfig {
        path: disk.path.clone(),
        file: inherit(&disk.file)?,
        read_only: disk.access == Access::ReadOnly,
        cache: disk.cache,
        serial: disk.serial.clone(),
        queues: disk.queues,
        coalesce: disk.coalesce,
        latency_us: disk.latency_us,
        iops: disk.limits.iops,
        bytes_per_s: disk.limits.bytes_per_s,
    })
}

fn jail_user(user: &MachineUser) -> Result<JailUser, MonitorError> {
    Ok(JailUser {
        uid: user.uid,
        gid: user.gid,
        claim: user.claim.as_ref().map(inherit).transpose()?,
    })
}

fn dedicated_cpu(own: &dedicated_cpus::DedicatedCpu) -> Result<DedicatedCpu, MonitorError> {
    Ok(DedicatedCpu {
        cpu: own.cpu,
        lock: inherit(&own.lock)?,
    })
}

/// Lets the next program keep the descriptor.
fn inherit(fd: &impl AsFd) -> Result<Descriptor, MonitorError> {
    let fd = fd.as_fd();
    fcntl_setfd(fd, FdFlags::empty()).map_err(MonitorError::Inherit)?;
    Ok(Descriptor(fd.as_raw_fd()))
}

/// Returns only if the program cannot be executed.
fn foreground(
    program: &Path,
    arguments: &[String],
    machine: PreparedMachine,
) -> Result<Launched, Failure> {
    let dir = machine.run_dir.dir();
    machine
        .record
        .write(dir)
        .map_err(RunFileError::of("run.json", dir))?;
    // A signal after the check waits for the monitor, which then removes the run directory. If
    // blocking it fails, the signal ends this process as before.
    let _ = hold_back();
    machine.interruption.check()?;
    let source = Command::new(program).args(arguments).exec();
    drop(machine);
    Err(execute(program, source).into())
}

fn background(
    program: &Path,
    arguments: &[String],
    machine: PreparedMachine,
    socket: UnixListener,
    terminal: &dyn Terminal,
) -> Result<Launched, Failure> {
    let mut command = Command::new(program);
    in_own_session(&mut command)
        .args(arguments)
        .stdin(Stdio::null());
    // As in the foreground.
    holds_back(&mut command);
    let mut answers = answers(machine.run_dir.dir());
    let mut socket = Some(socket);
    let (starting, record, open) = machine.into_starting();
    // The monitor puts its process there, which may not be the one that is started here.
    let dir = starting.run_dir.dir();
    record
        .write(dir)
        .map_err(RunFileError::of("run.json", dir))?;
    let launched = background::detach(command, starting, None, terminal, || {
        // Only the monitor listens now: its end is noticed by whoever connects.
        socket = None;
        answers()
    });
    drop(open);
    launched
}

/// Whether a monitor answers for the machine in `dir`.
pub(crate) fn answers(dir: &RunDir) -> impl FnMut() -> bool + use<> {
    let mut client = Client::new(dir.control_socket()).with_timeout(ATTEMPT);
    move || client.machine().is_ok()
}

fn execute(program: &Path, source: io::Error) -> MonitorError {
    MonitorError::Execute {
        program: program.to_owned(),
        source,
    }
}
