//! Bounds the `console.log` that QEMU itself writes: a guest that writes forever fills neither disk
//! nor memory, where the run directories are.
//!
//! A thread sleeps until the file changes (inotify; without a free instance it polls each second),
//! and halves a file that is too long. While a guest writes it checks ten times a second, so
//! the file can exceed its bound by what is written in between.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, inotify};
use rustix::pipe::{PipeFlags, pipe_with};
use tare_control::console_log::{LIMIT_BYTES, halve};

const PACE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Polling interval without events.
const LOOK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The thread, which ends with the value: the log is then within its bound, if no process writes any more. `None` where it could not be started: the log is then
/// unbounded, but the machine starts.
#[derive(Debug)]
pub struct LogBound(Option<(OwnedFd, JoinHandle<()>)>);

impl LogBound {
    /// Starts the thread.
    pub fn start(log: PathBuf) -> Self {
        let start = || {
            let (end, stop) = pipe_with(PipeFlags::CLOEXEC)?;
            let file = File::options().read(true).write(true).open(&log)?;
            let thread = thread::Builder::new().name("console-log".to_owned());
            let thread = thread.spawn(move || keep(&file, &log, &end))?;
            io::Result::Ok((stop, thread))
        };
        Self(start().ok())
    }
}

impl Drop for LogBound {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// Bounds a log once: for a machine that is started again and again, whose attempts log errors
/// without a machine running.
pub(crate) fn bound_once(log: &Path) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(log)?;
    bound(&file);
    Ok(())
}

/// Bounds the log until the other side of `end` is closed.
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
    // A failure here is retried the next time, and harms no other file.
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
        drop(bound);
        let text = std::fs::read(&path).unwrap();
        assert!(text.len() as u64 <= LIMIT_BYTES, "{} bytes", text.len());
        assert!(text.starts_with(b"[tare: ") && text.ends_with(b"xthe end"));
    }

    #[test]
    fn a_log_that_is_too_long_is_bounded_once_and_a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("console.log");
        let file = File::create(&path).unwrap();
        file.set_len(LIMIT_BYTES).unwrap();
        bound_once(&path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), LIMIT_BYTES);
        file.set_len(3 * LIMIT_BYTES).unwrap();
        bound_once(&path).unwrap();
        assert!(file.metadata().unwrap().len() < LIMIT_BYTES);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(bound_once(&link).is_err());
    }

    #[test]
    fn a_log_that_is_missing_holds_nothing_up() {
        drop(LogBound::start("/no/such/console.log".into()));
    }
}
