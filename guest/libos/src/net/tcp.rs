//! [`TcpListener`] and [`TcpStream`].

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use tare_net::binding::Binding;
use tare_net::readiness::{Interest, Interests, Readiness};
use tare_net::stack::Instant as StackInstant;
use tare_net::stack::{ConnectionId, Half, ListenerId, Sending};

use super::addr::ToSocketAddrs;
use super::later;
use super::ready::{Source, Watched};
use super::system::{Attempt, SystemStack, lock, now, wait_for};
use super::waiter::Waiter;
use crate::io::{self, Error, ErrorKind, IoSlice, Read, Write};
use crate::task;

/// Which halves of a connection to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// What the peer sends.
    Read,
    /// What this side sends; the peer reads an end.
    Write,
    /// Both.
    Both,
}

/// Probes of a silent peer (RFC 9293, 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes, at least a second.
    pub interval: Duration,
    /// Probes without answer before the connection is lost.
    pub probes: u32,
}

fn to_stack(time: Duration) -> tare_tcp::time::Duration {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 2);
    tare_tcp::time::Duration::from_micros(micros)
}

/// The limit of calls that must not wait.
const NOT_AT_ALL: Option<Duration> = Some(Duration::ZERO);

/// A limit for waiting: none, or nanoseconds. Zero means not to wait at all.
#[derive(Debug)]
struct Limit(AtomicU64);

impl Limit {
    const NONE: u64 = u64::MAX;

    const fn none() -> Self {
        Self(AtomicU64::new(Self::NONE))
    }

    fn set(&self, limit: Option<Duration>) -> io::Result<()> {
        let ns = match limit {
            Some(Duration::ZERO) => {
                return Err(Error::new(ErrorKind::InvalidInput, "a timeout of zero"));
            }
            Some(limit) => u64::try_from(limit.as_nanos()).unwrap_or(Self::NONE),
            None => Self::NONE,
        };
        self.0.store(ns, Ordering::Relaxed);
        Ok(())
    }

    fn get(&self) -> Option<Duration> {
        let ns = self.0.load(Ordering::Relaxed);
        (ns != Self::NONE).then(|| Duration::from_nanos(ns))
    }

    fn unless(&self, nonblocking: &AtomicBool) -> Option<Duration> {
        if nonblocking.load(Ordering::Relaxed) {
            NOT_AT_ALL
        } else {
            self.get()
        }
    }
}

/// A port that accepts connections.
///
/// ```
/// use tare_libos::io::{Read, Write};
/// use tare_libos::net::{TcpListener, TcpStream};
/// use tare_libos::thread;
///
/// let listener = TcpListener::bind("0.0.0.0:7")?;
/// let echo = thread::spawn(move || -> tare_libos::io::Result<()> {
///     let (mut stream, _peer) = listener.accept()?;
///     let mut buf = [0; 100];
///     let n = stream.read(&mut buf)?;
///     stream.write_all(&buf[..n])
/// });
/// let mut stream = TcpStream::connect("127.0.0.1:7")?;
/// stream.write_all(b"hello")?;
/// let mut answer = [0; 5];
/// stream.read_exact(&mut answer)?;
/// assert_eq!(&answer, b"hello");
/// echo.join()?;
/// # Ok::<(), tare_libos::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TcpListener {
    id: ListenerId,
    local: SocketAddr,
    limit: Limit,
    nonblocking: AtomicBool,
}

impl TcpListener {
    /// Listens on an address; `[::]` is all of this appliance's, `0.0.0.0` those of
    /// IPv4, and port 0 a free one.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_with_backlog(address, usize::MAX)
    }

    /// Listens with at most `backlog` connections that wait to be accepted, within
    /// the limit that follows from the heap.
    pub fn bind_with_backlog(address: impl ToSocketAddrs, backlog: usize) -> io::Result<Self> {
        let local = address.to_socket_addrs()?.first();
        Self::bind_as(local.into(), backlog)
    }

    /// The same on an address that may leave IPv4 to other listeners.
    pub fn bind_as(local: Binding, backlog: usize) -> io::Result<Self> {
        let mut stack = lock();
        let backlog = backlog.min(stack.limits().backlog);
        let id = stack.listen_as(local, backlog)?;
        Ok(Self {
            id,
            local: stack.listens_on(id)?,
            limit: Limit::none(),
            nonblocking: AtomicBool::new(false),
        })
    }

    /// Waits for a connection.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_within(self.limit.unless(&self.nonblocking))
    }

    /// A connection that is there; else fails with `WouldBlock`.
    pub fn try_accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_within(NOT_AT_ALL)
    }

    /// Waits for a connection as a future, whatever [`set_nonblocking`](Self::set_nonblocking)
    /// and the time limit say.
    pub async fn accept_async(&self) -> io::Result<(TcpStream, SocketAddr)> {
        task::attempt(self, Interests::READ, || self.try_accept()).await
    }

    fn accept_within(&self, timeout: Option<Duration>) -> io::Result<(TcpStream, SocketAddr)> {
        let (id, peer) = wait_for(timeout, Accept(self.id))?;
        Ok((TcpStream::new(id), peer))
    }

    /// Connections one after the other, forever.
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<TcpStream>> + '_ {
        core::iter::repeat_with(|| self.accept().map(|(stream, _)| stream))
    }

    /// Where this listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    /// How long [`accept`](Self::accept) waits before it fails with `TimedOut`.
    pub fn set_accept_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.limit.set(limit)
    }

    /// Whether `accept` fails with `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }
}

