//! `tare logs`: what a machine wrote to its console.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use tare_control::exit::ExitCode;
use tare_control::rundir::{RunDir, RunRoot};

use crate::args::LogsArgs;
use crate::failure::{Explain, Outcome};

/// How often to look whether a machine still lives that writes nothing; a
/// machine that ends by itself is noticed at once.
const LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// A log that cannot be printed.
#[derive(Debug, thiserror::Error)]
enum LogError {
    /// It cannot be read.
    #[error("cannot read the console log")]
    Read(#[source] io::Error),
    /// Standard output does not take it.
    #[error("cannot write to standard output")]
    Write(#[source] io::Error),
}

impl Explain for LogError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Read(_) => ExitCode::ControlFailed,
            Self::Write(_) => ExitCode::Output,
        }
    }
}

/// Prints the log, and with `--follow` what is added until the machine ends.
pub(crate) fn logs(args: &LogsArgs) -> Outcome {
    let dir = RunRoot::open_default()?.look_up(&args.name)?.dir;
    let printed = match args.follow {
        false => dir
            .open_file(&dir.console_log())
            .map_err(LogError::Read)
            .and_then(|mut log| pass(&mut log)),
        true => follow(&dir),
    };
    match printed {
        Err(LogError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(ExitCode::Success)
        }
        other => Ok(other.map(|()| ExitCode::Success)?),
    }
}

fn follow(dir: &RunDir) -> Result<(), LogError> {
    let path = dir.console_log();
    let mut log = dir.open_file(&path).map_err(LogError::Read)?;
    let events = watch(&path).map_err(LogError::Read)?;
    loop {
        // Looked at before reading: what comes in between is read.
        let links = log.metadata().map_err(LogError::Read)?.nlink();
        let over = links == 0 || !dir.is_alive();
        pass(&mut log)?;
        if over {
            return Ok(());
        }
        let mut fds = [PollFd::new(&events, PollFlags::IN)];
        if poll(&mut fds, Some(&LOOK)).is_ok_and(|ready| ready > 0) {
            rustix::io::read(&events, &mut [0; 4096])
                .map_err(|errno| LogError::Read(errno.into()))?;
        }
    }
}

/// Told of each write and, as a change of its link count, of the removal.
fn watch(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
    let events = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let wanted = inotify::WatchFlags::MODIFY | inotify::WatchFlags::ATTRIB;
    inotify::add_watch(&events, path, wanted)?;
    Ok(events)
}

/// Copies what there is to standard output.
fn pass(log: &mut File) -> Result<(), LogError> {
    let mut out = io::stdout().lock();
    let mut chunk = [0; 16 * 1024];
    loop {
        let length = log.read(&mut chunk).map_err(LogError::Read)?;
        let written = match length {
            0 => return out.flush().map_err(LogError::Write),
            length => out.write_all(&chunk[..length]),
        };
        written.map_err(LogError::Write)?;
    }
}
