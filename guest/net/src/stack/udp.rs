//! UDP sockets: bounded queues of datagrams. What cannot be sent before a
//! neighbour's hardware address is known waits a short time.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use smoltcp::time::Instant;
use tare_io::{Error, ErrorKind, Result};

use super::Seeds;
use super::tcp::{EPHEMERAL, LINK_LOOK};
use crate::binding::Binding;
use crate::flow::Flow;
use crate::link::Link;
use crate::memory::Memory;
use crate::neighbours;
use crate::port::Port;
use crate::random::{Random, Use};
use crate::waiters::{Waiters, Wake};

/// Datagrams and bytes that a socket keeps until they are read; more are lost.
const RECEIVE_DATAGRAMS: usize = 256;
const RECEIVE_BYTES: usize = 128 * 1024;
/// Datagrams of a socket that wait for hardware addresses, and their bytes: the longest
/// has room (Linux: `unres_qlen_bytes`).
const UNRESOLVED: usize = 16;
const UNRESOLVED_BYTES: usize = 64 * 1024;
/// Requests for a hardware address before a datagram is lost.
const REQUESTS: u32 = 3;

/// Names a UDP socket until it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramId(pub(super) u32);

pub(super) struct Message {
    pub(super) peer: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

impl Message {
    /// A copy of `bytes`, if there is memory.
    pub(super) fn new(peer: SocketAddr, bytes: &[u8], memory: Memory) -> Option<Self> {
        let mut copy = Vec::new();
        if !(memory.has_room)(bytes.len()) || copy.try_reserve_exact(bytes.len()).is_err() {
            return None;
        }
        copy.extend_from_slice(bytes);
        Some(Self { peer, bytes: copy })
    }
}

pub(super) struct Unresolved {
    pub(super) flow: Flow,
    pub(super) message: Message,
    pub(super) requests_left: u32,
}

pub(super) struct Datagrams<W> {
    memory: Memory,
    pub(super) local: Binding,
    /// How many were bound before.
    number: u32,
    /// The only peer, once the socket is connected.
    pub(super) peer: Option<SocketAddr>,
    /// Its own address towards `peer`.
    pub(super) source: Option<IpAddr>,
    pub(super) received: VecDeque<Message>,
    pub(super) received_bytes: usize,
    pub(super) unresolved: VecDeque<Unresolved>,
    /// What an ICMP message said about the last datagram to `peer`.
    pub(super) failure: Option<ErrorKind>,
    /// Who waits for a datagram, or for room to send.
    pub(super) waiters: Waiters<W>,
}

impl<W: Wake> Datagrams<W> {
    fn new(local: Binding, memory: Memory, number: u32) -> Self {
        Self {
            memory,
            local,
            number,
            peer: None,
            source: None,
            received: VecDeque::new(),
            received_bytes: 0,
            unresolved: VecDeque::new(),
            failure: None,
            waiters: Waiters::default(),
        }
    }

    pub(super) fn takes(&self, flow: &Flow) -> bool {
        self.local.takes(&flow.local) && self.peer.is_none_or(|peer| peer == flow.remote)
    }

    /// Of several that take a datagram from `peer`, the one of the highest rank gets it: connected, and
    /// as their bindings say; of two that are alike the one that was bound last.
    fn rank(&self, peer: SocketAddr) -> u32 {
        u32::from(self.peer.is_some()) << 31 | self.local.rank(self.number, peer, 0)
    }

    /// Keeps a datagram for the application. `false` if there is no room.
    pub(super) fn receive(&mut self, peer: SocketAddr, bytes: &[u8]) -> bool {
        let is_full = self.received.len() >= RECEIVE_DATAGRAMS
            || self.received_bytes + bytes.len() > RECEIVE_BYTES;
        if is_full || self.received.try_reserve(1).is_err() {
            return false;
        }
        let Some(message) = Message::new(peer, bytes, self.memory) else {
            return false;
        };
        self.received_bytes += bytes.len();
        self.received.push_back(message);
        self.waiters.wake_all();
        true
    }

