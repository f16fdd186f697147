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
use crate::failure::{Explain, Failure, Outcome};

/// How often to look whether a machine still lives that writes nothing; a
/// machine that ends by itself is noticed at once.
const LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the console's log of {name:?}")]
struct LogError {
    name: String,
    source: io::Error,
}

impl Explain for LogError {
    fn code(&self) -> ExitCode {
        ExitCode::ControlFailed
    }
}

/// Prints the log, and with `--follow` what is added until the machine ends.
pub(crate) fn logs(args: &LogsArgs) -> Outcome {
    let dir = RunRoot::open_default()?.find(&args.name)?;
    let printed = match args.follow {
        false => File::open(dir.console_log()).and_then(|mut log| pass(&mut log)),
        true => follow(&dir),
    };
    match printed {
        Ok(_) => Ok(ExitCode::Success),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::Success),
        Err(source) => Err(Failure::from(LogError {
            name: args.name.clone(),
            source,
        })),
    }
}

fn follow(dir: &RunDir) -> io::Result<()> {
    let path = dir.console_log();
    let mut log = File::open(&path)?;
    let events = watch(&path)?;
    loop {
        // Looked at before reading: what comes in between is read.
        let over = log.metadata()?.nlink() == 0 || !dir.is_alive();
        pass(&mut log)?;
        if over {
            return Ok(());
        }
        let mut fds = [PollFd::new(&events, PollFlags::IN)];
        if poll(&mut fds, Some(&LOOK)).is_ok_and(|ready| ready > 0) {
            let _ = rustix::io::read(&events, &mut [0; 4096])?;
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
fn pass(log: &mut File) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut chunk = [0; 16 * 1024];
    loop {
        match log.read(&mut chunk)? {
            0 => return out.flush(),
            n => out.write_all(&chunk[..n])?,
        }
    }
}
