//! Where the console's output goes: `console.log` and perhaps standard output.
//!
//! A reader of standard output that does not read holds a vCPU for
//! `TIMEOUT_MS` once; then output to it is dropped until it takes some again.
//! The log has everything. A closed reader is forgotten.

use std::io;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use tare_control::console_log::ConsoleLog;

/// How long a write waits for a reader that does not read, in ms.
const TIMEOUT_MS: i64 = 250;

/// Output of the serial port.
#[derive(Debug)]
pub struct Output {
    log: ConsoleLog,
    screen: Option<Screen>,
}

impl Output {
    /// Output to `log`, and to `screen` if there is one.
    pub fn new(log: ConsoleLog, screen: Option<Screen>) -> Self {
        Self { log, screen }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(screen) = &mut self.screen
            && screen.show(bytes) == Shown::Gone
        {
            self.screen = None;
        }
        self.log.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What became of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Taken,
    Dropped,
    Gone,
}

/// A standard output that is written without waiting forever.
#[derive(Debug)]
pub struct Screen {
    fd: OwnedFd,
    is_socket: bool,
    /// The reader did not read the last time.
    stalled: bool,
}

impl Screen {
    /// The stream behind `fd`, with its own description where that is
    /// possible: others share `fd`'s and must not find it non-blocking.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
        let own = match kind {
            FileType::Fifo | FileType::CharacterDevice => reopen(fd),
            _ => None,
        };
        let fd = match own {
            Some(fd) => fd,
            None => fd.try_clone_to_owned()?,
        };
        Ok(Self {
            fd,
            is_socket: kind == FileType::Socket,
            stalled: false,
        })
    }

    fn show(&mut self, bytes: &[u8]) -> Shown {
        self.show_with(bytes, Self::wait)
    }

    /// The same with another `wait`, which returns whether the reader takes more.
    fn show_with(&mut self, mut bytes: &[u8], mut wait: impl FnMut(&Self) -> bool) -> Shown {
        while !bytes.is_empty() {
            match self.write_some(bytes) {
                Ok(0) => return Shown::Gone,
                Ok(count) => {
                    self.stalled = false;
                    bytes = &bytes[count..];
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.stalled => return Shown::Dropped,
                Err(Errno::AGAIN) => self.stalled = !wait(self),
                Err(_) => return Shown::Gone,
            }
        }
        Shown::Taken
    }

    fn write_some(&self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.is_socket {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            rustix::net::send(&self.fd, bytes, flags)
        } else {
            rustix::io::write(&self.fd, bytes)
        }
    }

    fn wait(&self) -> bool {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: TIMEOUT_MS * 1_000_000,
        };
        let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
        !matches!(poll(&mut fds, Some(&timeout)), Ok(0))
    }
}

fn reopen(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd as _;
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rustix::pipe::pipe;

    use super::*;

    #[test]
    fn a_reader_that_does_not_read_costs_one_wait() {
        let (_reader, writer) = pipe().unwrap();
        let mut screen = Screen::new(writer.as_fd()).unwrap();
        let mut waits = 0;
        let chunk = [b'x'; 4096];
        let dropped = (0..100).filter(|_| {
            let shown = screen.show_with(&chunk, |screen| {
                waits += 1;
                screen.wait()
            });
            shown == Shown::Dropped
        });
        assert!(dropped.count() > 50);
        assert_eq!(waits, 1);
    }

    #[test]
    fn output_goes_on_when_the_reader_reads_again() {
        let (reader, writer) = pipe().unwrap();
        let mut screen = Screen::new(writer.as_fd()).unwrap();
        while screen.show(&[b'x'; 4096]) == Shown::Taken {}
        rustix::io::read(&reader, &mut [0; 8192][..]).unwrap();
        assert_eq!(screen.show(b"more"), Shown::Taken);
    }

    #[test]
    fn a_closed_reader_is_noticed() {
        let (reader, writer) = pipe().unwrap();
        let mut screen = Screen::new(writer.as_fd()).unwrap();
        drop(reader);
        assert_eq!(screen.show(b"x"), Shown::Gone);
    }
}
