//! One client: bytes arrive, requests are answered in order, answers go out as fast as the client
//! takes them. While an answer waits, no more is read, so a client that never reads costs no
//! memory.

use std::io;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::request::{MAX_BODY, MAX_HEAD, parse};
use super::response::{Connection as After, Part};
use super::{Method, Response, Routes};
use crate::poll::Interest;

const CHUNK: usize = 1024;
/// Reads from one client before others, signals and events have their turn.
const MOST_READS: usize = 2;

/// Whether a client stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    Leaves,
}

/// One client.
pub(super) struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    after: After,
    answered: bool,
}

impl Connection {
    /// A client that was accepted.
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            after: After::Keep,
            answered: false,
        })
    }

    /// Whether it is between requests: the last one was answered, and the next has not begun.
    pub(super) fn is_idle(&self) -> bool {
        self.answered && self.input.is_empty() && self.output.is_empty()
    }

    /// What it waits for.
    pub(super) fn interest(&self) -> Interest {
        let writable = self.sent < self.output.len();
        Interest {
            readable: !writable,
            writable,
        }
    }

    /// Works as far as possible without waiting.
    pub(super) fn advance(&mut self, routes: &mut impl Routes) -> Fate {
        match self.try_advance(routes) {
            Ok(fate) => fate,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Fate::Stays,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Fate::Stays,
            Err(_) => Fate::Leaves,
        }
    }

    fn try_advance(&mut self, routes: &mut impl Routes) -> io::Result<Fate> {
        let mut reads = 0;
        loop {
            self.send()?;
            if self.after == After::Close {
                return Ok(Fate::Leaves);
            }
            if self.answer(routes) {
                continue;
            }
            // No whole request is left here; what the socket has makes it ready again.
            if reads == MOST_READS {
                return Ok(Fate::Stays);
            }
            reads += 1;
            if self.receive()? == 0 {
                return Ok(Fate::Leaves);
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => self.sent += count,
            }
        }
        // An idle client keeps no memory.
        self.output = Vec::new();
        self.sent = 0;
        Ok(())
    }

    /// Answers the first complete request; `false` if there is none.
    fn answer(&mut self, routes: &mut impl Routes) -> bool {
        let length = match parse(&self.input) {
            Ok(None) => return false,
            Ok(Some(request)) => {
                let response = routes.answer(&request);
                let part = match request.method {
                    Method::Head => Part::Head,
                    _ => Part::Whole,
                };
                if !request.keep_alive {
                    self.after = After::Close;
                }
                self.output = response.bytes(part, self.after);
                request.length
            }
            Err(rejected) => {
                self.after = After::Close;
                self.output = Response::from(rejected).bytes(Part::Whole, After::Close);
                self.input.len()
            }
        };
        self.answered = true;
        self.input.drain(..length);
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        true
    }

    fn receive(&mut self) -> io::Result<usize> {
        debug_assert!(self.input.len() < MAX_HEAD + MAX_BODY);
        let mut chunk = [0; CHUNK];
        let count = self.stream.read(&mut chunk)?;
        self.input.extend_from_slice(&chunk[..count]);
        Ok(count)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
