//! [`UdpSocket`].

use core::net::{SocketAddr, SocketAddrV4};
use core::time::Duration;

use smoltcp::time::Instant as StackInstant;

use super::addr::ToSocketAddrs;
use super::stack::DatagramId;
use super::system::{Attempt, SystemStack, lock, now, wait_for};
use crate::io::{self, Error, ErrorKind};
use crate::sync::SpinLock;
use crate::thread::Thread;

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
}

impl UdpSocket {
    /// Binds to an address; port 0 takes a free one.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Ok(Self {
            id: lock().bind(address.to_socket_addr()?)?,
            limit: SpinLock::new(None),
        })
    }

    /// Sends a datagram. When the socket's buffer is full (an address that
    /// does not answer), fails with `WouldBlock`.
    pub fn send_to(&self, data: &[u8], to: impl ToSocketAddrs) -> io::Result<usize> {
        lock().send_to(self.id, data, to.to_socket_addr()?, now())
    }

    /// Waits for a datagram; what does not fit into `buf` is lost.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let timeout = *self.limit.lock();
        let (n, from) = wait_for(timeout, Receive { id: self.id, buf })?;
        Ok((n, SocketAddr::V4(from)))
    }

    /// Where this is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::V4(lock().bound(self.id)?))
    }

    /// How long receiving waits before it fails with `TimedOut`.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        if limit == Some(Duration::ZERO) {
            return Err(Error::new(ErrorKind::InvalidInput, "a timeout of zero"));
        }
        *self.limit.lock() = limit;
        Ok(())
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
}

impl Attempt for Receive<'_> {
    type Output = (usize, SocketAddrV4);

    fn attempt(&mut self, stack: &mut SystemStack, _: StackInstant) -> io::Result<Self::Output> {
        stack.receive_from(self.id, self.buf)
    }

    fn register(&self, stack: &mut SystemStack, waiter: Thread) {
        stack.wait_datagram(self.id, waiter);
    }

    fn cancel(&self, stack: &mut SystemStack, waiter: &Thread) {
        stack.cancel_datagram(self.id, waiter);
    }
}