    /// Keeps a datagram until the hardware address is known. One too many takes the place
    /// of the oldest, as in Linux (`neigh_event_send`): a silent host blocks no socket.
    /// How many were lost.
    pub(super) fn wait_for_neighbor(&mut self, flow: Flow, bytes: &[u8]) -> Result<u64> {
        if self.unresolved.try_reserve(1).is_err() {
            return Err(ErrorKind::ResourceBusy.into());
        }
        let message =
            Message::new(flow.remote, bytes, self.memory).ok_or(ErrorKind::ResourceBusy)?;
        let mut requests_left = REQUESTS;
        let mut lost = 0;
        while !self.has_room_for_unresolved(bytes.len()) {
            // Of the same host's first: one that is silent takes no other's place.
            let to_same = |it: &Unresolved| it.flow.remote.ip() == flow.remote.ip();
            let oldest = self.unresolved.iter().position(to_same);
            let removed = self.unresolved.remove(oldest.unwrap_or(0));
            // A host that is sent to often fails as soon as one that is not.
            if let Some(removed) = removed.filter(|_| oldest.is_some()) {
                requests_left = requests_left.min(removed.requests_left);
            }
            lost += 1;
        }
        self.unresolved.push_back(Unresolved {
            flow,
            message,
            requests_left,
        });
        Ok(lost)
    }

    /// Any datagram has room where no other waits.
    pub(super) fn has_room_for_unresolved(&self, len: usize) -> bool {
        let waiting = self.unresolved.iter().map(|it| it.message.bytes.len());
        self.unresolved.is_empty()
            || self.unresolved.len() < UNRESOLVED
                && waiting.sum::<usize>() + len <= UNRESOLVED_BYTES
    }

    /// Sends what waited for hardware addresses that are known now. With `is_due`
    /// the others have waited through one more request.
    pub(super) fn retry<L: Link>(&mut self, wire: &mut Port<L>, is_due: bool, now: Instant) {
        let mut failure = None;
        self.unresolved.retain_mut(|waiting| {
            if !wire.link.send_ready() {
                return true;
            }
            let remote = waiting.flow.remote.ip();
            if let Some(neighbor) = wire.resolve(remote, now) {
                // Without room for all of its fragments it waits on.
                return !wire.send_datagram(neighbor, &waiting.flow, &waiting.message.bytes);
            }
            waiting.requests_left -= u32::from(is_due);
            if waiting.requests_left == 0 {
                failure = Some(waiting.message.peer);
            }
            waiting.requests_left > 0
        });
        if failure.is_some() && failure == self.peer {
            self.fail(ErrorKind::NetworkUnreachable);
        }
    }

    pub(super) fn fail(&mut self, kind: ErrorKind) {
        self.failure = Some(kind);
        self.waiters.wake_all();
    }
}

pub(super) struct Udp<W> {
    pub(super) memory: Memory,
    random: Random,
    pub(super) sockets: Vec<Option<Datagrams<W>>>,
    /// How many were ever bound.
    bound: u32,
    /// When datagrams that wait for hardware addresses are looked at.
    pub(super) deadline: Option<Instant>,
    pub(super) next_port: u16,
    /// Most frames for which a link had no room when a socket wanted to send, or 0.
    pub(super) awaited_frames: usize,
    /// When room for them was looked for.
    looked: Instant,
}

impl<W: Wake> Udp<W> {
    pub(super) fn new(seeds: &Seeds, memory: Memory) -> Self {
        Self {
            memory,
            random: Random::new(seeds.secret, Use::UdpPorts),
            sockets: Vec::new(),
            bound: 0,
            deadline: None,
            next_port: EPHEMERAL | seeds.general as u16,
            awaited_frames: 0,
            looked: Instant::ZERO,
        }
    }

    /// Links may have room again: those who wait look.
    #[inline]
    pub(super) fn wake_writers(&mut self, now: Instant, has_room: impl FnOnce(usize) -> bool) {
        if self.awaited_frames == 0 {
            return;
        }
        self.looked = now;
        if has_room(self.awaited_frames) {
            self.awaited_frames = 0;
            let sockets = self.sockets.iter_mut().flatten();
            sockets.for_each(|socket| socket.waiters.wake_all());
        }
    }

    /// When room is looked for again: no link says that it has some.
    pub(super) fn room_deadline(&self) -> Option<Instant> {
        (self.awaited_frames > 0).then(|| self.looked + LINK_LOOK)
    }

