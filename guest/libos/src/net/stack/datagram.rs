//! UDP sockets: bounded queues of datagrams. What cannot be sent before a
//! neighbour's hardware address is known waits a short time.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use smoltcp::time::Instant;

use super::listener::overlap;
use super::tcp::EPHEMERAL;
use super::{Stack, Via, icmp};
use crate::heap;
use crate::io::{Error, ErrorKind, Result};
use crate::net::flow::Flow;
use crate::net::frame::Datagram;
use crate::net::link::{Link, Loopback};
use crate::net::neighbours;
use crate::net::port::Port;
use crate::net::ready::Readiness;
use crate::net::waiters::{Waiters, Wake};

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
pub struct DatagramId(u32);

struct Message {
    peer: SocketAddr,
    bytes: Vec<u8>,
}

impl Message {
    /// A copy of `bytes`, if there is memory.
    fn new(peer: SocketAddr, bytes: &[u8]) -> Option<Self> {
        let mut copy = Vec::new();
        if !heap::has_room(bytes.len()) || copy.try_reserve_exact(bytes.len()).is_err() {
            return None;
        }
        copy.extend_from_slice(bytes);
        Some(Self { peer, bytes: copy })
    }
}

struct Unresolved {
    flow: Flow,
    message: Message,
    requests_left: u32,
}

struct Datagrams<W> {
    local: SocketAddr,
    /// The only peer, once the socket is connected.
    peer: Option<SocketAddr>,
    received: VecDeque<Message>,
    received_bytes: usize,
    unresolved: VecDeque<Unresolved>,
    /// What an ICMP message said about the last datagram to `peer`.
    failure: Option<ErrorKind>,
    /// Who waits for a datagram, or for room to send.
    waiters: Waiters<W>,
}

impl<W: Wake> Datagrams<W> {
    fn new(local: SocketAddr) -> Self {
        Self {
            local,
            peer: None,
            received: VecDeque::new(),
            received_bytes: 0,
            unresolved: VecDeque::new(),
            failure: None,
            waiters: Waiters::default(),
        }
    }

    fn takes(&self, flow: &Flow) -> bool {
        overlap(&self.local, &flow.local) && self.peer.is_none_or(|peer| peer == flow.remote)
    }

