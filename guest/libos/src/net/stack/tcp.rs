//! [`Tcp`]: all connections and listeners, and what drives them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use smoltcp::iface::SocketSet;
use smoltcp::socket::tcp::State;
use smoltcp::time::{Duration, Instant};

use super::connection::{Connection, Limit, Role};
use super::limits::{Limits, Orphans};
use super::listener::Listener;
use super::{ConnectionId, Counters, ListenerId, Via};
use crate::io::{Error, ErrorKind, Result};
use crate::net::flow::{Flow, FlowTable};
use crate::net::frame::Segment;
use crate::net::link::{Link, Loopback};
use crate::net::port::{Egress, Port};
use crate::net::timers::Timers;
use crate::net::waiters::Wake;

/// A peer that asked for a connection has this long to complete it.
const ACCEPT_HANDSHAKE: Duration = Duration::from_secs(5);
/// A half-open connection keeps its place for the rest of its time less this, also
/// when the queue is full: a peer with a longer round trip loses it to a newer one.
const HALF_OPEN_GUARANTEED: Duration = Duration::from_secs(4);
/// Connections that are kept to answer a peer's repeated FIN. More than these
/// are forgotten early, oldest first: they hold their buffers.
const TIME_WAIT_KEPT: usize = 32;
/// First port for outgoing connections (RFC 6335, 6).
const EPHEMERAL: u16 = 49152;

pub(super) struct Tcp<W> {
    table: FlowTable,
    connections: Vec<Option<Box<Connection<W>>>>,
    free: Vec<u32>,
    pub(super) listeners: Vec<Option<Listener<W>>>,
    pub(super) timers: Timers,
    /// Connections whose output waits for a neighbour's hardware address.
    unresolved: Vec<u32>,
    /// Connections whose output waits for room on the link.
    stalled: Vec<u32>,
    time_wait: VecDeque<u32>,
    pub(super) limits: Limits,
    pub(super) orphans: Orphans,
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
            limits: Limits::for_heap(),
            orphans: Orphans::default(),
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
        let mut evicted = None;
        if listener.half_open.len() >= listener.backlog {
            let Some(oldest) = listener.half_open.front().copied() else {
                return Opened::Full;
            };
            if !self.is_overdue(oldest, now) {
                counters.backlog_full += 1;
                return Opened::Full;
            }
            counters.half_open_evicted += 1;
            evicted = Some(oldest);
        }
        if let Some(oldest) = evicted {
            self.remove(oldest);
        }
        if !self.make_room(counters) {
            counters.refused += 1;
            return Opened::Full;
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

    /// Whether a half-open connection has been waiting so long that a newer one
    /// may take its place.
    fn is_overdue(&self, id: u32, now: Instant) -> bool {
        let connection = self.connections[id as usize].as_ref();
        let limit = connection.and_then(|connection| connection.limit);
        limit.is_none_or(|(deadline, _)| deadline - HALF_OPEN_GUARANTEED <= now)
    }

    /// Makes room for one more connection, at the expense of closed ones that
    /// only wait for their peers. `false` if there is none.
    pub(super) fn make_room(&mut self, counters: &mut Counters) -> bool {
        while !self.limits.allow(self.table.len()) {
            if !self.forget_oldest_orphan() {
                return false;
            }
            counters.orphans_evicted += 1;
        }
        let one_more = [
            self.connections.try_reserve(1).is_ok(),
            self.unresolved.try_reserve(1).is_ok(),
            self.stalled.try_reserve(1).is_ok(),
            self.table.try_reserve(1).is_ok(),
            self.timers.try_reserve(self.connections.len() + 1).is_ok(),
        ];
        one_more.iter().all(|reserved| *reserved)
    }

    /// The application has closed a connection. Beyond the limit the oldest one
    /// closed is forgotten: what its peer still sends is answered with a reset.
    pub(super) fn note_orphan(&mut self, id: u32, counters: &mut Counters) {
        self.orphans.add(id);
        while self.orphans.len() > self.limits.orphans && self.forget_oldest_orphan() {
            counters.orphans_evicted += 1;
        }
    }

    fn forget_oldest_orphan(&mut self) -> bool {
        let Some(id) = self.orphans.oldest() else {
            return false;
        };
        self.remove(id);
        true
    }

    pub(super) fn insert(&mut self, connection: Connection<W>) -> u32 {
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
        self.orphans.remove(id);
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
        connection.note_acknowledgement(deadline);
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
            // It will never be read: reset the peer (RFC 2525, 2.17).
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

    /// Takes note of a deadline; ends a connection whose own it is.
    fn expire(&mut self, id: u32, now: Instant) {
        let Some(connection) = &mut self.connections[id as usize] else {
            return;
        };
        connection.acknowledgements.note_deadline();
        match connection.limit {
            Some((deadline, _)) if deadline <= now => {
                connection.limit = None;
                connection.timed_out = true;
                connection.socket().abort();
            }
            _ => {}
        }
    }

    pub(super) fn drive_any<L: Link>(
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

    pub(super) fn connection(&mut self, id: ConnectionId) -> Result<&mut Connection<W>> {
        match self.connections.get_mut(id.0 as usize) {
            Some(Some(connection)) => Ok(connection),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }

    pub(super) fn listener(&mut self, id: ListenerId) -> Result<&mut Listener<W>> {
        match self.listeners.get_mut(id.0 as usize) {
            Some(Some(listener)) => Ok(listener),
            _ => Err(Error::new(ErrorKind::InvalidInput, "not listening")),
        }
    }

    /// A local port that no connection to `remote` uses.
    pub(super) fn ephemeral(&mut self, local: Ipv4Addr, remote: SocketAddrV4) -> Option<Flow> {
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