impl Watched for TcpListener {
    fn state(&self, stack: &mut SystemStack) -> Readiness {
        stack.listener_readiness(self.id)
    }

    fn add(&self, stack: &mut SystemStack, _: Interest, waiter: Waiter) {
        stack.wait_accept(self.id, waiter);
    }

    fn remove(&self, stack: &mut SystemStack, _: Interest, waiter: &Waiter) {
        stack.cancel_accept(self.id, waiter);
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        lock().close_listener(self.id, now());
    }
}

struct Accept(ListenerId);

impl Attempt for Accept {
    type Output = (ConnectionId, SocketAddr);

    fn attempt(&mut self, stack: &mut SystemStack, _: StackInstant) -> io::Result<Self::Output> {
        stack.accept(self.0)
    }

    fn register(&self, stack: &mut SystemStack, waiter: Waiter) {
        stack.wait_accept(self.0, waiter);
    }

    fn cancel(&self, stack: &mut SystemStack, waiter: &Waiter) {
        stack.cancel_accept(self.0, waiter);
    }
}

/// A TCP connection. Dropping it (and its clones) sends what was written and
/// ends it.
#[derive(Debug)]
pub struct TcpStream {
    socket: Arc<Socket>,
}

#[derive(Debug)]
struct Socket {
    id: ConnectionId,
    read_limit: Limit,
    write_limit: Limit,
    nonblocking: AtomicBool,
    resets: AtomicBool,
}

impl TcpStream {
    fn new(id: ConnectionId) -> Self {
        Self {
            socket: Arc::new(Socket {
                id,
                read_limit: Limit::none(),
                write_limit: Limit::none(),
                nonblocking: AtomicBool::new(false),
                resets: AtomicBool::new(false),
            }),
        }
    }