    pub(super) fn wait_for_room(&mut self, frames: usize) {
        self.awaited_frames = self.awaited_frames.max(frames);
    }

    /// Adds a socket.
    pub(super) fn insert(&mut self, local: Binding) -> DatagramId {
        let socket = Some(Datagrams::new(local, self.memory, self.bound));
        self.bound = self.bound.wrapping_add(1);
        let index = match self.sockets.iter().position(Option::is_none) {
            Some(index) => {
                self.sockets[index] = socket;
                index
            }
            None => {
                self.sockets.push(socket);
                self.sockets.len() - 1
            }
        };
        DatagramId(index as u32)
    }

    /// The socket that gets what comes on `flow`.
    pub(super) fn taker(&mut self, flow: &Flow) -> Option<&mut Datagrams<W>> {
        let sockets = self.sockets.iter_mut().flatten();
        let takers = sockets.filter(|socket| socket.takes(flow));
        takers.max_by_key(|socket| socket.rank(flow.remote))
    }

    /// A port of the peer is closed (ICMP type 3, code 3). Only a connected
    /// socket learns of it (RFC 1122, 4.1.3.3).
    pub(super) fn on_unreachable(&mut self, flow: &Flow) {
        let mut sockets = self.sockets.iter_mut().flatten();
        let socket = sockets.find(|socket| socket.peer.is_some() && socket.takes(flow));
        if let Some(socket) = socket {
            socket.fail(ErrorKind::ConnectionRefused);
        }
    }

    /// A hardware address may have become known, or the deadline has come.
    pub(super) fn retry<L: Link>(&mut self, wire: &mut Port<L>, now: Instant) {
        let Some(deadline) = self.deadline else {
            return;
        };
        let is_due = deadline <= now;
        let mut is_waiting = false;
        for socket in self.sockets.iter_mut().flatten() {
            socket.retry(wire, is_due, now);
            is_waiting |= !socket.unresolved.is_empty();
        }
        self.deadline = match (is_waiting, is_due) {
            (false, _) => None,
            (true, true) => Some(now + neighbours::RETRY),
            (true, false) => Some(deadline),
        };
    }

    pub(super) fn socket(&mut self, id: DatagramId) -> Result<&mut Datagrams<W>> {
        match self.sockets.get_mut(id.0 as usize) {
            Some(Some(socket)) => Ok(socket),
            _ => Err(Error::new(ErrorKind::InvalidInput, "not bound")),
        }
    }

    /// A free port, beginning at an unpredictable number (RFC 6056).
    pub(super) fn free_port(&mut self, local: Binding) -> Option<Binding> {
        self.next_port ^= self.random.draw() as u16;
        for _ in EPHEMERAL..=u16::MAX {
            self.next_port = self.next_port.wrapping_add(1) | EPHEMERAL;
            let local = local.with_port(self.next_port);
            if !self.is_taken(&local) {
                return Some(local);
            }
        }
        None
    }

    pub(super) fn is_taken(&self, local: &Binding) -> bool {
        let mut bound = self.sockets.iter().flatten();
        bound.any(|other| other.local.excludes(local))
    }
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Now,
    /// It waits for a hardware address, in place of this many that waited longer.
    Later {
        lost: u64,
    },
    /// The link has no room for all of its frames now, and none was sent.
    LinkFull {
        frames: usize,
    },
}

/// Sends a datagram, or keeps it until the neighbour is known.
pub(super) fn send<L: Link, W: Wake>(
    port: &mut Port<L>,
    socket: &mut Datagrams<W>,
    flow: Flow,
    data: &[u8],
    now: Instant,
) -> Result<Sent> {
    if data.len() > port.datagram_longest(flow.remote.ip()) {
        return Err(ErrorKind::MessageTooLong.into());
    }
    let frames = port.frames_of_datagram(flow.remote.ip(), data.len());
    if frames > port.link.send_room_max() {
        return Err(ErrorKind::MessageTooLong.into());
    }
    match port.resolve(flow.remote.ip(), now) {
        Some(neighbor) if port.send_datagram(neighbor, &flow, data) => Ok(Sent::Now),
        Some(_) => Ok(Sent::LinkFull { frames }),
        None => {
            let lost = socket.wait_for_neighbor(flow, data)?;
            Ok(Sent::Later { lost })
        }
    }
}