    /// Keeps a datagram for the application. `false` if there is no room.
    fn receive(&mut self, peer: SocketAddr, bytes: &[u8]) -> bool {
        let is_full = self.received.len() >= RECEIVE_DATAGRAMS
            || self.received_bytes + bytes.len() > RECEIVE_BYTES;
        if is_full || self.received.try_reserve(1).is_err() {
            return false;
        }
        let Some(message) = Message::new(peer, bytes) else {
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
    fn wait_for_neighbor(&mut self, flow: Flow, bytes: &[u8]) -> Result<u64> {
        if self.unresolved.try_reserve(1).is_err() {
            return Err(ErrorKind::ResourceBusy.into());
        }
        let message = Message::new(flow.remote, bytes).ok_or(ErrorKind::ResourceBusy)?;
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
    fn has_room_for_unresolved(&self, len: usize) -> bool {
        let waiting = self.unresolved.iter().map(|it| it.message.bytes.len());
        self.unresolved.is_empty()
            || self.unresolved.len() < UNRESOLVED
                && waiting.sum::<usize>() + len <= UNRESOLVED_BYTES
    }

    /// Sends what waited for hardware addresses that are known now. With `is_due`
    /// the others have waited through one more request.
    fn retry<L: Link>(&mut self, wire: &mut Port<L>, is_due: bool, now: Instant) {
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

    fn fail(&mut self, kind: ErrorKind) {
        self.failure = Some(kind);
        self.waiters.wake_all();
    }
}

pub(super) struct Udp<W> {
    sockets: Vec<Option<Datagrams<W>>>,
    /// When datagrams that wait for hardware addresses are looked at.
    pub(super) deadline: Option<Instant>,
    next_port: u16,
    /// Most frames for which a link had no room when a socket wanted to send, or 0.
    awaited_frames: usize,
}

impl<W: Wake> Udp<W> {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            sockets: Vec::new(),
            deadline: None,
            next_port: EPHEMERAL | seed as u16,
            awaited_frames: 0,
        }
    }

    /// Links may have room again: those who wait look.
    #[inline]
    pub(super) fn wake_writers(&mut self, has_room: impl FnOnce(usize) -> bool) {
        if self.awaited_frames > 0 && has_room(self.awaited_frames) {
            self.awaited_frames = 0;
            let sockets = self.sockets.iter_mut().flatten();
            sockets.for_each(|socket| socket.waiters.wake_all());
        }
    }

    fn wait_for_room(&mut self, frames: usize) {
        self.awaited_frames = self.awaited_frames.max(frames);
    }

    /// Whether a socket takes what comes on `flow`.
    pub(super) fn has_socket(&self, flow: &Flow) -> bool {
        let mut sockets = self.sockets.iter().flatten();
        sockets.any(|socket| socket.takes(flow))
    }

    /// Hands a datagram to its socket: a connected one before others. `false` if
    /// it was lost.
    pub(super) fn ingress(&mut self, found: &Datagram, frame: &[u8]) -> bool {
        let payload = usize::from(found.start)..usize::from(found.end);
        let takes = |socket: &&mut Datagrams<W>| socket.takes(&found.flow);
        let mut sockets = self.sockets.iter_mut().flatten().filter(takes);
        let Some(mut socket) = sockets.next() else {
            return false;
        };
        if socket.peer.is_none()
            && let Some(connected) = sockets.find(|socket| socket.peer.is_some())
        {
            socket = connected;
        }
        let payload = frame.get(payload);
        payload.is_some_and(|payload| socket.receive(found.flow.remote, payload))
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

    fn socket(&mut self, id: DatagramId) -> Result<&mut Datagrams<W>> {
        match self.sockets.get_mut(id.0 as usize) {
            Some(Some(socket)) => Ok(socket),
            _ => Err(Error::new(ErrorKind::InvalidInput, "not bound")),
        }
    }

    /// A free port, beginning where nobody can guess (RFC 6056).
    fn free_port(&mut self, ip: IpAddr) -> Option<SocketAddr> {
        let mut step = [0; 2];
        crate::random::fill(&mut step);
        self.next_port ^= u16::from_ne_bytes(step);
        for _ in EPHEMERAL..=u16::MAX {
            self.next_port = self.next_port.wrapping_add(1) | EPHEMERAL;
            let local = SocketAddr::new(ip, self.next_port);
            if !self.is_taken(&local) {
                return Some(local);
            }
        }
        None
    }

    fn is_taken(&self, local: &SocketAddr) -> bool {
        let mut bound = self.sockets.iter().flatten();
        bound.any(|other| overlap(&other.local, local))
    }
}

impl<L: Link, W: Wake> Stack<L, W> {
    pub(super) fn ingress_datagram<const ON_WIRE: bool>(
        &mut self,
        found: &Datagram,
        frame: &[u8],
        now: Instant,
    ) {
        if self.udp.has_socket(&found.flow) {
            let kept = self.udp.ingress(found, frame);
            self.counters.udp_dropped += u64::from(!kept);
            return;
        }
        if !ON_WIRE {
            icmp::send_port_unreachable(&mut self.loopback, [0; 6], found, frame);
            return;
        }
        let concerns_all = frame[0] & 1 == 1 || !self.wire.has_address(found.flow.local.ip());
        if !concerns_all && self.may_send_error(now) {
            icmp::send_port_unreachable(&mut self.wire, super::sender(frame), found, frame);
        }
    }

    /// Binds a UDP socket to `local`; port 0 takes a free one.
    pub fn bind(&mut self, local: impl Into<SocketAddr>) -> Result<DatagramId> {
        let mut local = local.into();
        if local.port() == 0 {
            let free = self.udp.free_port(local.ip());
            local = free.ok_or(ErrorKind::ResourceBusy)?;
        } else if self.udp.is_taken(&local) {
            return Err(ErrorKind::AddrInUse.into());
        }
        let socket = Some(Datagrams::new(local));
        let index = match self.udp.sockets.iter().position(Option::is_none) {
            Some(index) => {
                self.udp.sockets[index] = socket;
                index
            }
            None => {
                self.udp.sockets.push(socket);
                self.udp.sockets.len() - 1
            }
        };
        Ok(DatagramId(index as u32))
    }

    /// Where a UDP socket is bound.
    pub fn bound(&mut self, id: DatagramId) -> Result<SocketAddr> {
        Ok(self.udp.socket(id)?.local)
    }

    /// Makes `peer` the only one that a socket exchanges datagrams with, or with
    /// `None` takes that back. Fails if no route leads there.
    pub(crate) fn connect_datagrams(
        &mut self,
        id: DatagramId,
        peer: Option<SocketAddr>,
        now: Instant,
    ) -> Result<()> {
        if let Some(peer) = peer {
            self.route(peer.ip(), now)?;
        }
        let socket = self.udp.socket(id)?;
        (socket.peer, socket.failure) = (peer, None);
        let is_other = |message: &Message| peer.is_some_and(|peer| peer != message.peer);
        socket.received.retain(|message| !is_other(message));
        socket.received_bytes = socket.received.iter().map(|it| it.bytes.len()).sum();
        Ok(())
    }

    /// The peer of a connected socket.
    pub(crate) fn datagram_peer(&mut self, id: DatagramId) -> Result<SocketAddr> {
        let peer = self.udp.socket(id)?.peer;
        peer.ok_or(ErrorKind::NotConnected.into())
    }

    /// Sends a datagram, in fragments if it is larger than the link takes (RFC 791, 8200);
    /// `WouldBlock` when the link has no room for all of it, `MessageTooLong` beyond what IP
    /// can carry or the link's queue can hold.
    pub fn send_to(
        &mut self,
        id: DatagramId,
        data: &[u8],
        to: impl Into<SocketAddr>,
        now: Instant,
    ) -> Result<usize> {
        let to = to.into();
        if to.port() == 0 || to.ip().is_unspecified() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "not the address and port of a host",
            ));
        }
        let (via, source) = self.route(to.ip(), now)?;
        let socket = self.udp.socket(id)?;
        if let Some(failure) = socket.failure.take() {
            return Err(failure.into());
        }
        let own = socket.local.ip();
        let source = if own.is_unspecified() { source } else { own };
        let flow = Flow {
            local: SocketAddr::new(source, socket.local.port()),
            remote: to,
        };
        let is_ready = match via {
            Via::Wire => self.wire.link.send_ready(),
            Via::Loopback => self.loopback.link.send_ready(),
        };
        if !is_ready {
            self.udp.wait_for_room(1);
            return Err(ErrorKind::WouldBlock.into());
        }
        let sent = match via {
            Via::Wire => {
                let sent = send(&mut self.wire, socket, flow, data, now)?;
                if let Sent::Later { lost } = sent {
                    self.udp.deadline.get_or_insert(now + neighbours::RETRY);
                    self.counters.udp_dropped += lost;
                }
                sent
            }
            Via::Loopback => send::<Loopback, W>(&mut self.loopback, socket, flow, data, now)?,
        };
        if let Sent::LinkFull { frames } = sent {
            self.udp.wait_for_room(frames);
            return Err(ErrorKind::WouldBlock.into());
        }
        self.finish(now);
        Ok(data.len())
    }

