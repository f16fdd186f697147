//! [`Tcp`]: all connections and listeners, and what drives them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use smoltcp::time::{Duration, Instant};
use tare_io::{Error, ErrorKind, Result};
use tare_tcp::segment::flags;
use tare_tcp::{Pool, Secret, State};

use super::connection::{CLOSE, Connection, Limit, Role, from_tcp, to_tcp};
use super::limits::{Limits, Orphans};
use super::listener::Listener;
use super::via::Via;
use super::{ConnectionId, Counters, ListenerId};
use crate::flow::{Flow, FlowTable};
use crate::link::{Link, Loopback};
use crate::memory::Memory;
use crate::neighbours::{self, Former, Mac};
use crate::port::Port;
use crate::timers::Timers;
use crate::waiters::Wake;

/// Connections that are kept to answer old segments. More than these are
/// forgotten early, oldest first.
const TIME_WAIT_KEPT: usize = 1024;
/// How soon a link that was full is looked at again. It does not say when it has room, and where
/// all that it took is lost nothing comes to make the stack look.
pub(super) const LINK_LOOK: Duration = Duration::from_millis(1);
/// Most bytes of a connection that wait for more; about what passt reads at once.
const POSTPONED_MAX: usize = 32 << 10;
/// First port that is given for port 0, and for outgoing connections (RFC 6335, 6).
pub(super) const EPHEMERAL: u16 = 49152;

/// A received segment with what surrounds it.
pub(super) struct Arrival<'a> {
    pub(super) flow: Flow,
    pub(super) segment: tare_tcp::Segment<'a>,
    /// Hardware address of the host that sent the frame.
    pub(super) neighbor: [u8; 6],
}

impl Arrival<'_> {
    /// Whether this asks for a new connection.
    #[inline]
    pub(super) fn opens(&self) -> bool {
        self.segment.flags & (flags::SYN | flags::ACK | flags::RST | flags::FIN) == flags::SYN
    }
}

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
    /// Connections whose output waits for more.
    postponed: Vec<ConnectionId>,
    time_wait: VecDeque<u32>,
    pub(super) memory: Memory,
    pub(super) limits: Limits,
    pub(super) orphans: Orphans,
    pub(super) secret: Secret,
    /// What all buffers take together.
    pub(super) pool: Pool,
    /// Acknowledgements may bring cookies back until then.
    pub(super) cookies_until: Instant,
    pub(super) next_port: u16,
    /// By which peers are divided among listeners of one port, so that none can choose its own.
    pub(super) division: u32,
}

/// What became of a segment that no connection takes.
pub(super) enum Opened {
    Connection(u32),
    /// Dropped or answered; nothing is left to do.
    Done,
    NoListener,
}

