//! One non-blocking connection and the request that it carries.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::exchange::Exchange;
use super::request::Failure;
use super::response::{Answer, Response, Reuse};

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// Index of the request that it carries.
    pub(crate) request: Option<usize>,
    /// Bytes of the request that are sent.
    sent: usize,
    response: Response,
    /// It has carried an answer before.
    used: bool,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// More must come.
    Waiting,
    /// The request is answered.
    Answered(Reuse),
    /// The request failed; the connection is of no further use.
    Failed(Failure),
    /// The server closed a kept connection before it took the request, which
    /// any client would send again.
    Stale,
}

impl Connection {
    /// Begins to connect.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            request: None,
            sent: 0,
            response: Response::default(),
            used: false,
        })
    }

    /// Gives it request number `index` to carry.
    pub(crate) fn carry(&mut self, index: usize) {
        self.request = Some(index);
        self.sent = 0;
        self.response.clear();
    }

    /// Whether it was opened for the request that it carries.
    pub(crate) fn is_new(&self) -> bool {
        !self.used
    }

    /// What to poll it for.
    pub(crate) fn interest(&self, carried: Option<&Exchange>) -> PollFlags {
        match carried {
            Some(exchange) if self.sent < exchange.wire.len() => PollFlags::OUT,
            _ => PollFlags::IN,
        }
    }

    /// Does what can be done without waiting.
    pub(crate) fn advance(&mut self, exchange: &Exchange) -> Turn {
        let request = &exchange.wire;
        if self.sent < request.len() {
            // Its answer makes the connection readable: to look now would be a call in vain.
            return match self.send(request) {
                Ok(()) => Turn::Waiting,
                Err(error) => self.lost(&error),
            };
        }
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return self.lost(&ErrorKind::UnexpectedEof.into()),
                Ok(count) => match self.response.push(&chunk[..count], &exchange.answer) {
                    Ok(Answer::Partial) => {}
                    Ok(Answer::Right(reuse)) => {
                        self.request = None;
                        self.used = true;
                        return Turn::Answered(reuse);
                    }
                    Err(failure) => return Turn::Failed(failure),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Turn::Waiting,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.lost(&error),
            }
        }
    }

    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        while self.sent < request.len() {
            match self.stream.write(&request[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                // Linux says ENOTCONN to a write while it still connects only
                // before connect(); a connecting socket says EAGAIN.
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn lost(&self, error: &io::Error) -> Turn {
        if self.used && self.response.is_empty() {
            return Turn::Stale;
        }
        let connecting = self.sent == 0 && !self.used && error.kind() != ErrorKind::UnexpectedEof;
        Turn::Failed(if connecting {
            Failure::Connect
        } else {
            Failure::Closed
        })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
