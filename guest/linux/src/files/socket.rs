//! Sockets of IPv4: TCP and UDP.

use alloc::string::String;
use alloc::sync::Arc;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::general::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, S_IFSOCK};
use tare_libos::io::IoSlice;
use tare_libos::net::{
    Interests, Observer, Readiness, Shutdown, Source, Take, TcpListener, TcpStream, UdpSocket,
};
use tare_libos::sync::SpinLock;
use tare_libos::thread::Thread as Waiter;

use super::{File, Status, Watchers};
use crate::errno::{Errno, Result};

/// Any address, any port.
const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// What a socket is by now.
#[derive(Clone)]
enum State {
    /// Made, maybe bound.
    Stream(SocketAddrV4),
    Listening(Arc<TcpListener>),
    Connected(Arc<TcpStream>),
    /// UDP, bound by its first use.
    Datagram(Option<Arc<UdpSocket>>),
}

/// Wakes those who watch a socket.
struct Wakes(Watchers);

impl Observer for Wakes {
    fn ready(&self, _token: u64) {
        self.0.wake();
    }
}

/// A socket.
pub(crate) struct Socket {
    state: SpinLock<State>,
    wakes: Arc<Wakes>,
    no_delay: AtomicBool,
    /// A connection is being opened, and its result not reported.
    is_opening: AtomicBool,
}

impl Socket {
    fn new(state: State) -> Self {
        Self {
            state: SpinLock::new(state),
            wakes: Arc::new(Wakes(Watchers::new())),
            no_delay: AtomicBool::new(false),
            is_opening: AtomicBool::new(false),
        }
    }

    /// A TCP socket.
    pub(crate) fn stream() -> Self {
        Self::new(State::Stream(ANY))
    }

    /// A UDP socket.
    pub(crate) fn datagram() -> Self {
        Self::new(State::Datagram(None))
    }

    fn state(&self) -> State {
        self.state.lock().clone()
    }

    pub(crate) fn is_datagram(&self) -> bool {
        matches!(*self.state.lock(), State::Datagram(_))
    }

