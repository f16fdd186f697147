//! [`Connection`]: one TCP connection with what smoltcp's socket does not know.

use alloc::vec;
use alloc::vec::Vec;

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{RecvError, Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};

use super::acknowledge::{self, Acknowledgements};
use super::{ListenerId, Via};
use crate::io::{ErrorKind, Result};
use crate::net::flow::Flow;
use crate::net::waiters::{Waiters, Wake};

/// Receive buffer of a connection in bytes: its window.
pub(super) const RECEIVE_BUFFER: usize = 4 * 1024;
/// Send buffer of a connection in bytes: most data in flight.
pub(super) const SEND_BUFFER: usize = 16 * 1024;
/// A peer that acknowledges nothing for this long is gone.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

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
    pub(super) set: SocketSet<'static>,
    handle: SocketHandle,
    pub(super) limit: Option<(Instant, Limit)>,
    pub(super) readers: Waiters<W>,
    pub(super) writers: Waiters<W>,
    pub(super) read_shut: bool,
    pub(super) write_shut: bool,
    pub(super) timed_out: bool,
    pub(super) in_time_wait: bool,
    pub(super) acknowledgements: Acknowledgements,
    fin_seen: bool,
}

impl<W: Wake> Connection<W> {
    /// `None` when there is no memory for its buffers.
    pub(super) fn new(flow: Flow, via: Via, role: Role) -> Option<Self> {
        let mut socket = Socket::new(buffer(RECEIVE_BUFFER)?, buffer(SEND_BUFFER)?);
        socket.set_ack_delay(Some(acknowledge::DELAY));
        let mut set = SocketSet::new(vec![]);
        let handle = set.add(socket);
        Some(Self {
            flow,
            via,
            role,
            set,
            handle,
            limit: None,
            readers: Waiters::default(),
            writers: Waiters::default(),
            read_shut: false,
            write_shut: false,
            timed_out: false,
            in_time_wait: false,
            acknowledgements: Acknowledgements::default(),
            fin_seen: false,
        })
    }

    #[inline]
    pub(super) fn socket(&mut self) -> &mut Socket<'static> {
        self.set.get_mut(self.handle)
    }

    #[inline]
    pub(super) fn state(&self) -> State {
        self.set.get::<Socket<'_>>(self.handle).state()
    }

    /// A peer that is silent while something is to be acknowledged is given up
    /// some time later; one that is silent otherwise never, and costs no timer.
    pub(super) fn watch_silence(&mut self) {
        let socket = self.socket();
        let limit = (socket.send_queue() > 0).then_some(UNACKNOWLEDGED);
        if socket.timeout() != limit {
            socket.set_timeout(limit);
        }
    }

    /// After what was to be sent is sent: whether there is an acknowledgement
    /// that waits for `deadline`, and how long the next one will.
    pub(super) fn note_acknowledgement(&mut self, deadline: Option<Instant>) {
        let socket = self.set.get::<Socket<'_>>(self.handle);
        // An open connection with nothing to send has no other deadline.
        let waits = socket.state() == State::Established && socket.send_queue() == 0;
        self.acknowledgements.note_owed(deadline.is_some() && waits);
        let delay = Some(self.acknowledgements.delay());
        if socket.ack_delay() != delay {
            self.socket().set_ack_delay(delay);
        }
    }

    /// Forgets limits that no longer apply and remembers what smoltcp forgets.
    pub(super) fn note_state(&mut self, state: State) {
        self.fin_seen |= matches!(
            state,
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait
        );
        match self.limit {
            Some((_, Limit::Handshake)) if is_open_or_closing(state) => self.limit = None,
            Some((_, Limit::Close)) if self.role == Role::Owned && fin_is_acknowledged(state) => {
                self.limit = None;
            }
            _ => {}
        }
    }

    /// Wakes the threads that could go on now.
    pub(super) fn wake(&mut self) {
        let socket = self.set.get::<Socket<'_>>(self.handle);
        if socket.recv_queue() > 0 || !socket.may_recv() {
            self.readers.wake_all();
        }
        let free = socket.send_capacity() - socket.send_queue();
        let is_opening = matches!(socket.state(), State::SynSent | State::SynReceived);
        if !is_opening && (!socket.may_send() || free >= socket.send_capacity() / 2) {
            self.writers.wake_all();
        }
    }

    pub(super) fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if self.read_shut || buf.is_empty() {
            return Ok(0);
        }
        match self.socket().recv_slice(buf) {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            Ok(n) => Ok(n),
            Err(error) => self.at_end(error),
        }
    }

    pub(super) fn peek(&mut self, buf: &mut [u8]) -> Result<usize> {
        if self.read_shut || buf.is_empty() {
            return Ok(0);
        }
        match self.socket().peek_slice(buf) {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            Ok(n) => Ok(n),
            Err(error) => self.at_end(error),
        }
    }

    fn at_end(&self, error: RecvError) -> Result<usize> {
        match error {
            RecvError::Finished => Ok(0),
            RecvError::InvalidState if self.fin_seen => Ok(0),
            RecvError::InvalidState => Err(self.loss().into()),
        }
    }

    /// Why a connection is not there any more.
    pub(super) fn loss(&self) -> ErrorKind {
        if self.timed_out {
            ErrorKind::TimedOut
        } else {
            ErrorKind::ConnectionReset
        }
    }
}

fn buffer(len: usize) -> Option<SocketBuffer<'static>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).ok()?;
    bytes.resize(len, 0);
    Some(SocketBuffer::new(bytes))
}

fn is_open_or_closing(state: State) -> bool {
    !matches!(state, State::Listen | State::SynSent | State::SynReceived)
}

pub(super) fn fin_is_acknowledged(state: State) -> bool {
    matches!(state, State::FinWait2 | State::TimeWait | State::Closed)
}
