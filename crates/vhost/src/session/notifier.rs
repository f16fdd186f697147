//! The eventfds by which driver and device wake each other.
//!
//! The front-end holds the same open files, and with them the O_NONBLOCK flag: nothing
//! here relies on it. Only eventfds are taken. A read does not wait by RWF_NOWAIT; a
//! write does not wait by [`super::signal`], or uses [`send`] where io_uring is not
//! allowed.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tare_daemon::poll::{Interest, Poll};

/// What a read of a notifier came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kick {
    /// The driver notified.
    Notified,
    /// Nothing yet.
    Nothing,
    /// It will not notify any more: it is not an eventfd, or closed.
    Broken,
}

/// A notifier that the loop watches, or not.
pub(crate) struct Notifier {
    file: File,
    poll: Arc<Poll>,
    token: u64,
    watched: Interest,
}

impl Notifier {
    /// Not watched yet.
    pub(crate) fn new(file: File, poll: &Arc<Poll>, token: u64) -> io::Result<Self> {
        require_eventfd(&file)?;
        Ok(Self {
            file,
            poll: Arc::clone(poll),
            token,
            watched: Interest::default(),
        })
    }

    /// Watches it from now on, or no longer.
    pub(crate) fn watch(&mut self, wanted: Interest) -> io::Result<()> {
        let (file, token) = (self.file.as_fd(), self.token);
        self.poll.change(file, token, self.watched, wanted)?;
        self.watched = wanted;
        Ok(())
    }

    /// Takes the notification, if there is one.
    pub(crate) fn take(&self) -> Kick {
        let mut count = [0; 8];
        let buffer = &mut [io::IoSliceMut::new(&mut count)];
        // An offset of -1: the file has no position.
        match preadv2(&self.file, buffer, u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(8) => Kick::Notified,
            Err(Errno::AGAIN | Errno::INTR) => Kick::Nothing,
            _ => Kick::Broken,
        }
    }
}

impl Drop for Notifier {
    /// Closing is not enough: the front-end holds the same open file, which
    /// would stay in the set.
    fn drop(&mut self) {
        let _ = self.watch(Interest::default());
    }
}

/// An eventfd to write interrupts to.
pub(crate) fn sender(file: File) -> io::Result<File> {
    require_eventfd(&file)?;
    Ok(file)
}

/// Signals an eventfd by write(2), if its counter has room: one that is full is signalled
/// already. A front-end that fills it in between makes this wait.
pub(crate) fn send(file: &File) {
    if has_room(file) {
        let _ = rustix::io::write(file, &1u64.to_ne_bytes());
    }
}

/// Whether a write would not wait.
fn has_room(file: &File) -> bool {
    let mut looked = [PollFd::new(file, PollFlags::OUT)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let found = poll(&mut looked, Some(&at_once));
    found.is_ok() && looked[0].revents().contains(PollFlags::OUT)
}

/// Refuses everything but an eventfd: an anonymous file without a type, that can be
/// written, and that takes eight bytes but not the value 2^64-1.
fn require_eventfd(file: &File) -> io::Result<()> {
    const FILE_TYPE: u32 = 0o170_000;
    let refused = || {
        let what = "a queue's call, kick and error descriptors must be eventfds";
        io::Error::new(io::ErrorKind::InvalidInput, what)
    };
    if fstat(file)?.st_mode & FILE_TYPE != 0 {
        return Err(refused());
    }
    let flags = fcntl_getfl(file)?;
    if !flags.contains(OFlags::NONBLOCK) {
        fcntl_setfl(file, flags | OFlags::NONBLOCK)?;
    }
    match rustix::io::write(file, &u64::MAX.to_ne_bytes()) {
        Err(Errno::INVAL) if has_room(file) => Ok(()),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::mpsc;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::pipe::pipe;
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

    use super::*;

    fn event() -> File {
        File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap())
    }

    /// What the front-end does to its own descriptor, after it was handed over.
    fn waits_again(file: &File) {
        let flags = fcntl_getfl(file).unwrap();
        fcntl_setfl(file, flags - OFlags::NONBLOCK).unwrap();
    }

    /// The result of `act`, which must not wait.
    fn at_once<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(act()));
        receiver
            .recv_timeout(Duration::from_secs(20))
            .unwrap_or_else(|_| panic!("it waits"))
    }

    #[test]
    fn only_eventfds_are_taken() {
        assert!(sender(event()).is_ok());
        let (reader, writer) = pipe().unwrap();
        let clock = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty()).unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let others: [OwnedFd; 5] = [reader, writer, clock, socket.into(), file.into()];
        for other in others {
            let error = sender(File::from(other)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_full_eventfd_does_not_hold_up_a_signal() {
        let call = sender(event()).unwrap();
        waits_again(&call);
        rustix::io::write(&call, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        at_once(move || send(&call));
    }

    #[test]
    fn an_empty_eventfd_does_not_hold_up_a_look() {
        let poll = Arc::new(Poll::new().unwrap());
        let kick = Notifier::new(event(), &poll, 1).unwrap();
        waits_again(&kick.file);
        let (kick, found) = at_once(move || {
            let found = kick.take();
            (kick, found)
        });
        assert_eq!(found, Kick::Nothing);
        rustix::io::write(&kick.file, &1u64.to_ne_bytes()).unwrap();
        assert_eq!(at_once(move || kick.take()), Kick::Notified);
    }
}
