//! Where the serial port's output goes: `console.log` and perhaps standard output, or standard
//! error where the guest's streams are ports (`console::ports`).
//!
//! A reader that does not read blocks a vCPU for `TIMEOUT_MS` once; then its output is dropped
//! until it reads again. The log has all of it. A reader that has closed is removed.

use std::io;
use std::io::Write;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::log::SharedLog;
use super::stream::Stream;

/// How long a write waits for a reader that does not read, in ms.
const TIMEOUT_MS: i64 = 250;

/// Output of the serial port.
#[derive(Debug)]
pub struct Output {
    log: SharedLog,
    screen: Option<Screen>,
}

impl Output {
    /// Output to `log`, and to `screen` if there is one.
    pub fn new(log: SharedLog, screen: Option<Screen>) -> Self {
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

/// What a write did with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Taken,
    Dropped,
    Gone,
}

/// A standard output that is written without waiting forever.
#[derive(Debug)]
pub struct Screen {
    stream: Stream,
    /// The reader took nothing the last time.
    stalled: bool,
}

impl Screen {
    /// The stream behind `fd`.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            stream: Stream::output(fd)?,
            stalled: false,
        })
    }

    fn show(&mut self, bytes: &[u8]) -> Shown {
        self.show_with(bytes, Self::wait)
    }

    /// As [`show`](Self::show), with another `wait`, which returns whether the reader takes more.
    fn show_with(&mut self, mut bytes: &[u8], mut wait: impl FnMut(&Self) -> bool) -> Shown {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Shown::Gone,
                Ok(count) => {
                    self.stalled = false;
                    bytes = &bytes[count..];
                }
                Err(Errno::AGAIN) if self.stalled => return Shown::Dropped,
                Err(Errno::AGAIN) => self.stalled = !wait(self),
                Err(_) => return Shown::Gone,
            }
        }
        Shown::Taken
    }

    fn wait(&self) -> bool {
        self.stream.wait_for_room(TIMEOUT_MS)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

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
