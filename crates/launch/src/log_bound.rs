//! Bounds the `console.log` that QEMU writes itself: a guest that writes forever fills neither
//! disk nor memory, where the run directories are.
//!
//! A thread sleeps until the file changes (inotify; where the user has no instance left it looks
//! each second), and halves a file that is too long. While a guest writes it looks at most every
//! [`PACE`], so that the file is longer than its bound by what comes in that time.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::pipe::{PipeFlags, pipe_with};
use tare_control::console_log::{LIMIT_BYTES, halve};

const PACE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// How often to look without events.
const LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The thread; without one where its parts could not be made, which leaves the log unbounded
/// rather than the machine unstarted.
pub(crate) struct LogBound(Option<(OwnedFd, JoinHandle<()>)>);

impl LogBound {
    /// Begins.
    pub(crate) fn start(log: PathBuf) -> Self {
        let start = || {
            let (end, stop) = pipe_with(PipeFlags::CLOEXEC)?;
            let file = File::options().read(true).write(true).open(&log)?;
            let thread = thread::Builder::new().name("console-log".to_owned());
            let thread = thread.spawn(move || keep(&file, &log, &end))?;
            io::Result::Ok((stop, thread))
        };
        Self(start().ok())
    }

    /// Ends; the log is within its bound then, if nobody writes any more.
    pub(crate) fn stop(self) {
        if let Some((stop, thread)) = self.0 {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// Looks until the other side of `end` is closed.
fn keep(file: &File, path: &Path, end: &OwnedFd) {
    let events = watch(path).ok();
    loop {
        let mut fds = vec![PollFd::new(end, PollFlags::IN)];
        fds.extend(
            events
                .iter()
                .map(|events| PollFd::new(events, PollFlags::IN)),
        );
        let limit = events.is_none().then_some(&LOOK);
        let ready = poll(&mut fds, limit);
        let over = !fds[0].revents().is_empty();
        bound(file);
        if over || ready.is_err_and(|errno| errno != rustix::io::Errno::INTR) {
            return;
        }
        if let Some(events) = &events {
            let _ = rustix::io::read(events, &mut [0; 4096]);
            let mut fds = [PollFd::new(end, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&PACE));
        }
    }
}

fn bound(file: &File) {
    // What fails here fails again the next time, and hurts nobody else.
    let length = file.metadata().map_or(0, |file| file.len());
    if length > LIMIT_BYTES {
        let _ = halve(file, length);
    }
}

fn watch(path: &Path) -> rustix::io::Result<OwnedFd> {
    let events = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(&events, path, inotify::WatchFlags::MODIFY)?;
    Ok(events)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_log_that_another_process_writes_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console.log");
        let mut theirs = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        let bound = LogBound::start(path.clone());
        for _ in 0..3 * LIMIT_BYTES / 8192 {
            theirs.write_all(&[b'x'; 8192]).unwrap();
        }
        theirs.write_all(b"the end").unwrap();
        bound.stop();
        let text = std::fs::read(&path).unwrap();
        assert!(text.len() as u64 <= LIMIT_BYTES, "{} bytes", text.len());
        assert!(text.starts_with(b"[tare: ") && text.ends_with(b"xthe end"));
    }

    #[test]
    fn a_log_that_is_missing_holds_nothing_up() {
        LogBound::start("/no/such/console.log".into()).stop();
    }
}
