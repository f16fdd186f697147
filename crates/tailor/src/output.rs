//! What other parties' programs print: lines without an end cost no memory, and who prints nothing
//! holds nothing up.

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Longest line, bytes; what is beyond is dropped. A linker's command line has less.
const LINE_BYTES: usize = 64 << 10;

/// How often to ask whether a program that prints nothing may go on.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// An output whose reads fail once its program shall not go on.
pub(crate) struct Watched<'a, R> {
    output: R,
    goes_on: &'a dyn Fn() -> bool,
}

impl<'a, R> Watched<'a, R> {
    pub(crate) fn new(output: R, goes_on: &'a dyn Fn() -> bool) -> Self {
        Self { output, goes_on }
    }
}

impl<R: Read + AsFd> Read for Watched<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if !(self.goes_on)() {
                return Err(io::Error::other("interrupted"));
            }
            let mut output = [PollFd::new(&self.output, PollFlags::IN)];
            match poll(&mut output, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return self.output.read(bytes),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Lines of an output, to its end.
pub(crate) struct Lines<R> {
    output: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(output: R) -> Self {
        Self {
            output: BufReader::new(output),
            line: Vec::new(),
        }
    }

    /// The next one, without its end.
    pub(crate) fn next_line(&mut self) -> Option<&[u8]> {
        self.line.clear();
        let mut limited = self.output.by_ref().take(LINE_BYTES as u64);
        match limited.read_until(b'\n', &mut self.line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return None,
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else {
            // An error is that of the next line.
            let _ = self.output.skip_until(b'\n');
        }
        Some(&self.line)
    }
}

/// The first `most` bytes of an output, which is read to its end: who writes it is not held up.
pub(crate) fn beginning(mut output: impl Read, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = output.by_ref().take(most).read_to_end(&mut bytes);
    let _ = io::copy(&mut output, &mut io::sink());
    bytes
}

/// A line as a message quotes it.
pub(crate) fn excerpt(line: &str) -> String {
    const MOST: usize = 200;
    line.trim().chars().take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(output: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(output);
        let mut all = Vec::new();
        while let Some(line) = lines.next_line() {
            all.push(line.to_vec());
        }
        all
    }

    #[test]
    fn of_a_line_without_an_end_the_beginning_is_kept() {
        assert_eq!(of(b"a\n\nb"), [&b"a"[..], b"", b"b"]);
        let mut endless = vec![b'x'; 3 * LINE_BYTES + 1];
        endless.extend(b"\nnext");
        let lengths: Vec<_> = of(&endless).iter().map(Vec::len).collect();
        assert_eq!(lengths, [LINE_BYTES, 4]);
    }

    #[test]
    fn of_a_long_output_the_beginning_is_kept() {
        let mut output = &b"beginning and end"[..];
        assert_eq!(beginning(&mut output, 9), b"beginning");
        assert!(output.is_empty());
    }
}
