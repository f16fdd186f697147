//! `tare blk`: disks as vhost-user devices, for QEMU and Cloud Hypervisor.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use tare_control::config::{Descriptor, DiskConfig};
use tare_control::exit::ExitCode;
use tare_control::rundir::RunRoot;
use tare_daemon::SetUpError;
use tare_daemon::disk::{DiskConfigError, settings};
use tare_devices::blk::{Access, Disk, MAX_QUEUES};
use tare_host::process::start_time;
use tare_launch::disk::OpenDiskError;
use tare_launch::disk_choice::DiskChoice;
use tare_launch::record::{EngineName, Record, now_s};
use tare_launch::{Name, RunDirGuard, RunFileError};
use tare_vhost::{
    ActivationError, BlkDaemon, MOST_DISKS, ServedDisk, Socket, SocketError, Supervisor,
    TooFewDescriptors, allow_descriptors, passed_sockets,
};

use crate::args::BlkArgs;
use crate::failure::{CommandResult, Explain, Failure};
use crate::output::warn;

impl Explain for SocketError {
    fn code(&self) -> ExitCode {
        ExitCode::Socket
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::InUse(_) => Some("give another --socket, or end that program".to_owned()),
            Self::NotASocket(_) | Self::Make { .. } => Some("give another --socket".to_owned()),
        }
    }
}

impl Explain for SetUpError {
    fn code(&self) -> ExitCode {
        ExitCode::Internal
    }
}

/// An invalid disk on the command line, although the parser accepted it.
#[derive(Debug, thiserror::Error)]
#[error("invalid disk settings")]
struct BadDisk(#[from] DiskConfigError);

impl Explain for TooFewDescriptors {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }

    fn hint(&self) -> Option<String> {
        Some("serve fewer disks, or raise the hard limit (ulimit -Hn, LimitNOFILE=)".to_owned())
    }
}

impl Explain for BadDisk {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

impl Explain for ActivationError {
    fn code(&self) -> ExitCode {
        ExitCode::Socket
    }

