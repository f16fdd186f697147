//! The descriptors by which driver and device wake each other. They are the
//! front-end's as well: nothing done with them may wait.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tare_daemon::poll::{Interest, Poll};

/// What a read of a notifier came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kick {
    /// The driver notified.
    Notified,
    /// Nothing yet.
    Nothing,
    /// It will not notify any more: it is no eventfd, or closed.
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
        do_not_wait(&file)?;
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
        match rustix::io::read(&self.file, &mut count) {
            Ok(8) => Kick::Notified,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Kick::Nothing,
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

/// A descriptor to write interrupts to.
pub(crate) fn sender(file: File) -> io::Result<File> {
    do_not_wait(&file)?;
    Ok(file)
}

/// Sends one; that the other end has not looked for very long is no failure.
pub(crate) fn send(file: &File) {
    let _ = rustix::io::write(file, &1u64.to_ne_bytes());
}

fn do_not_wait(file: &File) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    if !flags.contains(OFlags::NONBLOCK) {
        fcntl_setfl(file, flags | OFlags::NONBLOCK)?;
    }
    Ok(())
}
