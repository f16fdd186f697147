//! [`UdpSocket`].

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use tare_net::binding::Binding;
use tare_net::readiness::{Interest, Readiness};
use tare_net::stack::Instant as StackInstant;
use tare_net::stack::{DatagramId, Take};

use super::addr::ToSocketAddrs;
use super::ready::Watched;
use super::system::{Attempt, SystemStack, lock, now, wait_for};
use super::waiter::Waiter;
use crate::io::{self, Error, ErrorKind};
use crate::sync::SpinLock;

/// A UDP socket.
///
/// ```
/// use tare_libos::net::UdpSocket;
///
/// let (one, two) = (UdpSocket::bind("0.0.0.0:0")?, UdpSocket::bind("0.0.0.0:0")?);
/// one.send_to(b"hello", ("127.0.0.1", two.local_addr()?.port()))?;
/// let mut buf = [0; 10];
/// let (n, from) = two.recv_from(&mut buf)?;
/// assert_eq!((&buf[..n], from.port()), (&b"hello"[..], one.local_addr()?.port()));
/// # Ok::<(), tare_libos::io::Error>(())
/// ```
#[derive(Debug)]
pub struct UdpSocket {
    id: DatagramId,
    limit: SpinLock<Option<Duration>>,
    nonblocking: AtomicBool,
}

impl UdpSocket {
    /// Binds to an address; port 0 takes a free one.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        let local = address.to_socket_addrs()?.first();
        Self::bind_as(local.into())
    }

    /// The same to an address that may leave IPv4 to other sockets.
    pub fn bind_as(local: Binding) -> io::Result<Self> {
        Ok(Self {
            id: lock().bind_as(local)?,
            limit: SpinLock::new(None),
            nonblocking: AtomicBool::new(false),
        })
    }

    /// Makes `peer` the one that [`send`](Self::send) sends to, and the only one
    /// whose datagrams are received.
    pub fn connect(&self, peer: impl ToSocketAddrs) -> io::Result<()> {
        let peers = peer.to_socket_addrs()?;
        peers.try_each(|peer| lock().connect_datagrams(self.id, Some(peer), now()))
    }

    /// Takes [`connect`](Self::connect) back.
    pub fn disconnect(&self) -> io::Result<()> {
        lock().connect_datagrams(self.id, None, now())
    }

    /// Sends a datagram, in fragments if it is larger than the link takes. The last 16
    /// wait for a host's hardware address, and older ones are lost. Fails with
    /// `MessageTooLong` beyond what IP carries, 65,507 bytes over IPv4. Waits for room to send,
    /// unless the socket is non-blocking.
    pub fn send_to(&self, data: &[u8], to: impl ToSocketAddrs) -> io::Result<usize> {
        let hosts = to.to_socket_addrs()?;
        hosts.try_each(|to| self.send_one(data, to))
    }

    fn send_one(&self, data: &[u8], to: SocketAddr) -> io::Result<usize> {
        let is_nonblocking = self.nonblocking.load(Ordering::Relaxed);
        let id = self.id;
        wait_for(
            is_nonblocking.then_some(Duration::ZERO),
            Send { id, data, to },
        )
    }

    /// Sends a datagram to the connected peer. Fails with `ConnectionRefused` when
    /// the last one met a closed port.
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        let peer = lock().datagram_peer(self.id)?;
        self.send_one(data, peer)
    }

    /// Waits for a datagram; what does not fit into `buf` is lost.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(buf, Take::Remove)
    }

    /// Waits for a datagram of the connected peer.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf, Take::Remove).map(|(n, _)| n)
    }

    /// Waits for a datagram and leaves it.
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(buf, Take::Peek)
    }

    fn receive(&self, buf: &mut [u8], take: Take) -> io::Result<(usize, SocketAddr)> {
        let timeout = if self.nonblocking.load(Ordering::Relaxed) {
            Some(Duration::ZERO)
        } else {
            *self.limit.lock()
        };
        let room = buf.len();
        let id = self.id;
        let (len, from) = wait_for(timeout, Receive { id, buf, take })?;
        Ok((len.min(room), from))
    }

    /// A datagram that is there, its whole length and its sender; else fails with
    /// `WouldBlock`.
    pub fn try_recv_from(&self, buf: &mut [u8], take: Take) -> io::Result<(usize, SocketAddr)> {
        lock().receive_from(self.id, buf, take)
    }

    /// Bytes of the datagram that is received next; `None` without one. An error that waits to be
    /// reported stays.
    pub fn next_bytes(&self) -> io::Result<Option<usize>> {
        lock().next_datagram_bytes(self.id)
    }

    /// Takes the error that waits to be reported.
    pub fn take_error(&self) -> Option<Error> {
        lock().take_datagram_failure(self.id).ok().flatten()
    }

    /// Where this is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        lock().bound(self.id)
    }

    /// The connected peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        lock().datagram_peer(self.id)
    }

    /// How long receiving waits before it fails with `TimedOut`.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        if limit == Some(Duration::ZERO) {
            return Err(Error::new(ErrorKind::InvalidInput, "a timeout of zero"));
        }
        *self.limit.lock() = limit;
        Ok(())
    }

    /// Whether sending and receiving fail with `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }
}

impl Watched for UdpSocket {
    fn state(&self, stack: &mut SystemStack) -> Readiness {
        stack.datagram_readiness(self.id)
    }

    fn add(&self, stack: &mut SystemStack, _: Interest, waiter: Waiter) {
        stack.wait_datagram(self.id, waiter);
    }

    fn remove(&self, stack: &mut SystemStack, _: Interest, waiter: &Waiter) {
        stack.cancel_datagram(self.id, waiter);
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        lock().close_datagrams(self.id);
    }
}

struct Receive<'a> {
    id: DatagramId,
    buf: &'a mut [u8],
    take: Take,
}

impl Attempt for Receive<'_> {
    type Output = (usize, SocketAddr);

    fn attempt(&mut self, stack: &mut SystemStack, _: StackInstant) -> io::Result<Self::Output> {
        stack.receive_from(self.id, self.buf, self.take)
    }

    fn register(&self, stack: &mut SystemStack, waiter: Waiter) {
        stack.wait_datagram(self.id, waiter);
    }

    fn cancel(&self, stack: &mut SystemStack, waiter: &Waiter) {
        stack.cancel_datagram(self.id, waiter);
    }
}

struct Send<'a> {
    id: DatagramId,
    data: &'a [u8],
    to: SocketAddr,
}

impl Attempt for Send<'_> {
    type Output = usize;

    fn attempt(&mut self, stack: &mut SystemStack, now: StackInstant) -> io::Result<usize> {
        stack.send_to(self.id, self.data, self.to, now)
    }

    fn register(&self, stack: &mut SystemStack, waiter: Waiter) {
        stack.wait_datagram(self.id, waiter);
    }

    fn cancel(&self, stack: &mut SystemStack, waiter: &Waiter) {
        stack.cancel_datagram(self.id, waiter);
    }
}
