//! The calls of UDP sockets.

use core::net::SocketAddr;

use smoltcp::time::Instant;
use tare_fragments::{Fragment, HEADER, Taken};
use tare_io::{Error, ErrorKind, Result};

use super::udp::{DatagramId, Message, Sent, send};
use super::via::Via;
use super::{Stack, icmp};
use crate::binding::Binding;
use crate::checksum::Sum;
use crate::flow::Flow;
use crate::frame::{self, Checksums, Datagram, Frame, Medium};
use crate::link::{Link, Loopback};
use crate::neighbours;
use crate::readiness::Readiness;
use crate::waiters::Wake;

impl<L: Link, W: Wake> Stack<L, W> {
    pub(super) fn ingress_datagram<const ON_WIRE: bool>(
        &mut self,
        found: &Datagram,
        frame: &[u8],
        now: Instant,
    ) {
        if let Some(socket) = self.udp.taker(&found.flow) {
            let payload = frame.get(usize::from(found.start)..usize::from(found.end));
            let kept = payload.is_some_and(|it| socket.receive(found.flow.remote, it));
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

    /// A fragment: of a datagram for this host it is kept until the others are there.
    #[cold]
    #[inline(never)]
    pub(super) fn ingress_fragment(&mut self, frame: &[u8], now: Instant) {
        const UDP: u8 = 17;
        let is_for_all = frame[0] & 1 == 1;
        let found = Fragment::of(frame).filter(|it| it.key.protocol == UDP && !is_for_all);
        let bytes = found.and_then(|it| frame.get(usize::from(it.start)..usize::from(it.end)));
        let (Some(found), Some(bytes)) = (found, bytes) else {
            self.counters.fragments += 1;
            return;
        };
        let flow = Flow {
            local: SocketAddr::from((found.key.destination, 0)),
            remote: SocketAddr::from((found.key.source, 0)),
        };
        if !super::is_foreign(&flow) {
            self.counters.martian += 1;
        } else if !self.wire.has_address(flow.local.ip()) {
            self.counters.broadcast += 1;
        } else {
            let has_room = self.udp.memory.has_room;
            let fragments = self.fragments.get_or_insert_default();
            let now = core::time::Duration::from_micros(now.total_micros().cast_unsigned());
            let taken = fragments.take(&found, bytes, has_room, now);
            self.counters.fragments += fragments.take_dropped();
            if let Taken::Complete(mut packet) = taken {
                let [a, b] = Sum::new().plus(&packet[..HEADER]).finish();
                packet[10..12].copy_from_slice(&[!a, !b]);
                self.ingress_whole(&packet);
            }
        }
    }

    /// A datagram that was put together, as an IPv4 packet. No error is sent where no socket takes it.
    fn ingress_whole(&mut self, packet: &[u8]) {
        match frame::parse_as(packet, Medium::Ip, Checksums::Unverified) {
            Ok(Frame::Udp(found)) => {
                let payload = packet.get(usize::from(found.start)..usize::from(found.end));
                let socket = self.udp.taker(&found.flow).zip(payload);
                let kept = socket.is_some_and(|(it, bytes)| it.receive(found.flow.remote, bytes));
                self.counters.udp_dropped += u64::from(!kept);
            }
            Ok(_) => self.counters.malformed += 1,
            Err(error) => self.count_refusal(error),
        }
    }

    /// Binds a UDP socket to `local`; port 0 takes a free one.
    pub fn bind(&mut self, local: impl Into<SocketAddr>) -> Result<DatagramId> {
        self.bind_as(local.into().into())
    }

    /// The same to an address that may leave IPv4 to others.
    pub fn bind_as(&mut self, mut local: Binding) -> Result<DatagramId> {
        if local.address.port() == 0 {
            let free = self.udp.free_port(local);
            local = free.ok_or(ErrorKind::ResourceBusy)?;
        } else if self.udp.is_taken(&local) {
            return Err(ErrorKind::AddrInUse.into());
        }
        Ok(self.udp.insert(local))
    }

    /// Where a UDP socket is bound; a connected one at any address has the one that its datagrams
    /// come from (`__ip4_datagram_connect` in net/ipv4/datagram.c).
    pub fn bound(&mut self, id: DatagramId) -> Result<SocketAddr> {
        let socket = self.udp.socket(id)?;
        let own = socket.local.address;
        Ok(SocketAddr::new(
            socket.source.unwrap_or(own.ip()),
            own.port(),
        ))
    }

    /// Makes `peer` the only one that a socket exchanges datagrams with, or with
    /// `None` takes that back. Fails if no route leads there.
    pub fn connect_datagrams(
        &mut self,
        id: DatagramId,
        peer: Option<SocketAddr>,
        now: Instant,
    ) -> Result<()> {
        let source = match peer {
            Some(peer) => {
                let local = self.udp.socket(id)?.local;
                Some(self.source(peer.ip(), &local, now)?.1)
            }
            None => None,
        };
        let socket = self.udp.socket(id)?;
        (socket.peer, socket.source, socket.failure) = (peer, source, None);
        let is_other = |message: &Message| peer.is_some_and(|peer| peer != message.peer);
        socket.received.retain(|message| !is_other(message));
        socket.received_bytes = socket.received.iter().map(|it| it.bytes.len()).sum();
        Ok(())
    }

    /// The peer of a connected socket.
    pub fn datagram_peer(&mut self, id: DatagramId) -> Result<SocketAddr> {
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
        let local = self.udp.socket(id)?.local;
        let (via, source) = self.source(to.ip(), &local, now)?;
        let socket = self.udp.socket(id)?;
        if let Some(failure) = socket.failure.take() {
            return Err(failure.into());
        }
        let flow = Flow {
            local: SocketAddr::new(source, local.address.port()),
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
    /// `WouldBlock`. With [`Take::Peek`] it stays. An error comes first
    /// (`__skb_recv_datagram` in Linux's net/core/datagram.c).
    pub fn receive_from(
        &mut self,
        id: DatagramId,
        buf: &mut [u8],
        take: Take,
    ) -> Result<(usize, SocketAddr)> {
        let socket = self.udp.socket(id)?;
        if let Some(failure) = socket.failure.take() {
            return Err(failure.into());
        }
        let Some(message) = socket.received.front() else {
            return Err(ErrorKind::WouldBlock.into());
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

    /// Takes what an ICMP message said about the last datagram to the peer.
    pub fn take_datagram_failure(&mut self, id: DatagramId) -> Result<Option<Error>> {
        Ok(self.udp.socket(id)?.failure.take().map(Error::from))
    }

    /// Bytes of the datagram that is received next; `None` without one.
    pub fn next_datagram_bytes(&mut self, id: DatagramId) -> Result<Option<usize>> {
        let next = self.udp.socket(id)?.received.front();
        Ok(next.map(|message| message.bytes.len()))
    }

    /// What a socket can do now.
    pub fn datagram_readiness(&mut self, id: DatagramId) -> Readiness {
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
    pub fn wait_datagram(&mut self, id: DatagramId, waiter: W) {
        if let Ok(socket) = self.udp.socket(id) {
            socket.waiters.add(waiter);
        }
    }

    /// Takes a registration back.
    pub fn cancel_datagram(&mut self, id: DatagramId, waiter: &W) {
        if let Ok(socket) = self.udp.socket(id) {
            socket.waiters.remove(waiter);
        }
    }

    /// Closes a UDP socket.
    pub fn close_datagrams(&mut self, id: DatagramId) {
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
