//! Whether the front-end's next message is there as a whole.
//!
//! A stream may deliver a message in parts, and the `vhost` crate reads its body by one
//! call: a body in two parts ends the connection, and a header in two parts makes the
//! thread wait. So the message is read when all of it is in the socket's buffer, and a
//! front-end gets a limited time to send the rest, or its first message.
//!
//! Neither epoll nor a UNIX socket can wake a thread for N bytes (`SO_RCVLOWAT` does not
//! bound `poll` there), so the rest of a message is looked for at intervals.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, IoSliceMut, ioctl_fionread};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

/// Request, flags, size of the body (QEMU `docs/interop/vhost-user.rst`).
const HEADER_BYTES: usize = 12;
/// Longest body (the `vhost` crate's `MAX_MSG_SIZE`); it refuses longer ones.
const MAX_BODY_BYTES: u32 = 0x1000;
/// How long a front-end may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For its first message: a connection may be made before the program that gets it starts, as
    /// QEMU does with `-chardev socket,fd=`.
    pub(crate) first: Duration,
    /// For the rest of a message, and to read its replies.
    pub(crate) rest: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(30),
            rest: Duration::from_secs(5),
        }
    }
}

/// How often the rest is looked for at first, and at last.
const INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// What is in the socket's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// A message, or the end of the connection, or what the parser will refuse.
    Whole,
    /// A part of a message, and the connection is open.
    Part,
    /// Descriptors in the middle of a header.
    Broken,
}

/// Looks, without taking anything.
pub(crate) fn look(socket: BorrowedFd<'_>) -> io::Result<Incoming> {
    // Before the bytes are counted: none come after the end.
    let ended = is(socket, PollFlags::RDHUP)?;
    Ok(match look_at_bytes(socket)? {
        Incoming::Part if ended => Incoming::Whole,
        found => found,
    })
}

/// Whether a reply can be sent without a wait: the front-end reads its replies.
pub(crate) fn takes_a_reply(socket: BorrowedFd<'_>) -> io::Result<bool> {
    is(socket, PollFlags::OUT)
}

/// Whether one of `flags` holds now, or the connection has ended.
fn is(socket: BorrowedFd<'_>, flags: PollFlags) -> io::Result<bool> {
    let mut found = [PollFd::from_borrowed_fd(socket, flags)];
    match poll(&mut found, Some(&Timespec::default())) {
        Ok(_) => Ok(!found[0].revents().is_empty()),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn look_at_bytes(socket: BorrowedFd<'_>) -> io::Result<Incoming> {
    let mut header = [0; HEADER_BYTES];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let mut no_descriptors = RecvAncillaryBuffer::default();
    let buffer = &mut [IoSliceMut::new(&mut header)];
    let seen = match recvmsg(socket, buffer, &mut no_descriptors, flags) {
        Ok(seen) => seen.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(Incoming::Part),
        // The read that follows reports it.
        Err(_) => return Ok(Incoming::Whole),
    };
    if seen == 0 {
        return Ok(Incoming::Whole);
    }
    let available = ioctl_fionread(socket)?;
    if available < HEADER_BYTES as u64 {
        return Ok(Incoming::Part);
    }
    let [.., a, b, c, d] = header;
    let body = u32::from_le_bytes([a, b, c, d]);
    let is_whole = body > MAX_BODY_BYTES || available >= HEADER_BYTES as u64 + u64::from(body);
    Ok(if seen < HEADER_BYTES {
        // All is there, but a look ends where descriptors come with the data.
        Incoming::Broken
    } else if is_whole {
        Incoming::Whole
    } else {
        Incoming::Part
    })
}

/// How long the thread has been waiting for a front-end to send the rest.
#[derive(Debug)]
pub(crate) struct Waiting {
    since: Instant,
    timeout: Duration,
}

impl Waiting {
    /// From now on, for so long.
    pub(crate) fn begin(timeout: Duration) -> Self {
        Self {
            since: Instant::now(),
            timeout,
        }
    }

    /// When to look again.
    pub(crate) fn interval(&self) -> Duration {
        interval_after(self.since.elapsed())
    }

    /// The timeout.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What is left of the timeout.
    pub(crate) fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.since.elapsed())
    }
}

/// When to look again after this wait: the longer it lasts, the less often.
fn interval_after(waited: Duration) -> Duration {
    let [first, last] = INTERVALS;
    (waited / 8).clamp(first, last)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn message(body: u32) -> Vec<u8> {
        let mut bytes = vec![1, 0, 0, 0, 1, 0, 0, 0];
        bytes.extend_from_slice(&body.to_le_bytes());
        bytes
    }

    #[test]
    fn a_message_is_whole_when_its_last_byte_is_there() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let look = || look(ours.as_fd()).unwrap();
        assert_eq!(look(), Incoming::Part);
        let mut bytes = message(8);
        bytes.extend_from_slice(&[7; 8]);
        for byte in &bytes[..19] {
            theirs.write_all(&[*byte]).unwrap();
            assert_eq!(look(), Incoming::Part);
        }
        theirs.write_all(&bytes[19..]).unwrap();
        assert_eq!(look(), Incoming::Whole);
        // Nothing was taken.
        let mut there = [0; 20];
        (&ours).read_exact(&mut there).unwrap();
        assert_eq!(there, *bytes);
    }

    #[test]
    fn nothing_is_waited_for_after_the_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&message(8)[..6]).unwrap();
        assert_eq!(look(ours.as_fd()).unwrap(), Incoming::Part);
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(look(ours.as_fd()).unwrap(), Incoming::Whole);
    }

    #[test]
    fn the_rest_is_looked_for_less_and_less_often() {
        let after = |ms| interval_after(Duration::from_millis(ms));
        assert!(after(0) < Duration::from_millis(50));
        assert_eq!(after(400), Duration::from_millis(50));
        assert_eq!(after(4_000), Duration::from_millis(100));
    }

    #[test]
    fn a_reply_needs_room() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(takes_a_reply(ours.as_fd()).unwrap());
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[0; 20]).is_ok() {}
        assert!(!takes_a_reply(ours.as_fd()).unwrap());
        drop(theirs);
        assert!(takes_a_reply(ours.as_fd()).unwrap(), "the write will tell");
    }

    #[test]
    fn the_end_and_an_impossible_length_are_for_the_parser() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&message(u32::MAX)).unwrap();
        assert_eq!(look(ours.as_fd()).unwrap(), Incoming::Whole);
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(look(ours.as_fd()).unwrap(), Incoming::Whole);
    }
}
