//! [`Tcp`]: all connections and listeners, and what drives them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use smoltcp::iface::SocketSet;
use smoltcp::socket::tcp::State;
use smoltcp::time::{Duration, Instant};

use super::connection::{Connection, Limit, RECEIVE_BUFFER, Role, fin_is_acknowledged};
use super::listener::{Listener, overlap};
use super::{ConnectionId, Counters, ListenerId, Stack, Via};
use crate::io::{Error, ErrorKind, IoSlice, Result};
use crate::net::flow::{Flow, FlowTable};
use crate::net::frame::Segment;
use crate::net::link::{Link, Loopback};
use crate::net::port::{Egress, Port};
use crate::net::timers::Timers;
use crate::net::waiters::Wake;

/// A peer that asked for a connection has this long to complete it.
const ACCEPT_HANDSHAKE: Duration = Duration::from_secs(5);
/// How long connecting may take.
const CONNECT_HANDSHAKE: Duration = Duration::from_secs(30);
/// A connection that the application closed is given up this much later.
const CLOSE: Duration = Duration::from_secs(30);
/// Connections that are kept to answer a peer's repeated FIN. More than these
/// are forgotten early, oldest first: they hold their buffers.
const TIME_WAIT_KEPT: usize = 32;
/// First port for outgoing connections (RFC 6335, 6).
const EPHEMERAL: u16 = 49152;

/// A half of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// What the peer sends.
    Read,
    /// What this side sends.
    Write,
}

/// What a thread waits for on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Data, the end, or a loss.
    Readable,
    /// Room for data, a completed handshake, or a loss.
    Writable,
}

pub(super) struct Tcp<W> {
    table: FlowTable,
    connections: Vec<Option<Box<Connection<W>>>>,
    free: Vec<u32>,
    listeners: Vec<Option<Listener<W>>>,
    pub(super) timers: Timers,
    /// Connections whose output waits for a neighbour's hardware address.
    unresolved: Vec<u32>,
    /// Connections whose output waits for room on the link.
    stalled: Vec<u32>,
    time_wait: VecDeque<u32>,
    next_port: u16,
}