    /// The next datagram, cut to `buf`: its whole length and its sender; or
    /// `WouldBlock`. With [`Take::Peek`] it stays.
    pub fn receive_from(
        &mut self,
        id: DatagramId,
        buf: &mut [u8],
        take: Take,
    ) -> Result<(usize, SocketAddr)> {
        let socket = self.udp.socket(id)?;
        let Some(message) = socket.received.front() else {
            return Err(socket
                .failure
                .take()
                .unwrap_or(ErrorKind::WouldBlock)
                .into());
        };
        let n = message.bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&message.bytes[..n]);
        let (len, peer) = (message.bytes.len(), message.peer);
        if take == Take::Remove {
            socket.received_bytes -= len;
            socket.received.pop_front();
        }
        Ok((len, peer))
    }

    /// What a socket can do now.
    pub(crate) fn datagram_readiness(&mut self, id: DatagramId) -> Readiness {
        // What a datagram waits for counts, or its sender would spin.
        let frames = self.udp.awaited_frames.max(1);
        let has_link = self.wire.link.send_room() >= frames && self.loopback.link.send_ready();
        if !has_link {
            self.udp.wait_for_room(frames);
        }
        let Ok(socket) = self.udp.socket(id) else {
            return Readiness::default();
        };
        let failed = socket.failure.is_some();
        let (readable, writable) = (!socket.received.is_empty(), has_link);
        Readiness {
            readable: failed || readable,
            writable: failed || writable,
            failed,
            ..Readiness::default()
        }
    }

    /// Registers for being woken when a datagram comes, or when there is room to
    /// send again.
    pub(crate) fn wait_datagram(&mut self, id: DatagramId, waiter: W) {
        if let Ok(socket) = self.udp.socket(id) {
            socket.waiters.add(waiter);
        }
    }

    /// Takes a registration back.
    pub(crate) fn cancel_datagram(&mut self, id: DatagramId, waiter: &W) {
        if let Ok(socket) = self.udp.socket(id) {
            socket.waiters.remove(waiter);
        }
    }

    /// Closes a UDP socket.
    pub(crate) fn close_datagrams(&mut self, id: DatagramId) {
        if let Some(socket) = self.udp.sockets.get_mut(id.0 as usize) {
            *socket = None;
        }
    }
}

/// Whether reading a datagram removes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// It does.
    Remove,
    /// The next call gives it again.
    Peek,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
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
fn send<L: Link, W: Wake>(
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
