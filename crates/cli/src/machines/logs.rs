//! `tare logs`: prints a machine's console output.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use tare_control::console_log::HALVED_BYTES;
use tare_control::exit::ExitCode;
use tare_control::rundir::{RunDir, RunRoot};
use tare_host::printable::ConsoleFilter;
use tare_launch::record::{EngineName, Record};

use crate::args::LogsArgs;
use crate::failure::{CommandResult, Explain};

/// How often to check whether a silent machine still runs; the end of a machine that ends by itself
/// is noticed at once.
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
    /// It is a `tare blk`, not a machine.
    #[error("{0:?} serves a disk (tare blk) and has no console")]
    Disk(String),
    /// Standard output cannot be written.
    #[error("cannot write to standard output")]
    Write(#[source] io::Error),
}

impl Explain for LogError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Read(_) | Self::Disk(_) => ExitCode::ControlFailed,
            Self::Write(_) => ExitCode::Output,
        }
    }
}

/// Prints the log, and with `--follow` what is added until the machine ends.
pub(crate) fn logs(args: &LogsArgs) -> CommandResult {
    let dir = RunRoot::open_default()?.look_up(&args.name)?.dir;
    let is_disk = |record: Record| record.engine == EngineName::Blk;
    if Record::read(&dir).is_ok_and(is_disk) {
        return Err(LogError::Disk(args.name.clone()).into());
    }
    let mut printer = Printer::new(args.raw);
    let printed = if args.follow {
        follow(&dir, &mut printer)
    } else {
        dir.open_file(&dir.console_log())
            .map_err(LogError::Read)
            .and_then(|mut log| printer.pass(&mut log))
    };
    match printed.and_then(|()| printer.finish()) {
        Err(LogError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(ExitCode::Success)
        }
        other => Ok(other.map(|()| ExitCode::Success)?),
    }
}

fn follow(dir: &RunDir, printer: &mut Printer) -> Result<(), LogError> {
    let path = dir.console_log();
    let mut log = dir.open_file(&path).map_err(LogError::Read)?;
    let events = watch(&path).map_err(LogError::Read)?;
    loop {
        // Checked before reading, so that output in between is read.
        let links = log.metadata().map_err(LogError::Read)?.nlink();
        let over = links == 0 || !dir.is_alive();
        go_on(&mut log).map_err(LogError::Read)?;
        printer.pass(&mut log)?;
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

/// Continues at the log's new position if its first half has been removed meanwhile.
fn go_on(log: &mut File) -> io::Result<()> {
    if log.metadata()?.len() < log.stream_position()? {
        log.seek(SeekFrom::Start(HALVED_BYTES))?;
    }
    Ok(())
}

/// An event for each write and, as a change of the link count, for the removal.
fn watch(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
    let events = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let wanted = inotify::WatchFlags::MODIFY | inotify::WatchFlags::ATTRIB;
    inotify::add_watch(&events, path, wanted)?;
    Ok(events)
}

/// Copies to standard output. On a terminal a guest's escape sequences, which could
/// set its title or fill the clipboard, are dropped.
struct Printer {
    filter: Option<ConsoleFilter>,
}

impl Printer {
    fn new(raw: bool) -> Self {
        let filtered = !raw && io::stdout().is_terminal();
        Self {
            filter: filtered.then(ConsoleFilter::default),
        }
    }

    /// Copies what is available.
    fn pass(&mut self, log: &mut File) -> Result<(), LogError> {
        let mut out = io::stdout().lock();
        let mut chunk = [0; 16 * 1024];
        loop {
            let length = log.read(&mut chunk).map_err(LogError::Read)?;
            let bytes = &chunk[..length];
            let written = match &mut self.filter {
                _ if bytes.is_empty() => return out.flush().map_err(LogError::Write),
                Some(filter) => out.write_all(filter.clean(bytes).as_bytes()),
                None => out.write_all(bytes),
            };
            written.map_err(LogError::Write)?;
        }
    }

    /// Prints an incomplete character at the end.
    fn finish(&mut self) -> Result<(), LogError> {
        let rest = self
            .filter
            .as_mut()
            .map(ConsoleFilter::finish)
            .unwrap_or_default();
        io::stdout()
            .write_all(rest.as_bytes())
            .map_err(LogError::Write)
    }
}

#[cfg(test)]
mod tests {
    use tare_control::console_log::{LIMIT_BYTES, halve};

    use super::*;

    #[test]
    fn a_log_that_lost_its_first_half_is_read_on() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'x'; LIMIT_BYTES as usize]).unwrap();
        go_on(&mut file).unwrap();
        assert_eq!(file.stream_position().unwrap(), LIMIT_BYTES);
        halve(&file, LIMIT_BYTES).unwrap();
        go_on(&mut file).unwrap();
        file.write_all(b"new").unwrap();
        file.seek(SeekFrom::Current(-3)).unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "new");
    }
}
