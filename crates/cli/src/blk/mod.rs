//! `tare blk`: a disk as a vhost-user device, for QEMU and Cloud Hypervisor.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use tare_control::config::{Descriptor, DiskConfig};
use tare_control::exit::ExitCode;
use tare_control::rundir::RunRoot;
use tare_daemon::disk::{DiskConfigError, settings};
use tare_devices::blk::{Access, Disk, MAX_QUEUES};
use tare_host::process::start_time;
use tare_launch::disk::OpenDiskError;
use tare_launch::disk_choice::DiskChoice;
use tare_launch::record::{EngineName, Record, now_s};
use tare_launch::{Name, RunDirGuard, RunFileError};
use tare_vhost::{BlkDaemon, ServeError, Socket, SocketError};

use crate::args::BlkArgs;
use crate::failure::{Explain, Failure, Outcome};
use crate::warn;

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

impl Explain for ServeError {
    fn code(&self) -> ExitCode {
        ExitCode::Internal
    }
}

/// The command line's disk is invalid; its own parser has refused it before.
#[derive(Debug, thiserror::Error)]
#[error("invalid disk settings")]
struct BadDisk(#[from] DiskConfigError);

impl Explain for BadDisk {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

/// Serves a disk until Ctrl-C, SIGTERM or `tare stop`.
pub(crate) fn blk(args: BlkArgs) -> Outcome {
    let disk = Disk::open_as(&args.disk.path, args.disk.access, args.disk.format)
        .map_err(OpenDiskError::from)?;
    let config = config(&args.disk, &disk);
    let settings = settings(&config).map_err(BadDisk)?;
    let socket = Socket::bind_for(&args.socket, args.socket_mode)?;
    let name = match args.name {
        Some(name) => Name::Given(name),
        None => Name::Numbered("blk".to_owned()),
    };
    let run_dir = RunDirGuard::take(&RunRoot::open_default()?, &name)?;
    let dir = run_dir.dir();
    let control = UnixListener::bind(dir.control_socket())
        .map_err(RunFileError::of("the control socket", dir))?;
    record(&config)
        .write(dir)
        .map_err(RunFileError::of("run.json", dir))?;
    let served = format!(
        "{} is served on {} as {}",
        config.path,
        socket.path().display(),
        dir.name()
    );
    let daemon = BlkDaemon {
        name: dir.name().to_owned(),
        disk_path: config.path.clone(),
        disk,
        settings,
        latency: Duration::from_micros(config.latency_us.into()),
        socket,
        control,
        run_dir: dir.path().to_owned(),
    };
    let ended = tare_vhost::serve(daemon, || warn(&served))?;
    match ended {
        tare_vhost::Ended::Failed(sentence) => Err(Failure::new(ExitCode::Internal, sentence)),
        ended => Ok(ended.code()),
    }
}

fn config(asked: &DiskChoice, disk: &Disk) -> DiskConfig {
    DiskConfig {
        path: asked.path.to_string_lossy().into_owned(),
        file: Descriptor(disk.file().as_raw_fd()),
        read_only: asked.access == Access::ReadOnly,
        cache: asked.cache,
        serial: asked
            .serial
            .clone()
            .unwrap_or_else(|| "tare-disk0".to_owned()),
        // The front-end takes as many as it wants.
        queues: asked.queues.unwrap_or(MAX_QUEUES),
        coalesce: asked.coalesce.unwrap_or_default(),
        latency_us: asked.latency_us,
        iops: asked.limits.iops,
        bytes_per_s: asked.limits.bytes_per_s,
    }
}

fn record(config: &DiskConfig) -> Record {
    Record {
        engine: EngineName::Blk,
        pid: std::process::id(),
        start_time: start_time(std::process::id()),
        image: config.path.clone(),
        cpus: 0,
        memory_mib: 0,
        ports: Vec::new(),
        started_s: now_s(),
        user: None,
    }
}