    pub(crate) fn bind(&self, address: SocketAddrV4) -> Result<()> {
        match self.state() {
            State::Stream(ANY) => *self.state.lock() = State::Stream(address),
            State::Datagram(None) => {
                let socket = UdpSocket::bind(SocketAddr::V4(address))?;
                *self.state.lock() = State::Datagram(Some(Arc::new(socket)));
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    pub(crate) fn listen(&self, backlog: usize) -> Result<()> {
        let State::Stream(address) = self.state() else {
            return Err(Errno::EINVAL);
        };
        let listener = TcpListener::bind_with_backlog(SocketAddr::V4(address), backlog.max(1))?;
        *self.state.lock() = State::Listening(Arc::new(listener));
        self.wakes.0.wake();
        Ok(())
    }

    pub(crate) fn accept(&self) -> Result<(Self, SocketAddrV4)> {
        let State::Listening(listener) = self.state() else {
            return Err(Errno::EINVAL);
        };
        let (stream, peer) = listener.try_accept()?;
        Ok((Self::new(State::Connected(Arc::new(stream))), v4(peer)))
    }

    /// Begins a connection: EINPROGRESS until it is there.
    pub(crate) fn connect(&self, address: SocketAddrV4) -> Result<()> {
        match self.state() {
            State::Stream(_) => {
                let stream = TcpStream::connect_nonblocking(SocketAddr::V4(address))?;
                stream
                    .set_nodelay(self.no_delay.load(Ordering::Relaxed))
                    .ok();
                *self.state.lock() = State::Connected(Arc::new(stream));
                self.is_opening.store(true, Ordering::Relaxed);
                self.wakes.0.wake();
                Err(Errno::EINPROGRESS)
            }
            State::Datagram(_) => Ok(self.udp()?.connect(SocketAddr::V4(address))?),
            State::Connected(_) if self.is_opening.load(Ordering::Relaxed) => Err(Errno::EALREADY),
            State::Connected(_) => Err(Errno::EISCONN),
            State::Listening(_) => Err(Errno::EINVAL),
        }
    }

    /// The result of [`connect`](Self::connect): EAGAIN until there is one.
    pub(crate) fn opened(&self) -> Result<()> {
        let State::Connected(stream) = self.state() else {
            return Err(Errno::ENOTCONN);
        };
        if let Some(error) = stream.take_error()? {
            return Err(error.into());
        }
        let ready = stream.readiness();
        if !ready.writable && !ready.failed && !ready.closed {
            return Err(Errno::EAGAIN);
        }
        self.is_opening.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The error that waits to be reported (`SO_ERROR`).
    pub(crate) fn take_error(&self) -> u32 {
        let State::Connected(stream) = self.state() else {
            return 0;
        };
        match stream.take_error() {
            Ok(Some(error)) | Err(error) => Errno::from(error).0,
            Ok(None) => {
                self.is_opening.store(false, Ordering::Relaxed);
                0
            }
        }
    }

    pub(crate) fn set_no_delay(&self, on: bool) {
        self.no_delay.store(on, Ordering::Relaxed);
        if let State::Connected(stream) = self.state() {
            stream.set_nodelay(on).ok();
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> Result<()> {
        match self.state() {
            State::Connected(stream) => Ok(stream.shutdown(how)?),
            State::Listening(_) => Ok(()),
            _ => Err(Errno::ENOTCONN),
        }
    }

    pub(crate) fn local(&self) -> Result<SocketAddrV4> {
        Ok(match self.state() {
            State::Stream(address) => address,
            State::Listening(listener) => v4(listener.local_addr()?),
            State::Connected(stream) => v4(stream.local_addr()?),
            State::Datagram(Some(socket)) => v4(socket.local_addr()?),
            State::Datagram(None) => ANY,
        })
    }

    pub(crate) fn peer(&self) -> Result<SocketAddrV4> {
        match self.state() {
            State::Connected(stream) => Ok(v4(stream.peer_addr()?)),
            State::Datagram(Some(socket)) => Ok(v4(socket.peer_addr()?)),
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// The UDP socket, bound to any port if it is not yet.
    fn udp(&self) -> Result<Arc<UdpSocket>> {
        match self.state() {
            State::Datagram(Some(socket)) => Ok(socket),
            State::Datagram(None) => {
                self.bind(ANY)?;
                self.udp()
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Receives; says from whom.
    pub(crate) fn receive(
        &self,
        to: &mut [u8],
        peeks: bool,
    ) -> Result<(usize, Option<SocketAddrV4>)> {
        match self.state() {
            State::Connected(stream) => {
                let count = if peeks {
                    stream.try_peek(to)?
                } else {
                    stream.try_read(to)?
                };
                Ok((count, None))
            }
            State::Datagram(_) => {
                let take = if peeks { Take::Peek } else { Take::Remove };
                let (count, from) = self.udp()?.try_recv_from(to, take)?;
                Ok((count, Some(v4(from))))
            }
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// Sends to the peer, or to an address.
    pub(crate) fn send(&self, from: &[u8], to: Option<SocketAddrV4>) -> Result<usize> {
        match (self.state(), to) {
            (State::Connected(stream), _) => Ok(stream.try_write(&[IoSlice::new(from)])?),
            (State::Datagram(_), Some(to)) => Ok(self.udp()?.send_to(from, SocketAddr::V4(to))?),
            (State::Datagram(_), None) => Ok(self.udp()?.send(from)?),
            _ => Err(Errno::EPIPE),
        }
    }

    fn with_source<R>(&self, act: impl FnOnce(&dyn Source) -> R) -> Option<R> {
        match self.state() {
            State::Listening(listener) => Some(act(&*listener)),
            State::Connected(stream) => Some(act(&*stream)),
            State::Datagram(_) => self.udp().ok().map(|socket| act(&*socket)),
            State::Stream(_) => None,
        }
    }
}

fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => ANY,
    }
}

fn bits(ready: Readiness) -> u32 {
    let bit = |has, bit| if has { bit } else { 0 };
    bit(ready.readable, POLLIN)
        | bit(ready.writable, POLLOUT)
        | bit(ready.peer_finished, POLLIN | POLLRDHUP)
        | bit(ready.closed, POLLHUP | POLLIN | POLLRDHUP)
        | bit(ready.failed, POLLERR | POLLHUP | POLLIN | POLLOUT)
}

impl File for Socket {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        self.receive(to, false).map(|(count, _)| count)
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        self.send(from, None)
    }

    fn status(&self) -> Status {
        Status {
            mode: S_IFSOCK | 0o777,
            links: 1,
            ..Status::default()
        }
    }

    fn ready(&self) -> u32 {
        let ready = self.with_source(|source| source.readiness());
        ready.map_or(POLLOUT | POLLHUP, bits)
    }

    fn watch(&self, waiter: &Waiter) {
        self.wakes.0.add(waiter);
        let observer: Arc<dyn Observer> = self.wakes.clone();
        self.with_source(|source| source.watch(Interests::BOTH, &observer, 0));
    }

    fn unwatch(&self, waiter: &Waiter) {
        self.wakes.0.remove(waiter);
    }

    fn name(&self) -> String {
        String::from("socket:[1]")
    }
}