impl<W: Wake> Tcp<W> {
    pub(super) fn new(seed: u64, secret: [u8; 16], memory: Memory) -> Self {
        Self {
            table: FlowTable::new(seed),
            connections: Vec::new(),
            free: Vec::new(),
            listeners: Vec::new(),
            timers: Timers::new(),
            unresolved: Vec::new(),
            stalled: Vec::new(),
            postponed: Vec::new(),
            time_wait: VecDeque::new(),
            memory,
            limits: Limits::within(memory),
            orphans: Orphans::default(),
            secret: Secret::new(secret),
            pool: super::limits::pool(memory),
            cookies_until: Instant::from_micros(i64::MIN),
            next_port: EPHEMERAL | (seed >> 48) as u16,
            division: seed as u32,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// Takes a segment: to its connection, to a listener, or to neither, which is
    /// answered by a reset.
    pub(super) fn ingress<L: Link>(
        &mut self,
        port: &mut Port<L>,
        via: Via,
        arrival: &Arrival<'_>,
        counters: &mut Counters,
        now: Instant,
    ) {
        let id = match self.find(arrival, via) {
            Some(id) => id,
            None => match self.ingress_new(port, via, arrival, counters, now) {
                Some(id) => id,
                None => return,
            },
        };
        if let Some(connection) = &mut self.connections[id as usize] {
            if connection.neighbor != Some(arrival.neighbor) {
                follow_neighbor(port, connection, arrival.neighbor);
            }
            connection.tcp.on_segment(to_tcp(now), &arrival.segment);
            self.drive(port, id, counters, now);
        }
    }

    fn ingress_new<L: Link>(
        &mut self,
        port: &mut Port<L>,
        via: Via,
        arrival: &Arrival<'_>,
        counters: &mut Counters,
        now: Instant,
    ) -> Option<u32> {
        if !port.has_address(arrival.flow.local.ip()) {
            counters.martian += u64::from(via == Via::Wire);
            return None;
        }
        if arrival.segment.flags & flags::RST != 0 {
            return None;
        }
        match self.open(port, via, arrival, counters, now) {
            Opened::Connection(id) => Some(id),
            Opened::Done => None,
            Opened::NoListener => {
                if let Some(reset) = arrival.segment.reset()
                    && port.link.send_ready()
                {
                    port.send_segment(arrival.neighbor, &arrival.flow, &reset);
                }
                None
            }
        }
    }

    fn find(&mut self, arrival: &Arrival<'_>, via: Via) -> Option<u32> {
        let id = self.table.get(&arrival.flow)?;
        let connection = self.connections[id as usize].as_ref()?;
        if connection.via != via {
            return None;
        }
        // A new connection may reuse the ports of one that is over (RFC 6191).
        let is_over = match connection.tcp.state() {
            State::Closed => true,
            State::TimeWait => arrival.opens() && connection.tcp.may_reopen(&arrival.segment),
            _ => false,
        };
        if !is_over {
            return Some(id);
        }
        if connection.role == Role::Owned {
            // The number stays its owner's, who may still read what came before.
            self.table.remove(&arrival.flow);
        } else {
            self.remove(id);
        }
        None
    }

    /// A neighbour has another hardware address. Its own connections follow, and those of
    /// other networks that went through it if it is a router; other addresses of the station
    /// where it was do not.
    #[cold]
    pub(super) fn move_neighbor<L: Link>(
        &mut self,
        wire: &mut Port<L>,
        address: IpAddr,
        former: Former,
        new: Mac,
    ) {
        let is_router = wire.is_router(address);
        for connection in self.connections.iter_mut().flatten() {
            let remote = connection.flow.remote.ip();
            let is_routed_here = || {
                is_router
                    && remote.is_ipv4() == address.is_ipv4()
                    && former.contains(&connection.neighbor)
                    && !wire.is_on_link(remote)
            };
            let has_neighbor = connection.via == Via::Wire && connection.neighbor.is_some();
            if has_neighbor && (remote == address || is_routed_here()) {
                connection.neighbor = Some(new);
            }
        }
    }

    /// A router cannot forward a segment of `flow` that began at `seq`.
    pub(super) fn on_packet_too_big(&mut self, flow: &Flow, seq: u32, mss: u16, now: Instant) {
        if let Some(id) = self.table.get(flow)
            && let Some(connection) = &mut self.connections[id as usize]
        {
            let seq = tare_tcp::Seq(seq);
            connection.tcp.on_packet_too_big(seq, mss, to_tcp(now));
            // Driven with what waits for the link.
            if !core::mem::replace(&mut connection.is_stalled, true) {
                self.stalled.push(id);
            }
        }
    }

    /// Makes room for one more connection, at the expense of closed ones that
    /// only wait for their peers. `false` if there is none.
    pub(super) fn make_room(&mut self, counters: &mut Counters) -> bool {
        while !self.limits.allow(self.len(), self.memory) {
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

    /// Lets what is queued on a connection wait for more; `false` where it is to go at once,
    /// since it is much, stays in this machine, or there is no memory to remember it.
    pub(super) fn postpone(&mut self, id: ConnectionId) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(id.0 as usize) else {
            return false;
        };
        if connection.is_postponed {
            return connection.tcp.unsent() <= POSTPONED_MAX;
        }
        let waits = connection.via == Via::Wire
            && connection.tcp.unsent() <= POSTPONED_MAX
            && self.postponed.try_reserve(1).is_ok();
        if waits {
            connection.is_postponed = true;
            self.postponed.push(id);
        }
        waits
    }

    #[inline]
    pub(super) fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// These connections, of which some may be closed by now.
    pub(super) fn take_postponed(&mut self) -> Vec<ConnectionId> {
        core::mem::take(&mut self.postponed)
    }

    /// Gives the emptied list back, for its memory.
    pub(super) fn keep_postponed(&mut self, list: Vec<ConnectionId>) {
        self.postponed = list;
    }

    /// What is queued on a connection waits no longer; whether it did. A number may be another
    /// connection's by now.
    pub(super) fn ends_wait(&mut self, id: ConnectionId) -> bool {
        match self.connections.get_mut(id.0 as usize) {
            Some(Some(connection)) => core::mem::take(&mut connection.is_postponed),
            _ => false,
        }
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

    pub(super) fn insert(&mut self, connection: Box<Connection<W>>) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() as u32 - 1
        });
        self.table.insert(&connection.flow, id);
        self.connections[id as usize] = Some(connection);
        id
    }

    fn remove(&mut self, id: u32) {
        let Some(mut connection) = self.connections[id as usize].take() else {
            return;
        };
        // Its addresses and ports may be another connection's by now.
        if self.table.get(&connection.flow) == Some(id) {
            self.table.remove(&connection.flow);
        }
        self.timers.set(id, None);
        self.free.push(id);
        self.orphans.remove(id);
        match connection.role {
            Role::Opening(listener) => {
                if let Some(listener) = &mut self.listeners[listener.0 as usize] {
                    listener.half_open -= 1;
                }
            }
            Role::Queued(listener) => {
                if let Some(listener) = &mut self.listeners[listener.0 as usize] {
                    listener.ready.retain(|other| *other != id);
                }
            }
            Role::Owned | Role::Orphan => {}
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
        let deadline = match connection.neighbor.or_else(|| {
            connection.neighbor = port.resolve(connection.flow.remote.ip(), now);
            connection.neighbor
        }) {
            Some(neighbor) => loop {
                if !port.link.send_ready() {
                    if !core::mem::replace(&mut connection.is_stalled, true) {
                        self.stalled.push(id);
                    }
                    break Some(now + LINK_LOOK);
                }
                match connection.tcp.poll(to_tcp(now)) {
                    Some(segment) => port.send_segment(neighbor, &connection.flow, &segment),
                    None => break connection.tcp.next_deadline().map(from_tcp),
                }
            },
            None => {
                self.unresolved.push(id);
                Some(now + neighbours::RETRY)
            }
        };
        let state = connection.tcp.state();
        connection.note_state(state);
        let deadline = match (deadline, connection.limit) {
            (Some(a), Some((b, _))) => Some(a.min(b)),
            (a, b) => a.or(b.map(|(limit, _)| limit)),
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
                State::Closed => self.remove(id),
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
            listener.half_open -= 1;
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
        } else if connection.tcp.recv_queue() > 0 {
            // The application will not read it: a reset says so (RFC 2525, 2.17).
            connection.tcp.abort();
            if let Some(neighbor) = connection.neighbor
                && let Some(reset) = connection.tcp.poll(to_tcp(now))
            {
                port.send_segment(neighbor, &connection.flow, &reset);
            }
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
            let before = self.timeouts(id);
            self.drive_any(wire, loopback, id, counters, now);
            if self.timeouts(id) > before {
                self.suspect_neighbor(wire, id, now);
            }
        }
        if !self.stalled.is_empty() {
            for id in core::mem::take(&mut self.stalled) {
                if let Some(connection) = &mut self.connections[id as usize] {
                    connection.is_stalled = false;
                }
                self.drive_any(wire, loopback, id, counters, now);
            }
        }
    }

    /// Retransmission timeouts of a connection.
    fn timeouts(&self, id: u32) -> u64 {
        let connection = self.connections[id as usize].as_ref();
        connection.map_or(0, |connection| connection.tcp.statistics().timeouts)
    }

    /// The peer acknowledges nothing. Not for handshakes, with which any host could make this
    /// side ask for hosts.
    #[cold]
    fn suspect_neighbor<L: Link>(&self, wire: &mut Port<L>, id: u32, now: Instant) {
        if let Some(connection) = &self.connections[id as usize]
            && connection.via == Via::Wire
            && !matches!(connection.role, Role::Opening(_))
            && let Some(neighbor) = connection.neighbor
        {
            wire.suspect(connection.flow.remote.ip(), neighbor, now);
        }
    }

    /// Takes note of a deadline; ends a connection whose own it is.
    fn expire(&mut self, id: u32, now: Instant) {
        let Some(connection) = &mut self.connections[id as usize] else {
            return;
        };
        let due = connection.limit.filter(|(deadline, _)| *deadline <= now);
        let Some((_, limit)) = due else {
            return;
        };
        // A slow peer gets all of it (RFC 9293, 3.6); a silent one is given up.
        let end = from_tcp(connection.tcp.stalled_since()) + CLOSE;
        if limit == Limit::Close && end > now {
            connection.limit = Some((end, limit));
            return;
        }
        connection.limit = None;
        match connection.tcp.state() {
            // The peer has all of it and may still be reading (Linux: `tcp_fin_timeout`).
            State::FinWait2 => connection.tcp.forget(),
            _ => connection.tcp.time_out(),
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

    /// Connections of a listener that the application has not accepted.
    pub(super) fn waiting_for(&self, listener: ListenerId) -> Vec<ConnectionId> {
        let is_waiting = |connection: &Connection<W>| matches!(connection.role, Role::Opening(of) | Role::Queued(of) if of == listener);
        let numbered = (0..).zip(&self.connections);
        numbered
            .filter(|(_, slot)| slot.as_deref().is_some_and(is_waiting))
            .map(|(id, _)| ConnectionId(id))
            .collect()
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
    pub(super) fn ephemeral(&mut self, local: IpAddr, remote: SocketAddr) -> Option<Flow> {
        for _ in EPHEMERAL..=u16::MAX {
            self.next_port = self.next_port.checked_add(1).unwrap_or(EPHEMERAL);
            let flow = self.unused(SocketAddr::new(local, self.next_port), remote);
            if flow.is_some() {
                return flow;
            }
        }
        None
    }

    /// The flow between two addresses, if no connection uses it.
    pub(super) fn unused(&self, local: SocketAddr, remote: SocketAddr) -> Option<Flow> {
        let flow = Flow { local, remote };
        self.table.get(&flow).is_none().then_some(flow)
    }
}

/// A segment came from another station than the last one. A peer of another network
/// comes through another router now; one of this network announces that it moves.
#[cold]
fn follow_neighbor<L: Link, W>(port: &Port<L>, connection: &mut Connection<W>, neighbor: [u8; 6]) {
    let is_routed = !port.is_on_link(connection.flow.remote.ip());
    if connection.neighbor.is_none() || is_routed {
        connection.neighbor = Some(neighbor);
    }
}
