//! UDP sockets: each with a smoltcp socket for the wire and one for the loopback.

use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::udp::{PacketBuffer, PacketMetadata, SendError, Socket};
use smoltcp::time::Instant;
use smoltcp::wire::{IpAddress, IpEndpoint, IpListenEndpoint};

use super::listener::overlap;
use super::{Stack, Via};
use crate::io::{Error, ErrorKind, Result};
use crate::net::flow::Flow;
use crate::net::link::Link;
use crate::net::port::Port;
use crate::net::waiters::{Waiters, Wake};

/// Datagrams and bytes that a socket buffers in each direction.
const DATAGRAMS: usize = 16;
const BYTES: usize = 8 * 1024;
/// First port that [`Stack::bind`] gives for port 0.
const EPHEMERAL: u16 = 49152;

/// Names a UDP socket until it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramId(u32);

struct Endpoint {
    set: SocketSet<'static>,
    handle: SocketHandle,
}

impl Endpoint {
    fn new(port: u16) -> Self {
        let buffer = || PacketBuffer::new(vec![PacketMetadata::EMPTY; DATAGRAMS], vec![0; BYTES]);
        let mut socket = Socket::new(buffer(), buffer());
        // The port is not zero, the only reason to fail.
        let _ = socket.bind(IpListenEndpoint { addr: None, port });
        let mut set = SocketSet::new(vec![]);
        let handle = set.add(socket);
        Self { set, handle }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.set.get_mut(self.handle)
    }
}

struct Datagrams<W> {
    local: SocketAddrV4,
    wire: Endpoint,
    loopback: Endpoint,
    readers: Waiters<W>,
    /// The wire's socket has datagrams that wait for a hardware address.
    waiting: bool,
}

pub(super) struct Udp<W> {
    sockets: Vec<Option<Datagrams<W>>>,
}

impl<W> Default for Udp<W> {
    fn default() -> Self {
        Self {
            sockets: Vec::new(),
        }
    }
}

impl<W: Wake> Udp<W> {
    /// Whether a socket takes what comes on `flow`.
    pub(super) fn has_socket(&self, flow: &Flow) -> bool {
        let mut sockets = self.sockets.iter().flatten();
        sockets.any(|socket| overlap(&socket.local, &flow.local))
    }

    pub(super) fn ingress<L: Link>(
        &mut self,
        port: &mut Port<L>,
        via: Via,
        flow: &Flow,
        frame: &[u8],
        nobody: &mut SocketSet<'_>,
        now: Instant,
    ) {
        let mut sockets = self.sockets.iter_mut().flatten();
        let Some(found) = sockets.find(|socket| overlap(&socket.local, &flow.local)) else {
            // The interface answers that the port is unreachable.
            return port.ingress(frame, nobody, now);
        };
        let endpoint = match via {
            Via::Wire => &mut found.wire,
            Via::Loopback => &mut found.loopback,
        };
        port.ingress(frame, &mut endpoint.set, now);
        if endpoint.socket().can_recv() {
            found.readers.wake_all();
        }
    }

    /// A hardware address may have become known.
    pub(super) fn retry<L: Link>(&mut self, wire: &mut Port<L>, now: Instant) {
        for socket in self.sockets.iter_mut().flatten() {
            if socket.waiting {
                let _ = wire.egress(&mut socket.wire.set, now);
                socket.waiting = socket.wire.socket().send_queue() > 0;
            }
        }
    }

    fn socket(&mut self, id: DatagramId) -> Result<&mut Datagrams<W>> {
        match self.sockets.get_mut(id.0 as usize) {
            Some(Some(socket)) => Ok(socket),
            _ => Err(Error::new(ErrorKind::InvalidInput, "not bound")),
        }
    }
}

