//! Notices that a directory's server has ended while its machine runs: calls on the directory would wait
//! in the guest forever.
//!
//! The sockets are QEMU's, of which this process has copies: a server that ends closes its end of one,
//! and QEMU's own end cannot close while the copy is open.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use tare_host::child::copy;

/// A thread that waits for the end of any server.
#[derive(Debug)]
pub(crate) struct VolumeWatch {
    /// Closed to end the thread.
    stop: OwnedFd,
    /// Whether a server has ended.
    thread: JoinHandle<bool>,
}

impl VolumeWatch {
    /// Calls `ended` when the other end of one of these sockets closes; `None` without sockets.
    pub(crate) fn start(
        sockets: &[RawFd],
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Option<Self>> {
        if sockets.is_empty() {
            return Ok(None);
        }
        let copies = sockets.iter().map(|number| copy(*number));
        let copies = copies.collect::<Result<Vec<OwnedFd>, _>>()?;
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let thread = thread::Builder::new().name("volumes".to_owned());
        let thread = thread.spawn(move || {
            let has_ended = wait(&stopped, &copies);
            if has_ended {
                ended();
            }
            has_ended
        })?;
        Ok(Some(Self { stop, thread }))
    }

    /// Whether a server ended until now.
    pub(crate) fn stop(self) -> bool {
        drop(self.stop);
        self.thread.join().unwrap_or(false)
    }
}

/// Waits for an end; whether it is that of a server.
fn wait(stopped: &OwnedFd, sockets: &[OwnedFd]) -> bool {
    // Without events requested, poll reports the end alone.
    let none = |fd| PollFd::from_borrowed_fd(fd, PollFlags::empty());
    let mut fds = vec![none(stopped.as_fd())];
    fds.extend(sockets.iter().map(|socket| none(socket.as_fd())));
    match retry_on_intr(|| poll(&mut fds, None)) {
        Ok(_) => fds[0].revents().is_empty(),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_end_of_a_server_is_noticed_and_that_of_the_machine_is_none() {
        let (one, ones) = UnixStream::pair().unwrap();
        let (other, others) = UnixStream::pair().unwrap();
        let sockets = [one.as_raw_fd(), other.as_raw_fd()];
        let (said, heard) = mpsc::channel();
        let watch = VolumeWatch::start(&sockets, move || said.send(()).unwrap());
        let watch = watch.unwrap().unwrap();
        drop(others);
        heard.recv().unwrap();
        assert!(watch.stop());
        let watch = VolumeWatch::start(&[one.as_raw_fd()], || ()).unwrap();
        assert!(!watch.unwrap().stop(), "both ends are open");
        assert!(VolumeWatch::start(&[], || ()).unwrap().is_none());
        drop((one, ones, other));
    }
}