impl<W: Wake> Tcp<W> {
    pub(super) fn new(secret: u64) -> Self {
        Self {
            table: FlowTable::new(secret),
            connections: Vec::new(),
            free: Vec::new(),
            listeners: Vec::new(),
            timers: Timers::new(),
            unresolved: Vec::new(),
            stalled: Vec::new(),
            time_wait: VecDeque::new(),
            next_port: EPHEMERAL | (secret >> 48) as u16,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Takes a segment: to its connection, to a listener, or to nobody.
    #[allow(clippy::too_many_arguments)] // split borrows of the stack
    pub(super) fn ingress<L: Link>(
        &mut self,
        port: &mut Port<L>,
        via: Via,
        segment: &Segment,
        frame: &[u8],
        nobody: &mut SocketSet<'_>,
        counters: &mut Counters,
        now: Instant,
    ) {
        let id = match self.find(segment, via) {
            Some(id) => id,
            None if segment.opens() && port.has_address(*segment.flow.local.ip()) => {
                match self.open(segment, via, counters, now) {
                    Opened::Connection(id) => id,
                    Opened::Full => return,
                    Opened::NoListener => return port.ingress(frame, nobody, now),
                }
            }
            None => return port.ingress(frame, nobody, now),
        };
        if let Some(connection) = &mut self.connections[id as usize] {
            port.ingress(frame, &mut connection.set, now);
            self.drive(port, id, counters, now);
        }
    }

    fn find(&mut self, segment: &Segment, via: Via) -> Option<u32> {
        let id = self.table.get(&segment.flow)?;
        let connection = self.connections[id as usize].as_ref()?;
        if connection.via != via {
            return None;
        }
        // A new connection may reuse the ports of one that is over (RFC 9293, 3.6.1).
        if segment.opens() && connection.in_time_wait {
            self.remove(id);
            return None;
        }
        Some(id)
    }

    fn open(
        &mut self,
        segment: &Segment,
        via: Via,
        counters: &mut Counters,
        now: Instant,
    ) -> Opened {
        let is_for = |listener: &Option<Listener<W>>| {
            listener
                .as_ref()
                .is_some_and(|l| l.takes(&segment.flow.local))
        };
        let Some(index) = self.listeners.iter().position(is_for) else {
            return Opened::NoListener;
        };
        let Some(listener) = &mut self.listeners[index] else {
            return Opened::NoListener;
        };
        if listener.ready.len() >= listener.backlog {
            counters.backlog_full += 1;
            return Opened::Full;
        }
        if listener.half_open.len() >= listener.backlog
            && let Some(oldest) = listener.half_open.front().copied()
        {
            counters.half_open_evicted += 1;
            self.remove(oldest);
        }
        let role = Role::Opening(ListenerId(index as u32));
        let Some(mut connection) = Connection::new(segment.flow, via, role) else {
            counters.refused += 1;
            return Opened::Full;
        };
        if connection.socket().listen(segment.flow.local).is_err() {
            return Opened::NoListener;
        }
        connection.limit = Some((now + ACCEPT_HANDSHAKE, Limit::Handshake));
        let id = self.insert(connection);
        if let Some(listener) = &mut self.listeners[index] {
            listener.half_open.push_back(id);
        }
        Opened::Connection(id)
    }

    fn insert(&mut self, connection: Connection<W>) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() as u32 - 1
        });
        self.table.insert(&connection.flow, id);
        self.connections[id as usize] = Some(Box::new(connection));
        id
    }

    fn remove(&mut self, id: u32) {
        let Some(mut connection) = self.connections[id as usize].take() else {
            return;
        };
        self.table.remove(&connection.flow);
        self.timers.set(id, None);
        self.free.push(id);
        if let Role::Opening(listener) | Role::Queued(listener) = connection.role
            && let Some(listener) = &mut self.listeners[listener.0 as usize]
        {
            listener.forget(id);
        }
        connection.readers.wake_all();
        connection.writers.wake_all();
    }

    /// Sends what a connection has to send and follows its state.
    pub(super) fn drive<L: Link>(
        &mut self,
        port: &mut Port<L>,
        id: u32,
        counters: &mut Counters,
        now: Instant,
    ) {
        let Some(connection) = &mut self.connections[id as usize] else {
            return;
        };
        connection.watch_silence();
        let deadline = match port.egress(&mut connection.set, now) {
            Egress::Done(deadline) => deadline,
            Egress::Unresolved(deadline) => {
                self.unresolved.push(id);
                deadline
            }
            Egress::LinkFull => {
                self.stalled.push(id);
                None
            }
        };
        let state = connection.state();
        connection.note_state(state);
        let own = connection.limit.map(|(limit, _)| limit);
        let deadline = match (deadline, own) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.timers.set(id, deadline);
        self.follow(port, id, state, counters, now);
    }

    /// What a new state means for the connection's owner.
    fn follow<L: Link>(
        &mut self,
        port: &mut Port<L>,
        id: u32,
        state: State,
        counters: &mut Counters,
        now: Instant,
    ) {
        let Some(connection) = &mut self.connections[id as usize] else {
            return;
        };
        match connection.role {
            Role::Owned => connection.wake(),
            Role::Opening(listener) => match state {
                State::Listen | State::Closed => self.remove(id),
                State::SynReceived => {}
                _ => {
                    connection.role = Role::Queued(listener);
                    counters.accepted += 1;
                    self.offer(listener, id);
                }
            },
            Role::Queued(_) if state == State::Closed => self.remove(id),
            Role::Queued(_) => {}
            Role::Orphan => self.follow_orphan(port, id, state, now),
        }
    }

    fn offer(&mut self, listener: ListenerId, id: u32) {
        if let Some(listener) = &mut self.listeners[listener.0 as usize] {
            listener.half_open.retain(|other| *other != id);
            listener.ready.push_back(id);
            listener.acceptors.wake_all();
        }
    }

    fn follow_orphan<L: Link>(&mut self, port: &mut Port<L>, id: u32, state: State, now: Instant) {
        let Some(connection) = &mut self.connections[id as usize] else {
            return;
        };
        if state == State::Closed {
            self.remove(id);
        } else if connection.socket().recv_queue() > 0 {
            // Nobody will read it: the peer is told (RFC 2525, 2.17).
            connection.socket().abort();
            let _ = port.egress(&mut connection.set, now);
            self.remove(id);
        } else if state == State::TimeWait && !connection.in_time_wait {
            connection.in_time_wait = true;
            self.time_wait.push_back(id);
            if self.time_wait.len() > TIME_WAIT_KEPT {
                self.forget_oldest_time_wait();
            }
        }
    }

    fn forget_oldest_time_wait(&mut self) {
        if let Some(id) = self.time_wait.pop_front()
            && let Some(connection) = &self.connections[id as usize]
            && connection.in_time_wait
        {
            self.remove(id);
        }
    }

    /// Runs what is due, and what waited for room on the link.
    pub(super) fn run<L: Link>(
        &mut self,
        wire: &mut Port<L>,
        loopback: &mut Port<Loopback>,
        counters: &mut Counters,
        now: Instant,
    ) {
        while let Some(id) = self.timers.take_due(now) {
            self.expire(id, now);
            self.drive_any(wire, loopback, id, counters, now);
        }
        if !self.stalled.is_empty() {
            for id in core::mem::take(&mut self.stalled) {
                self.drive_any(wire, loopback, id, counters, now);
            }
        }
    }

    /// Ends a connection whose own deadline has come.
    fn expire(&mut self, id: u32, now: Instant) {
        let Some(connection) = &mut self.connections[id as usize] else {
            return;
        };
        match connection.limit {
            Some((deadline, _)) if deadline <= now => {
                connection.limit = None;
                connection.timed_out = true;
                connection.socket().abort();
            }
            _ => {}
        }
    }

    fn drive_any<L: Link>(
        &mut self,
        wire: &mut Port<L>,
        loopback: &mut Port<Loopback>,
        id: u32,
        counters: &mut Counters,
        now: Instant,
    ) {
        match self.connections[id as usize].as_ref().map(|c| c.via) {
            Some(Via::Wire) => self.drive(wire, id, counters, now),
            Some(Via::Loopback) => self.drive(loopback, id, counters, now),
            None => {}
        }
    }

    /// A hardware address may have become known.
    pub(super) fn retry_unresolved<L: Link>(
        &mut self,
        wire: &mut Port<L>,
        counters: &mut Counters,
        now: Instant,
    ) {
        if !self.unresolved.is_empty() {
            for id in core::mem::take(&mut self.unresolved) {
                if self.connections[id as usize]
                    .as_ref()
                    .is_some_and(|c| c.via == Via::Wire)
                {
                    self.drive(wire, id, counters, now);
                }
            }
        }
    }

    fn connection(&mut self, id: ConnectionId) -> Result<&mut Connection<W>> {
        match self.connections.get_mut(id.0 as usize) {
            Some(Some(connection)) => Ok(connection),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }

    fn listener(&mut self, id: ListenerId) -> Result<&mut Listener<W>> {
        match self.listeners.get_mut(id.0 as usize) {
            Some(Some(listener)) => Ok(listener),
            _ => Err(Error::new(ErrorKind::InvalidInput, "not listening")),
        }
    }

    /// A local port that no connection to `remote` uses.
    fn ephemeral(&mut self, local: Ipv4Addr, remote: SocketAddrV4) -> Option<Flow> {
        for _ in EPHEMERAL..=u16::MAX {
            self.next_port = self.next_port.checked_add(1).unwrap_or(EPHEMERAL);
            let local = SocketAddrV4::new(local, self.next_port);
            let flow = Flow { local, remote };
            if self.table.get(&flow).is_none() {
                return Some(flow);
            }
        }
        None
    }
}