impl<L: Link, W: Wake> Stack<L, W> {
    /// Binds a UDP socket to `local`; port 0 takes a free one.
    pub fn bind(&mut self, mut local: SocketAddrV4) -> Result<DatagramId> {
        let is_taken = |local: &SocketAddrV4| {
            let mut bound = self.udp.sockets.iter().flatten();
            bound.any(|other| overlap(&other.local, local))
        };
        if local.port() == 0 {
            let free = (EPHEMERAL..=u16::MAX)
                .map(|port| SocketAddrV4::new(*local.ip(), port))
                .find(|local| !is_taken(local));
            local = free.ok_or(ErrorKind::ResourceBusy)?;
        } else if is_taken(&local) {
            return Err(ErrorKind::AddrInUse.into());
        }
        let socket = Some(Datagrams {
            local,
            wire: Endpoint::new(local.port()),
            loopback: Endpoint::new(local.port()),
            readers: Waiters::default(),
            waiting: false,
        });
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
    pub fn bound(&mut self, id: DatagramId) -> Result<SocketAddrV4> {
        Ok(self.udp.socket(id)?.local)
    }

    /// Sends a datagram; `WouldBlock` when the socket's buffer is full.
    pub fn send_to(
        &mut self,
        id: DatagramId,
        data: &[u8],
        to: SocketAddrV4,
        now: Instant,
    ) -> Result<usize> {
        let (via, source) = self.route(*to.ip())?;
        let socket = self.udp.socket(id)?;
        let endpoint = match via {
            Via::Wire => &mut socket.wire,
            Via::Loopback => &mut socket.loopback,
        };
        let mut meta = smoltcp::socket::udp::UdpMetadata::from(IpEndpoint::from(to));
        meta.local_address = Some(IpAddress::Ipv4(source));
        endpoint
            .socket()
            .send_slice(data, meta)
            .map_err(|error| match error {
                SendError::Unaddressable => Error::from(ErrorKind::InvalidInput),
                SendError::BufferFull if data.len() > BYTES => {
                    Error::new(ErrorKind::InvalidInput, "datagram too long")
                }
                SendError::BufferFull => Error::from(ErrorKind::WouldBlock),
            })?;
        match via {
            Via::Wire => drop(self.wire.egress(&mut endpoint.set, now)),
            Via::Loopback => drop(self.loopback.egress(&mut endpoint.set, now)),
        }
        socket.waiting = socket.wire.socket().send_queue() > 0;
        self.finish(now);
        Ok(data.len())
    }

    /// The next datagram, cut to `buf`, and its sender; or `WouldBlock`.
    pub fn receive_from(
        &mut self,
        id: DatagramId,
        buf: &mut [u8],
    ) -> Result<(usize, SocketAddrV4)> {
        let socket = self.udp.socket(id)?;
        let endpoint = if socket.wire.socket().can_recv() {
            &mut socket.wire
        } else {
            &mut socket.loopback
        };
        let (data, meta) = endpoint
            .socket()
            .recv()
            .map_err(|_| ErrorKind::WouldBlock)?;
        let n = data.len().min(buf.len());
        buf[..n].copy_from_slice(&data[..n]);
        let IpAddress::Ipv4(address) = meta.endpoint.addr;
        Ok((n, SocketAddrV4::new(address, meta.endpoint.port)))
    }

    /// Registers for being woken when a datagram comes.
    pub fn wait_datagram(&mut self, id: DatagramId, waiter: W) {
        if let Ok(socket) = self.udp.socket(id) {
            socket.readers.add(waiter);
        }
    }

    /// Takes a registration back.
    pub fn cancel_datagram(&mut self, id: DatagramId, waiter: &W) {
        if let Ok(socket) = self.udp.socket(id) {
            socket.readers.remove(waiter);
        }
    }

    /// Closes a UDP socket.
    pub fn close_datagrams(&mut self, id: DatagramId) {
        if let Some(socket) = self.udp.sockets.get_mut(id.0 as usize) {
            *socket = None;
        }
    }
}