    /// Connects to an address, or fails with `TimedOut` after `timeout`.
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        if timeout.is_zero() {
            return Err(Error::new(ErrorKind::InvalidInput, "a timeout of zero"));
        }
        Self::connect_within(*address, Some(timeout))
    }

    pub(super) fn connect_within(
        remote: SocketAddr,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        let stream = Self::new(lock().connect(remote, now())?);
        stream.wait(timeout, Interest::Writable, |stack, id, _| {
            stack.connected(id)
        })?;
        Ok(stream)
    }

    /// Begins to connect and does not wait; reads and writes do not either. When the
    /// stream is writable, [`take_error`](Self::take_error) gives the result.
    pub fn connect_nonblocking(address: impl ToSocketAddrs) -> io::Result<Self> {
        let remote = address.to_socket_addrs()?.first();
        Self::new(lock().connect(remote, now())?).nonblocking()
    }

    /// The same from an address of this appliance; port 0 is a free one. Fails with
    /// `AddrNotAvailable` if there is such a connection.
    pub fn connect_nonblocking_from(local: Binding, remote: SocketAddr) -> io::Result<Self> {
        Self::new(lock().connect_from(local, remote, now())?).nonblocking()
    }

    /// Connects to an address as a future.
    pub async fn connect_async(remote: SocketAddr) -> io::Result<Self> {
        let stream = Self::new(lock().connect(remote, now())?);
        let id = stream.socket.id;
        task::attempt(&stream, Interests::WRITE, || lock().connected(id)).await?;
        Ok(stream)
    }

    fn nonblocking(self) -> io::Result<Self> {
        self.set_nonblocking(true)?;
        Ok(self)
    }

    /// Why connecting failed or the connection was lost; the same at each call.
    pub fn take_error(&self) -> io::Result<Option<Error>> {
        lock().failure(self.socket.id)
    }

    /// Whether it has been opened, and was not lost.
    pub fn is_connected(&self) -> bool {
        lock().connected(self.socket.id).is_ok()
    }

    /// Reads what is there; else fails with `WouldBlock`.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        lock().read(self.socket.id, buf, now())
    }

    /// Reads what is there without taking; else fails with `WouldBlock`.
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        lock().peek(self.socket.id, buf)
    }

    /// Writes as much as there is room for; without room fails with `WouldBlock`.
    pub fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        lock().write(self.socket.id, parts, now())
    }

    /// The same for bytes that may wait for [`send_written`](super::send_written).
    pub fn try_write_as(&self, parts: &[IoSlice<'_>], sending: Sending) -> io::Result<usize> {
        let sending = later::begin_write(sending);
        let mut stack = lock();
        let written = stack.write_as(self.socket.id, parts, sending, now());
        later::end_write(&stack);
        written
    }

    /// Bytes that a read would give at once.
    pub fn bytes_readable(&self) -> io::Result<usize> {
        lock().bytes_readable(self.socket.id)
    }

    /// Probes a peer that is silent, and gives it up when it does not answer;
    /// `None`, as at first, never does.
    pub fn set_keepalive(&self, probes: Option<KeepAlive>) -> io::Result<()> {
        let probes = probes.map(|keep| tare_tcp::KeepAlive {
            idle: to_stack(keep.idle),
            interval: to_stack(keep.interval),
            probes: keep.probes,
        });
        lock().set_keep_alive(self.socket.id, probes, now())
    }

    /// Gives a peer up that acknowledges nothing for this long; `None` is the limit of all connections again.
    pub fn set_user_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        let limit = limit.map(to_stack);
        lock().set_user_timeout(self.socket.id, limit, now())
    }

    fn wait<R>(
        &self,
        timeout: Option<Duration>,
        interest: Interest,
        attempt: impl FnMut(&mut SystemStack, ConnectionId, StackInstant) -> io::Result<R>,
    ) -> io::Result<R> {
        let id = self.socket.id;
        wait_for(
            timeout,
            OnConnection {
                id,
                interest,
                attempt,
            },
        )
    }

    /// Reads without taking.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let timeout = self.socket.read_limit.unless(&self.socket.nonblocking);
        self.wait(timeout, Interest::Readable, |stack, id, _| {
            stack.peek(id, buf)
        })
    }

    /// Ends one or both halves; what was written is still sent.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let mut stack = lock();
        if how != Shutdown::Write {
            stack.shutdown(self.socket.id, Half::Read, now())?;
        }
        if how != Shutdown::Read {
            stack.shutdown(self.socket.id, Half::Write, now())?;
        }
        Ok(())
    }

    /// The other side's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(lock().flow(self.socket.id)?.remote)
    }

    /// This side's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(lock().flow(self.socket.id)?.local)
    }

    /// How long a read waits before it fails with `TimedOut`.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.socket.read_limit.set(limit)
    }

    /// How long a write waits before it fails with `TimedOut`.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.socket.write_limit.set(limit)
    }

    /// Whether small writes are sent at once, without waiting for the
    /// acknowledgement of earlier ones.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        lock().set_nodelay(self.socket.id, nodelay, now())
    }

    /// Whether a last segment that is not full waits for what is written next, at most
    /// 200 ms (Linux: `TCP_CORK`).
    pub fn set_corked(&self, corked: bool) -> io::Result<()> {
        lock().set_corked(self.socket.id, corked, now())
    }

    /// Whether the connection ends with a reset when its last handle is dropped: what was written
    /// and not sent is lost (Linux: `SO_LINGER` with no time).
    pub fn set_reset_on_close(&self, resets: bool) {
        self.socket.resets.store(resets, Ordering::Relaxed);
    }

    /// Whether reads and writes fail with `WouldBlock` instead of waiting.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket
            .nonblocking
            .store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a read would not wait: there is data, the end, or an error.
    pub fn readable(&self) -> bool {
        self.readiness().readable
    }

    /// Another handle of the same connection, for another thread.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: Arc::clone(&self.socket),
        })
    }
}

impl Watched for TcpStream {
    fn state(&self, stack: &mut SystemStack) -> Readiness {
        stack.readiness(self.socket.id)
    }

    fn add(&self, stack: &mut SystemStack, interest: Interest, waiter: Waiter) {
        stack.wait(self.socket.id, interest, waiter);
    }

    fn remove(&self, stack: &mut SystemStack, interest: Interest, waiter: &Waiter) {
        stack.cancel(self.socket.id, interest, waiter);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut stack = lock();
        if *self.resets.get_mut() {
            stack.abort(self.id, now());
        } else {
            stack.close(self.id, now());
        }
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let timeout = self.socket.read_limit.unless(&self.socket.nonblocking);
        self.wait(timeout, Interest::Readable, |stack, id, now| {
            stack.read(id, buf, now)
        })
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let timeout = self.socket.write_limit.unless(&self.socket.nonblocking);
        self.wait(timeout, Interest::Writable, |stack, id, now| {
            stack.write(id, parts, now)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct OnConnection<F> {
    id: ConnectionId,
    interest: Interest,
    attempt: F,
}

impl<R, F> Attempt for OnConnection<F>
where
    F: FnMut(&mut SystemStack, ConnectionId, StackInstant) -> io::Result<R>,
{
    type Output = R;

    fn attempt(&mut self, stack: &mut SystemStack, now: StackInstant) -> io::Result<R> {
        (self.attempt)(stack, self.id, now)
    }

    fn register(&self, stack: &mut SystemStack, waiter: Waiter) {
        stack.wait(self.id, self.interest, waiter);
    }

    fn cancel(&self, stack: &mut SystemStack, waiter: &Waiter) {
        stack.cancel(self.id, self.interest, waiter);
    }
}