enum Opened {
    Connection(u32),
    /// Passed over; the peer will ask again.
    Full,
    NoListener,
}

impl<L: Link, W: Wake> Stack<L, W> {
    /// Listens on `local`; at most `backlog` connections wait to be accepted.
    pub fn listen(&mut self, local: SocketAddrV4, backlog: usize) -> Result<ListenerId> {
        if local.port() == 0 {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "port 0 cannot be listened on",
            ));
        }
        let taken = |slot: &Option<Listener<W>>| {
            slot.as_ref()
                .is_some_and(|other| overlap(&other.local, &local))
        };
        if self.tcp.listeners.iter().any(taken) {
            return Err(ErrorKind::AddrInUse.into());
        }
        let listener = Some(Listener::new(local, backlog));
        let index = match self.tcp.listeners.iter().position(Option::is_none) {
            Some(index) => {
                self.tcp.listeners[index] = listener;
                index
            }
            None => {
                self.tcp.listeners.push(listener);
                self.tcp.listeners.len() - 1
            }
        };
        Ok(ListenerId(index as u32))
    }

    /// Stops listening; connections that were not accepted are reset.
    pub fn close_listener(&mut self, id: ListenerId, now: Instant) {
        let Some(listener) = self
            .tcp
            .listeners
            .get_mut(id.0 as usize)
            .and_then(Option::take)
        else {
            return;
        };
        for connection in listener.half_open.into_iter().chain(listener.ready) {
            if let Ok(found) = self.tcp.connection(ConnectionId(connection)) {
                found.role = Role::Orphan;
                found.socket().abort();
                self.drive_connection(ConnectionId(connection), now);
            }
        }
        self.finish(now);
    }

    /// The next open connection, or `WouldBlock`.
    pub fn accept(&mut self, id: ListenerId) -> Result<(ConnectionId, SocketAddrV4)> {
        let next = self.tcp.listener(id)?.ready.pop_front();
        let id = ConnectionId(next.ok_or(ErrorKind::WouldBlock)?);
        let connection = self.tcp.connection(id)?;
        connection.role = Role::Owned;
        Ok((id, connection.flow.remote))
    }

    /// Registers for being woken when there is something to accept.
    pub fn wait_accept(&mut self, id: ListenerId, waiter: W) {
        if let Ok(listener) = self.tcp.listener(id) {
            listener.acceptors.add(waiter);
        }
    }

    /// Takes a registration back.
    pub fn cancel_accept(&mut self, id: ListenerId, waiter: &W) {
        if let Ok(listener) = self.tcp.listener(id) {
            listener.acceptors.remove(waiter);
        }
    }

    /// Begins to connect to `remote`; see [`Stack::connected`].
    pub fn connect(&mut self, remote: SocketAddrV4, now: Instant) -> Result<ConnectionId> {
        if remote.port() == 0 || remote.ip().is_unspecified() || remote.ip().is_multicast() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "nobody can be at that address",
            ));
        }
        let (via, local) = self.route(*remote.ip())?;
        let flow = self
            .tcp
            .ephemeral(local, remote)
            .ok_or(ErrorKind::ResourceBusy)?;
        let mut connection = Connection::new(flow, via, Role::Owned).ok_or(Error::new(
            ErrorKind::ResourceBusy,
            "no memory for a connection",
        ))?;
        let context = match via {
            Via::Wire => self.wire.interface().context(),
            Via::Loopback => self.loopback.interface().context(),
        };
        connection
            .socket()
            .connect(context, remote, flow.local)
            .map_err(|_| ErrorKind::AddrNotAvailable)?;
        connection.limit = Some((now + CONNECT_HANDSHAKE, Limit::Handshake));
        let id = ConnectionId(self.tcp.insert(connection));
        self.drive_connection(id, now);
        self.finish(now);
        Ok(id)
    }

    /// Whether connecting is done; `WouldBlock` while it is not.
    pub fn connected(&mut self, id: ConnectionId) -> Result<()> {
        let connection = self.tcp.connection(id)?;
        match connection.state() {
            State::SynSent | State::SynReceived => Err(ErrorKind::WouldBlock.into()),
            State::Closed if connection.timed_out => Err(ErrorKind::TimedOut.into()),
            State::Closed => Err(ErrorKind::ConnectionRefused.into()),
            _ => Ok(()),
        }
    }

    /// Moves received bytes into `buf`; 0 is the end, `WouldBlock` not yet.
    pub fn read(&mut self, id: ConnectionId, buf: &mut [u8], now: Instant) -> Result<usize> {
        let connection = self.tcp.connection(id)?;
        let queued = connection.socket().recv_queue();
        let n = connection.read(buf)?;
        // Below that the window shrank too little for an update to be due.
        if queued > RECEIVE_BUFFER / 4 {
            self.drive_connection(id, now);
            self.finish(now);
        }
        Ok(n)
    }

    /// Copies received bytes into `buf` and leaves them.
    pub fn peek(&mut self, id: ConnectionId, buf: &mut [u8]) -> Result<usize> {
        self.tcp.connection(id)?.peek(buf)
    }

    /// Queues bytes and sends what may be sent; how many were queued, or
    /// `WouldBlock` when there is no room.
    pub fn write(
        &mut self,
        id: ConnectionId,
        parts: &[IoSlice<'_>],
        now: Instant,
    ) -> Result<usize> {
        let connection = self.tcp.connection(id)?;
        if connection.write_shut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let loss = connection.loss();
        let mut written = 0;
        for part in parts {
            let n = connection.socket().send_slice(part).map_err(|_| loss)?;
            written += n;
            if n < part.len() {
                break;
            }
        }
        if written > 0 {
            self.drive_connection(id, now);
            self.finish(now);
        } else if parts.iter().any(|part| !part.is_empty()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(written)
    }

    /// Ends a half of the connection; what is queued is still sent.
    pub fn shutdown(&mut self, id: ConnectionId, half: Half, now: Instant) -> Result<()> {
        let connection = self.tcp.connection(id)?;
        match half {
            Half::Read => {
                connection.read_shut = true;
                connection.readers.wake_all();
            }
            Half::Write => {
                connection.write_shut = true;
                connection.socket().close();
                if !fin_is_acknowledged(connection.state()) {
                    connection.limit = Some((now + CLOSE, Limit::Close));
                }
                self.drive_connection(id, now);
                self.finish(now);
            }
        }
        Ok(())
    }

    /// Gives the connection up: what is queued is sent, then it ends. What was
    /// received and not read makes it a reset.
    pub fn close(&mut self, id: ConnectionId, now: Instant) {
        let Ok(connection) = self.tcp.connection(id) else {
            return;
        };
        connection.role = Role::Orphan;
        connection.limit = Some((now + CLOSE, Limit::Close));
        match connection.socket().recv_queue() {
            0 => connection.socket().close(),
            _ => connection.socket().abort(),
        }
        self.drive_connection(id, now);
        self.finish(now);
    }

    /// Registers for being woken when the connection can go on.
    pub fn wait(&mut self, id: ConnectionId, interest: Interest, waiter: W) {
        if let Ok(connection) = self.tcp.connection(id) {
            match interest {
                Interest::Readable => connection.readers.add(waiter),
                Interest::Writable => connection.writers.add(waiter),
            }
        }
    }

    /// Takes a registration back.
    pub fn cancel(&mut self, id: ConnectionId, interest: Interest, waiter: &W) {
        if let Ok(connection) = self.tcp.connection(id) {
            match interest {
                Interest::Readable => connection.readers.remove(waiter),
                Interest::Writable => connection.writers.remove(waiter),
            }
        }
    }

    /// Whether small writes wait for acknowledgements (Nagle) or go at once.
    pub fn set_nodelay(&mut self, id: ConnectionId, nodelay: bool) -> Result<()> {
        self.tcp
            .connection(id)?
            .socket()
            .set_nagle_enabled(!nodelay);
        Ok(())
    }

    /// The addresses of a connection.
    pub fn flow(&mut self, id: ConnectionId) -> Result<Flow> {
        Ok(self.tcp.connection(id)?.flow)
    }

    fn drive_connection(&mut self, id: ConnectionId, now: Instant) {
        self.tcp.drive_any(
            &mut self.wire,
            &mut self.loopback,
            id.0,
            &mut self.counters,
            now,
        );
    }

    /// After a call of the application: what went to the loopback arrives in
    /// the caller's context, and the device is told of frames.
    pub(super) fn finish(&mut self, now: Instant) {
        while self.receive_from_loopback(now) {}
        self.wire.link.flush();
    }
}
