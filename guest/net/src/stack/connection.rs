//! [`Connection`]: one TCP connection with its owner, its waiters and the
//! neighbour that it is reached through.

use smoltcp::time::{Duration, Instant};
use tare_io::{Error, ErrorKind, Result};
use tare_tcp::{IoError, Loss, State};

use super::ListenerId;
use super::via::Via;
use crate::flow::Flow;
use crate::readiness::Readiness;
use crate::waiters::{Waiters, Wake};

/// Names a connection. Whoever accepted or connected it owns the number until
/// [`Stack::close`](super::Stack::close).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(super) u32);

/// Who a connection belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The handshake with a listener's peer is going on.
    Opening(ListenerId),
    /// Open, and not accepted yet.
    Queued(ListenerId),
    /// The application's.
    Owned,
    /// Closed by the application; the rest happens by itself.
    Orphan,
}

/// A connection that the application closed is given up when its peer has acknowledged nothing new
/// for this long, and forgotten this long after the peer has acknowledged all.
pub(super) const CLOSE: Duration = Duration::from_secs(30);

/// What a connection's own deadline is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Handshake,
    Close,
}

pub(super) struct Connection<W> {
    pub(super) flow: Flow,
    pub(super) via: Via,
    pub(super) role: Role,
    pub(super) tcp: tare_tcp::Connection,
    /// Hardware address that the peer's segments come from: answers go there.
    pub(super) neighbor: Option<[u8; 6]>,
    pub(super) limit: Option<(Instant, Limit)>,
    pub(super) readers: Waiters<W>,
    pub(super) writers: Waiters<W>,
    pub(super) read_shut: bool,
    pub(super) in_time_wait: bool,
    /// What is queued waits for more.
    pub(super) is_postponed: bool,
    /// Its output waits for room on the link.
    pub(super) is_stalled: bool,
}

impl<W: Wake> Connection<W> {
    pub(super) fn new(flow: Flow, via: Via, role: Role, tcp: tare_tcp::Connection) -> Self {
        Self {
            flow,
            via,
            role,
            tcp,
            neighbor: None,
            limit: None,
            readers: Waiters::default(),
            writers: Waiters::default(),
            read_shut: false,
            in_time_wait: false,
            is_postponed: false,
            is_stalled: false,
        }
    }

    /// Forgets the limit of a handshake that has ended.
    #[inline]
    pub(super) fn note_state(&mut self, state: State) {
        if matches!(self.limit, Some((_, Limit::Handshake))) && !is_opening(state) {
            self.limit = None;
        }
    }

    /// Wakes the threads that could go on now.
    #[inline]
    pub(super) fn wake(&mut self) {
        if self.is_readable() {
            self.readers.wake_all();
        }
        if self.is_writable() {
            self.writers.wake_all();
        }
    }

    #[inline]
    fn is_readable(&self) -> bool {
        self.tcp.recv_queue() > 0 || !self.tcp.may_recv()
    }

    /// Whether half of the send buffer is free, so that few wake-ups fill it.
    #[inline]
    fn is_writable(&self) -> bool {
        let has_room = || self.tcp.send_queue() <= self.tcp.send_capacity() / 2;
        !is_opening(self.tcp.state()) && (!self.tcp.may_send() || has_room())
    }

    pub(super) fn readiness(&self) -> Readiness {
        let state = self.tcp.state();
        let peer_finished = self.read_shut || self.tcp.is_finished() || state == State::Closed;
        Readiness {
            readable: self.read_shut || self.is_readable(),
            writable: self.is_writable(),
            peer_finished,
            closed: peer_finished && !self.tcp.may_send(),
            failed: self.tcp.loss().is_some(),
        }
    }

    /// Why it was lost, or never came to be.
    pub(super) fn failure(&self) -> Option<Error> {
        let kind = match self.tcp.loss()? {
            Loss::TimedOut => ErrorKind::TimedOut,
            Loss::Refused => ErrorKind::ConnectionRefused,
            Loss::Reset => ErrorKind::ConnectionReset,
            Loss::Aborted => ErrorKind::ConnectionAborted,
        };
        Some(kind.into())
    }

    pub(super) fn read(&mut self, buf: &mut [u8], now: Instant) -> Result<usize> {
        if self.read_shut || buf.is_empty() {
            return Ok(0);
        }
        let result = self.tcp.recv(buf, to_tcp(now));
        self.received(result)
    }

    pub(super) fn peek(&mut self, buf: &mut [u8]) -> Result<usize> {
        if self.read_shut || buf.is_empty() {
            return Ok(0);
        }
        let result = self.tcp.peek(buf);
        self.received(result)
    }

    #[inline]
    fn received(&self, result: core::result::Result<usize, IoError>) -> Result<usize> {
        match result {
            Ok(0) if self.tcp.is_finished() => Ok(0),
            Ok(0) if self.tcp.state() == State::Closed => Err(ErrorKind::ConnectionReset.into()),
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            Ok(n) => Ok(n),
            Err(error) => Err(to_kind(error).into()),
        }
    }
}

/// The reason of an I/O error as applications see it.
pub(super) fn to_kind(error: IoError) -> ErrorKind {
    match error {
        IoError::Lost(Loss::TimedOut) => ErrorKind::TimedOut,
        IoError::Lost(Loss::Refused) => ErrorKind::ConnectionRefused,
        IoError::Lost(_) => ErrorKind::ConnectionReset,
        IoError::Closed => ErrorKind::BrokenPipe,
        IoError::NoMemory => ErrorKind::ResourceBusy,
    }
}

/// The stack's time as the protocol's.
#[inline]
pub(super) fn to_tcp(now: Instant) -> tare_tcp::time::Instant {
    tare_tcp::time::Instant::from_micros(now.total_micros() as u64)
}

/// The protocol's time as the stack's.
#[inline]
pub(super) fn from_tcp(at: tare_tcp::time::Instant) -> Instant {
    Instant::from_micros(at.as_micros() as i64)
}

pub(super) fn is_opening(state: State) -> bool {
    matches!(state, State::SynSent | State::SynReceived)
}