    fn hint(&self) -> Option<String> {
        Some("a socket unit with ListenStream= passes such a socket".to_owned())
    }
}

/// Disks and sockets that do not match.
#[derive(Debug, thiserror::Error)]
enum PairError {
    /// No socket.
    #[error("no socket: give one --socket for each --disk, or let systemd pass them")]
    NoSocket,
    /// Different numbers.
    #[error("{disks} disks and {sockets} sockets: give one for each disk, in the same order")]
    Numbers {
        /// Disks.
        disks: usize,
        /// Sockets.
        sockets: usize,
    },
    /// Both kinds of sockets.
    #[error("both LISTEN_FDS and --socket name sockets: use only one of them")]
    Both,
    /// Too many disks.
    #[error("{0} disks: one tare blk serves at most {MOST_DISKS}")]
    Disks(usize),
}

impl Explain for PairError {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

/// The sockets of the disks, in order; `passed` came from a supervisor.
fn sockets(args: &BlkArgs, passed: Vec<UnixListener>) -> Result<Vec<Socket>, Failure> {
    let (disks, sockets) = (args.disk.len(), args.socket.len().max(passed.len()));
    if disks > MOST_DISKS {
        return Err(PairError::Disks(disks).into());
    }
    if !passed.is_empty() && !args.socket.is_empty() {
        return Err(PairError::Both.into());
    }
    match sockets {
        0 => return Err(PairError::NoSocket.into()),
        _ if sockets != disks => return Err(PairError::Numbers { disks, sockets }.into()),
        _ => {}
    }
    if !passed.is_empty() {
        return Ok(passed.into_iter().map(Socket::passed).collect());
    }
    let made = args
        .socket
        .iter()
        .map(|path| Socket::bind_for(path, args.socket_mode));
    Ok(made.collect::<Result<_, _>>()?)
}

/// Serves disks until Ctrl-C, SIGTERM or `tare stop`.
pub(crate) fn blk(args: BlkArgs) -> CommandResult {
    // Before anything is opened, so that no new descriptor has a number from the environment.
    let passed = passed_sockets()?;
    allow_descriptors(args.disk.len().min(MOST_DISKS))?;
    let mut disks = Vec::new();
    for (number, asked) in args.disk.iter().enumerate() {
        if asked.at.is_some() {
            return Err(Failure::new(ExitCode::Usage, PlaceInBlk));
        }
        let disk =
            Disk::open_as(&asked.path, asked.access, asked.format).map_err(OpenDiskError::from)?;
        let config = config(number, asked, &disk);
        disks.push((disk, settings(&config).map_err(BadDisk)?, config));
    }
    let sockets = sockets(&args, passed)?;
    let supervisor = Supervisor::of_environment()
        .map_err(|error| Failure::new(ExitCode::Socket, NoSupervisor(error)))?;
    let name = match args.name {
        Some(name) => Name::Given(name),
        None => Name::Numbered("blk".to_owned()),
    };
    let run_dir = RunDirGuard::take(&RunRoot::open_default()?, &name)?;
    let dir = run_dir.dir();
    let control = UnixListener::bind(dir.control_socket())
        .map_err(RunFileError::of("the control socket", dir))?;
    let paths: Vec<_> = disks.iter().map(|(_, _, it)| it.path.as_str()).collect();
    record(paths.join(", "))
        .write(dir)
        .map_err(RunFileError::of("run.json", dir))?;
    let mut served = Vec::new();
    let mut lines = Vec::new();
    for ((disk, settings, config), socket) in disks.into_iter().zip(sockets) {
        let at = socket.path().display();
        lines.push(format!(
            "{} is served on {at} as {}",
            config.path,
            dir.name()
        ));
        served.push(ServedDisk {
            path: config.path,
            disk,
            settings,
            latency: Duration::from_micros(config.latency_us.into()),
            socket,
        });
    }
    let daemon = BlkDaemon {
        name: dir.name().to_owned(),
        disks: served,
        control,
        run_dir: dir.path().to_owned(),
        supervisor,
    };
    let ended = tare_vhost::serve(daemon, || lines.iter().for_each(|line| warn(line)))?;
    match ended {
        tare_vhost::ExitReason::Failed(sentence) => Err(Failure::new(ExitCode::Internal, sentence)),
        ended => Ok(ended.code()),
    }
}

/// A place for a disk's files, which only programs have.
#[derive(Debug, thiserror::Error)]
#[error("at= is for tare run ./program: tare blk serves sectors, not files")]
struct PlaceInBlk;

/// `NOTIFY_SOCKET` cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to the socket in NOTIFY_SOCKET")]
struct NoSupervisor(#[source] std::io::Error);

fn config(number: usize, asked: &DiskChoice, disk: &Disk) -> DiskConfig {
    DiskConfig {
        path: asked.path.to_string_lossy().into_owned(),
        file: Descriptor(disk.file().as_raw_fd()),
        read_only: asked.access == Access::ReadOnly,
        cache: asked.cache,
        serial: asked
            .serial
            .clone()
            .unwrap_or_else(|| format!("tare-disk{number}")),
        // The front-end uses as many as it wants.
        queues: asked.queues.unwrap_or(MAX_QUEUES),
        coalesce: asked.coalesce.unwrap_or_default(),
        latency_us: asked.latency_us,
        iops: asked.limits.iops,
        bytes_per_s: asked.limits.bytes_per_s,
    }
}

fn record(image: String) -> Record {
    Record {
        engine: EngineName::Blk,
        pid: std::process::id(),
        start_time: start_time(std::process::id()),
        image,
        cpus: 0,
        memory_mib: 0,
        ports: Vec::new(),
        started_s: now_s(),
        restarts: 0,
        keeper: None,
        waits_after: None,
        reload: None,
        passes_signals: false,
        user: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk in use, a name in use and a killed daemon justify another try.
    #[test]
    fn systemd_does_not_start_again_what_cannot_start() {
        let unit = include_str!("../../../../dist/tare-blk@.service");
        let prefix = "RestartPreventExitStatus=";
        let codes = unit.lines().find_map(|line| line.strip_prefix(prefix));
        let permanent = [
            ExitCode::Usage,
            ExitCode::Socket,
            ExitCode::DiskUnreadable,
            ExitCode::DiskUnusable,
            ExitCode::RunRootUnsafe,
            ExitCode::RunDirForeign,
        ]
        .map(|code| (code as i32).to_string());
        assert_eq!(codes.unwrap(), permanent.join(" "));
        // Everything else stops the retries.
        assert!(!unit.contains("StartLimitIntervalSec=0"));
        assert!(unit.contains("\nStartLimitBurst="));
    }
}
