//! A standard stream of this process, used without waiting.
//!
//! Others share the descriptions of these streams and must not find them non-blocking, so
//! a pipe or a terminal is opened once more where that is possible.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// Bytes that a pipe certainly takes when poll(2) reports it as writable (`PIPE_BUF`).
const SURE_OF_PIPE: usize = 4096;
/// The same of a terminal, which has room for some (`n_tty_poll` of Linux's drivers/tty/n_tty.c).
const SURE_OF_TERMINAL: usize = 1;

/// How a call avoids waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Its own description is non-blocking.
    NonBlocking,
    /// A flag of each call.
    Socket,
    /// It never waits: a file.
    Never,
    /// Others share its description: poll(2) before each call, which then certainly takes as many
    /// bytes.
    Asked { sure_bytes: usize },
}

impl Way {
    /// Of a description that others have too.
    fn of_shared(kind: FileType) -> Self {
        match kind {
            FileType::Socket => Self::Socket,
            FileType::Fifo => Self::Asked {
                sure_bytes: SURE_OF_PIPE,
            },
            FileType::CharacterDevice => Self::Asked {
                sure_bytes: SURE_OF_TERMINAL,
            },
            _ => Self::Never,
        }
    }
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    way: Way,
}

impl Stream {
    /// What `fd` reads.
    pub fn input(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Self::open(fd, OFlags::RDONLY)
    }

    /// What `fd` writes.
    pub fn output(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Self::open(fd, OFlags::WRONLY)
    }

    fn open(fd: BorrowedFd<'_>, access: OFlags) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
        let own = match kind {
            FileType::Fifo | FileType::CharacterDevice => reopen(fd, access),
            _ => None,
        };
        let way = match own {
            Some(_) => Way::NonBlocking,
            None => Way::of_shared(kind),
        };
        let fd = match own {
            Some(own) => own,
            None => fd.try_clone_to_owned()?,
        };
        Ok(Self { fd, way })
    }

    /// Reads; 0 at the end, `AGAIN` where it would wait.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        loop {
            let read = match self.way {
                Way::Asked { .. } if !self.is_ready(PollFlags::IN) => return Err(Errno::AGAIN),
                Way::Socket => rustix::net::recv(&self.fd, &mut *bytes, RecvFlags::DONTWAIT)
                    .map(|(count, _)| count),
                _ => rustix::io::read(&self.fd, &mut *bytes),
            };
            if read != Err(Errno::INTR) {
                return read;
            }
        }
    }

    /// Writes some; `AGAIN` where it would wait.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        loop {
            let written = match self.way {
                Way::Asked { .. } if !self.is_ready(PollFlags::OUT) => return Err(Errno::AGAIN),
                Way::Asked { sure_bytes } => {
                    rustix::io::write(&self.fd, &bytes[..bytes.len().min(sure_bytes)])
                }
                Way::Socket => {
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    rustix::net::send(&self.fd, bytes, flags)
                }
                Way::NonBlocking | Way::Never => rustix::io::write(&self.fd, bytes),
            };
            if written != Err(Errno::INTR) {
                return written;
            }
        }
    }

    /// Waits until it can be written, for `limit_ms` at most; says whether it can.
    pub(super) fn wait_for_room(&self, limit_ms: i64) -> bool {
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: limit_ms * 1_000_000,
        };
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        !matches!(poll(&mut fds, Some(&limit)), Ok(0))
    }

    /// Ready also when the other end is gone: the call then reports that.
    fn is_ready(&self, wanted: PollFlags) -> bool {
        let mut fds = [PollFd::new(&self.fd, wanted)];
        !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn reopen(fd: BorrowedFd<'_>, access: OFlags) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::unix::net::UnixStream;

    use rustix::fs::fcntl_getfl;
    use rustix::pipe::pipe;

    use super::*;

    #[test]
    fn a_pipe_is_read_to_its_end_and_stays_blocking_for_others() {
        let (reader, writer) = pipe().unwrap();
        let stream = Stream::input(reader.as_fd()).unwrap();
        assert!(!fcntl_getfl(&reader).unwrap().contains(OFlags::NONBLOCK));
        let mut bytes = [0; 8];
        assert_eq!(stream.read(&mut bytes), Err(Errno::AGAIN));
        rustix::io::write(&writer, b"abc").unwrap();
        assert_eq!(stream.read(&mut bytes), Ok(3));
        drop(writer);
        assert_eq!(stream.read(&mut bytes), Ok(0));
    }

    #[test]
    fn a_pipe_that_cannot_be_opened_again_is_asked_first() {
        let (reader, writer) = pipe().unwrap();
        let shared = |fd| Stream {
            fd,
            way: Way::of_shared(FileType::Fifo),
        };
        let (input, output) = (
            shared(reader.try_clone().unwrap()),
            shared(writer.try_clone().unwrap()),
        );
        let mut bytes = [0; 8192];
        assert_eq!(input.read(&mut bytes), Err(Errno::AGAIN));
        assert_eq!(output.write(&bytes), Ok(SURE_OF_PIPE));
        while output.write(&bytes).is_ok() {}
        assert_eq!(output.write(&bytes), Err(Errno::AGAIN));
        assert_eq!(input.read(&mut bytes), Ok(8192));
        drop((reader, input));
        assert_eq!(output.write(&bytes), Err(Errno::PIPE));
    }

    #[test]
    fn a_terminal_of_others_takes_a_byte_at_a_time() {
        let device = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .unwrap();
        let output = Stream {
            fd: device.into(),
            way: Way::of_shared(FileType::CharacterDevice),
        };
        assert_eq!(output.write(&[b'x'; 4096]), Ok(1));
    }

    #[test]
    fn a_file_keeps_its_position_and_a_socket_its_flags() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before").unwrap();
        let output = Stream::output(file.as_fd()).unwrap();
        assert_eq!(output.write(b", after"), Ok(7));
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before, after");
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stream = Stream::input(ours.as_fd()).unwrap();
        let mut bytes = [0; 4];
        assert_eq!(stream.read(&mut bytes), Err(Errno::AGAIN));
        theirs.write_all(b"x").unwrap();
        assert_eq!(stream.read(&mut bytes), Ok(1));
        while stream.write(&[0; 4096]).is_ok() {}
        assert_eq!(stream.write(b"x"), Err(Errno::AGAIN));
        assert!(!fcntl_getfl(&ours).unwrap().contains(OFlags::NONBLOCK));
    }
}
