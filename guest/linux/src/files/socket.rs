//! Sockets of IPv4 and IPv6: TCP and UDP.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use linux_raw_sys::general::{
    POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, POLLRDNORM, POLLWRNORM, S_IFSOCK,
};
use linux_raw_sys::net::{AF_INET, AF_INET6, SO_REUSEADDR, SO_REUSEPORT, SOL_SOCKET};
use tare_libos::io::IoSlice;
use tare_libos::net::{
    Binding, Interests, Observer, Readiness, Sending, Sharing, Shutdown, Source, Take, TcpListener,
    TcpStream, UdpSocket,
};
use tare_libos::sync::SpinLock;
use tare_libos::thread::Thread as Waiter;

use super::bound::{BOUND, Bound, expect_here};
use super::endpoint::{Address, Half, Received, SocketKind};
use super::watch::Item;
use super::{Endpoint, File, Status, Watchers, keep_alive};
use crate::errno::{Errno, Result};

/// What a socket is by now.
#[derive(Clone)]
enum State {
    /// Made, maybe bound.
    Stream,
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

/// Bits of a socket's halves that were shut down.
const READING: u32 = 1;
const WRITING: u32 = 2;

/// What becomes of bytes that are not sent when a connection is closed (`SO_LINGER`).
#[derive(Clone, Copy, Default)]
pub(crate) struct Linger {
    pub(crate) is_on: bool,
    /// The last time that was set. Closing waits for no time; without one the connection is reset.
    pub(crate) seconds: u32,
}

/// A socket.
pub(crate) struct Socket {
    family: u32,
    state: SpinLock<State>,
    /// A stream socket's address.
    bound: SpinLock<Option<Bound>>,
    only_v6: AtomicBool,
    wakes: Arc<Wakes>,
    no_delay: AtomicBool,
    corked: AtomicBool,
    linger: SpinLock<Linger>,
    keep_alive: SpinLock<keep_alive::Settings>,
    /// Halves of a datagram socket that were shut down.
    shut: AtomicU32,
    /// Options without effect, and their values, as they are read back.
    hints: SpinLock<Vec<((u32, u32), u32)>>,
    /// More follows what is being sent (`MSG_MORE`).
    has_more: AtomicBool,
    /// A connection is being opened, and its result not reported.
    is_opening: AtomicBool,
    /// Why the connection failed has been reported (`SO_ERROR`).
    is_reported: AtomicBool,
}

/// Tells the stack what a peer's silence means.
fn silence(stream: &TcpStream, settings: &keep_alive::Settings) {
    stream.set_keepalive(settings.probes()).ok();
    stream.set_user_timeout(settings.limit()).ok();
}

impl Linger {
    /// Whether the end of a connection is a reset (`tcp_close` in net/ipv4/tcp.c).
    fn resets(self) -> bool {
        self.is_on && self.seconds == 0
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(bound) = self.bound.get_mut().take() {
            BOUND.lock().give(bound);
        }
    }
}

impl Socket {
    fn with(family: u32, state: State) -> Self {
        Self {
            family,
            state: SpinLock::new(state),
            bound: SpinLock::new(None),
            only_v6: AtomicBool::new(false),
            wakes: Arc::new(Wakes(Watchers::new())),
            no_delay: AtomicBool::new(false),
            corked: AtomicBool::new(false),
            linger: SpinLock::default(),
            keep_alive: SpinLock::default(),
            shut: AtomicU32::new(0),
            hints: SpinLock::default(),
            has_more: AtomicBool::new(false),
            is_opening: AtomicBool::new(false),
            is_reported: AtomicBool::new(false),
        }
    }

    /// A socket of AF_INET or AF_INET6.
    pub(crate) fn new(family: u32, kind: SocketKind) -> Self {
        let state = match kind {
            SocketKind::Datagram | SocketKind::Raw => State::Datagram(None),
            SocketKind::Stream | SocketKind::Packets => State::Stream,
        };
        Self::with(family, state)
    }

    fn state(&self) -> State {
        self.state.lock().clone()
    }

    fn any(&self) -> SocketAddr {
        match self.family {
            AF_INET6 => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        }
    }

    /// An address of the program as the stack has it: those of IPv4 as such.
    fn to_stack(&self, address: &Address) -> Result<SocketAddr> {
        let &Address::Ip(address) = address else {
            return Err(Errno::EAFNOSUPPORT);
        };
        match (address.ip(), self.family) {
            (IpAddr::V4(_), AF_INET) => Ok(address),
            (IpAddr::V6(ip), AF_INET6) => Ok(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddr::from((ip, address.port())),
                None => address,
            }),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// The same of a peer: no address at all is this host.
    fn to_peer(&self, address: &Address) -> Result<SocketAddr> {
        let mut address = self.to_stack(address)?;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        Ok(address)
    }

    /// An address of the stack as the program reads it.
    fn shown(&self, address: SocketAddr) -> Address {
        Address::Ip(match address.ip() {
            IpAddr::V4(ip) if self.family == AF_INET6 && ip.is_unspecified() => {
                SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()))
            }
            IpAddr::V4(ip) if self.family == AF_INET6 => {
                SocketAddr::from((ip.to_ipv6_mapped(), address.port()))
            }
            _ => address,
        })
    }

    pub(crate) fn set_only_v6(&self, on: bool) -> Result<()> {
        let is_bound =
            self.bound.lock().is_some() || matches!(self.state(), State::Datagram(Some(_)));
        if self.family != AF_INET6 || is_bound {
            return Err(Errno::EINVAL);
        }
        self.only_v6.store(on, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn only_v6(&self) -> bool {
        self.only_v6.load(Ordering::Relaxed)
    }

    fn binding(&self, address: SocketAddr) -> Binding {
        let is_on = |option| {
            self.hint((SOL_SOCKET, option))
                .is_some_and(|word| word != 0)
        };
        Binding {
            address,
            only_v6: self.only_v6(),
            sharing: Sharing {
                address: is_on(SO_REUSEADDR),
                port: is_on(SO_REUSEPORT),
            },
        }
    }

    pub(crate) fn bind(&self, address: &Address) -> Result<()> {
        let address = self.to_stack(address)?;
        let binding = self.binding(address);
        match self.state() {
            State::Stream if self.bound.lock().is_none() => {
                expect_here(address.ip())?;
                *self.bound.lock() = Some(BOUND.lock().take(binding)?);
            }
            State::Datagram(None) => {
                expect_here(address.ip())?;
                let socket = UdpSocket::bind_as(binding)?;
                socket.set_nonblocking(true)?;
                *self.state.lock() = State::Datagram(Some(Arc::new(socket)));
                // Who waits for a datagram already waits for this socket from now on.
                self.wakes.0.wake();
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Begins a connection: EINPROGRESS until it is there.
    pub(crate) fn connect(&self, address: &Address) -> Result<()> {
        let address = self.to_peer(address)?;
        match self.state() {
            State::Stream => {
                let bound = *self.bound.lock();
                let from = bound.map_or_else(|| self.binding(self.any()), |bound| bound.at);
                let stream = TcpStream::connect_nonblocking_from(from, address)?;
                stream.set_nodelay(self.no_delay()).ok();
                stream.set_corked(self.corked()).ok();
                stream.set_reset_on_close(self.linger().resets());
                if self.keep_alive() != keep_alive::Settings::default() {
                    silence(&stream, &self.keep_alive());
                }
                *self.state.lock() = State::Connected(Arc::new(stream));
                self.is_opening.store(true, Ordering::Relaxed);
                self.wakes.0.wake();
                Err(Errno::EINPROGRESS)
            }
            State::Datagram(_) => Ok(self.udp()?.connect(address)?),
            State::Connected(_) if self.is_opening.load(Ordering::Relaxed) => match self.opened() {
                Err(Errno::EAGAIN) => Err(Errno::EALREADY),
                opened => opened,
            },
            State::Connected(_) => Err(Errno::EISCONN),
            State::Listening(_) => Err(Errno::EINVAL),
        }
    }

    /// Takes the peer of a UDP socket back.
    pub(crate) fn disconnect(&self) -> Result<()> {
        match self.state() {
            State::Datagram(Some(socket)) => Ok(socket.disconnect()?),
            State::Datagram(None) => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The result of [`connect`](Self::connect): EAGAIN until there is one. After a failure
    /// the socket is as before, and may try again.
    pub(crate) fn opened(&self) -> Result<()> {
        let State::Connected(stream) = self.state() else {
            return Err(Errno::ENOTCONN);
        };
        if let Some(error) = stream.take_error()? {
            *self.state.lock() = State::Stream;
            self.is_opening.store(false, Ordering::Relaxed);
            return Err(if self.is_reported.swap(false, Ordering::Relaxed) {
                Errno::ECONNABORTED
            } else {
                error.into()
            });
        }
        let ready = stream.readiness();
        if !ready.writable && !ready.failed && !ready.closed {
            return Err(Errno::EAGAIN);
        }
        self.is_opening.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Keeps the value of an option that has no effect.
    pub(crate) fn set_hint(&self, option: (u32, u32), value: u32) {
        const MOST: usize = 32;
        let mut hints = self.hints.lock();
        if let Some((_, old)) = hints.iter_mut().find(|(known, _)| *known == option) {
            *old = value;
        } else if hints.len() < MOST {
            hints.push((option, value));
        }
    }

    pub(crate) fn hint(&self, option: (u32, u32)) -> Option<u32> {
        let hints = self.hints.lock();
        let known = hints.iter().find(|(known, _)| *known == option);
        known.map(|(_, value)| *value)
    }

    pub(crate) fn set_no_delay(&self, on: bool) {
        self.no_delay.store(on, Ordering::Relaxed);
        if let State::Connected(stream) = self.state() {
            stream.set_nodelay(on).ok();
        }
    }

    pub(crate) fn no_delay(&self) -> bool {
        self.no_delay.load(Ordering::Relaxed)
    }

    pub(crate) fn set_corked(&self, on: bool) {
        self.corked.store(on, Ordering::Relaxed);
        if let State::Connected(stream) = self.state() {
            stream.set_corked(on).ok();
        }
    }

    /// Seconds; none turns it off.
    pub(crate) fn set_linger(&self, seconds: Option<u32>) {
        self.take_linger(Linger {
            is_on: seconds.is_some(),
            seconds: seconds.unwrap_or(self.linger().seconds),
        });
    }

    fn take_linger(&self, linger: Linger) {
        *self.linger.lock() = linger;
        if let State::Connected(stream) = self.state() {
            stream.set_reset_on_close(linger.resets());
        }
    }

    pub(crate) fn set_keep_alive(&self, settings: keep_alive::Settings) {
        *self.keep_alive.lock() = settings;
        if let State::Connected(stream) = self.state() {
            silence(&stream, &settings);
        }
    }

    pub(crate) fn keep_alive(&self) -> keep_alive::Settings {
        *self.keep_alive.lock()
    }

    pub(crate) fn linger(&self) -> Linger {
        *self.linger.lock()
    }

    /// Runs `act`: more follows what it sends, if there is a socket.
    pub(crate) fn with_more<R>(socket: Option<&Self>, act: impl FnOnce() -> R) -> R {
        let had_more = socket.map(|socket| socket.has_more.swap(true, Ordering::Relaxed));
        let result = act();
        if let (Some(socket), Some(had_more)) = (socket, had_more) {
            socket.has_more.store(had_more, Ordering::Relaxed);
        }
        result
    }

    pub(crate) fn corked(&self) -> bool {
        self.corked.load(Ordering::Relaxed)
    }

    /// The UDP socket, bound to any port if it is not yet.
    fn udp(&self) -> Result<Arc<UdpSocket>> {
        match self.state() {
            State::Datagram(Some(socket)) => Ok(socket),
            State::Datagram(None) => {
                self.bind(&Address::Ip(self.any()))?;
                self.udp()
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Bits of `poll` for what the stack says; for a socket that is not in it yet.
    fn bits(&self, ready: Option<Readiness>) -> u32 {
        let mut bits = match (ready, self.kind()) {
            (Some(ready), _) => bits(ready),
            (None, SocketKind::Datagram) => POLLOUT | POLLWRNORM,
            (None, _) => POLLOUT | POLLHUP,
        };
        if self.is_shut(READING) {
            let both = if self.is_shut(WRITING) { POLLHUP } else { 0 };
            bits |= POLLIN | POLLRDHUP | both;
        }
        if self.is_reported.load(Ordering::Relaxed) {
            return bits & !POLLERR;
        }
        bits
    }

    fn is_shut(&self, half: u32) -> bool {
        self.shut.load(Ordering::SeqCst) & half != 0
    }

    /// Lets the stack tell of the next change; what it says now.
    fn watched(&self, interests: Interests) -> Option<Readiness> {
        let observer: Arc<dyn Observer> = self.wakes.clone();
        self.with_source(|source| source.watch(interests, &observer, 0))
    }

    fn with_source<R>(&self, act: impl FnOnce(&dyn Source) -> R) -> Option<R> {
        match self.state() {
            State::Listening(listener) => Some(act(&*listener)),
            State::Connected(stream) => Some(act(&*stream)),
            State::Datagram(Some(socket)) => Some(act(&*socket)),
            State::Stream | State::Datagram(None) => None,
        }
    }
}

impl Endpoint for Socket {
    fn family(&self) -> u32 {
        self.family
    }

    fn kind(&self) -> SocketKind {
        match *self.state.lock() {
            State::Datagram(_) => SocketKind::Datagram,
            _ => SocketKind::Stream,
        }
    }

    fn listen(&self, backlog: usize) -> Result<()> {
        match self.state() {
            State::Stream => {}
            State::Listening(_) => return Ok(()),
            State::Datagram(_) => return Err(Errno::EOPNOTSUPP),
            State::Connected(_) => return Err(Errno::EINVAL),
        }
        if self.bound.lock().is_none() {
            self.bind(&Address::Ip(self.any()))?;
        }
        let bound = (*self.bound.lock()).ok_or(Errno::EINVAL)?;
        let backlog = backlog.max(1);
        BOUND.lock().listen(bound)?;
        let listener = TcpListener::bind_as(bound.at, backlog)
            .inspect_err(|_| BOUND.lock().end_listening(bound))?;
        *self.state.lock() = State::Listening(Arc::new(listener));
        self.wakes.0.wake();
        Ok(())
    }

    fn is_listening(&self) -> bool {
        matches!(*self.state.lock(), State::Listening(_))
    }

    fn accept(&self) -> Result<(Arc<dyn File>, Address)> {
        let State::Listening(listener) = self.state() else {
            return Err(match self.kind() {
                SocketKind::Datagram => Errno::EOPNOTSUPP,
                _ => Errno::EINVAL,
            });
        };
        let (stream, peer) = listener.try_accept()?;
        let socket = Self::with(self.family, State::Connected(Arc::new(stream)));
        // As Linux passes options on.
        if self.no_delay() {
            socket.set_no_delay(true);
        }
        socket.take_linger(self.linger());
        if self.keep_alive() != keep_alive::Settings::default() {
            socket.set_keep_alive(self.keep_alive());
        }
        let hints = self.hints.lock().clone();
        *socket.hints.lock() = hints;
        Ok((Arc::new(socket), self.shown(peer)))
    }

    fn shutdown(&self, half: Half) -> Result<()> {
        let how = match half {
            Half::Read => Shutdown::Read,
            Half::Write => Shutdown::Write,
            Half::Both => Shutdown::Both,
        };
        match self.state() {
            State::Connected(stream) => Ok(stream.shutdown(how)?),
            // As Linux does: it listens no more, and may again.
            State::Listening(_) => {
                if half != Half::Write {
                    *self.state.lock() = State::Stream;
                    if let Some(bound) = *self.bound.lock() {
                        BOUND.lock().end_listening(bound);
                    }
                    self.wakes.0.wake();
                }
                Ok(())
            }
            // Who waits goes on, also without a peer (`inet_shutdown` in net/ipv4/af_inet.c).
            State::Datagram(socket) => {
                let halves = match half {
                    Half::Read => READING,
                    Half::Write => WRITING,
                    Half::Both => READING | WRITING,
                };
                self.shut.fetch_or(halves, Ordering::SeqCst);
                self.wakes.0.wake();
                let peer = socket.and_then(|socket| socket.peer_addr().ok());
                peer.map(drop).ok_or(Errno::ENOTCONN)
            }
            State::Stream => Err(Errno::ENOTCONN),
        }
    }

    fn local(&self) -> Result<Address> {
        let bound = *self.bound.lock();
        Ok(self.shown(match self.state() {
            State::Connected(stream) => stream.local_addr()?,
            State::Datagram(Some(socket)) => socket.local_addr()?,
            State::Listening(_) | State::Stream | State::Datagram(None) => {
                bound.map_or(self.any(), |bound| bound.at.address)
            }
        }))
    }

    fn peer(&self) -> Result<Address> {
        Ok(self.shown(match self.state() {
            // Not before it is connected, nor after it was lost (`inet_getname`).
            State::Connected(stream) if !stream.is_connected() => return Err(Errno::ENOTCONN),
            State::Connected(stream) => stream.peer_addr()?,
            State::Datagram(Some(socket)) => socket.peer_addr()?,
            _ => return Err(Errno::ENOTCONN),
        }))
    }

    fn receive(&self, to: &mut [u8], peeks: bool) -> Result<Received> {
        match self.state() {
            State::Connected(stream) => {
                let count = if peeks {
                    stream.try_peek(to)?
                } else {
                    stream.try_read(to)?
                };
                Ok(Received {
                    count,
                    length: count,
                    from: None,
                })
            }
            State::Datagram(socket) => {
                let take = if peeks { Take::Peek } else { Take::Remove };
                let room = to.len();
                let received = match socket {
                    Some(socket) => socket.try_recv_from(to, take).map_err(Errno::from),
                    // Only sending and connecting bind it.
                    None => Err(Errno::EAGAIN),
                };
                if matches!(received, Err(Errno::EAGAIN)) && self.is_shut(READING) {
                    return Ok(Received::default());
                }
                let (length, from) = received?;
                Ok(Received {
                    count: length.min(room),
                    length,
                    from: Some(self.shown(from)),
                })
            }
            _ => Err(Errno::ENOTCONN),
        }
    }

    fn send(&self, from: &[u8], to: Option<&Address>) -> Result<usize> {
        match (self.state(), to) {
            (State::Connected(stream), _) => {
                let sending = if self.has_more.load(Ordering::Relaxed) {
                    Sending::WithMore
                } else {
                    Sending::Later
                };
                Ok(stream.try_write_as(&[IoSlice::new(from)], sending)?)
            }
            (State::Datagram(_), _) if self.is_shut(WRITING) => Err(Errno::EPIPE),
            (State::Datagram(_), Some(to)) => Ok(self.udp()?.send_to(from, self.to_peer(to)?)?),
            (State::Datagram(_), None) => match self.udp()?.send(from).map_err(Errno::from) {
                Err(Errno::ENOTCONN) => Err(Errno::EDESTADDRREQ),
                sent => sent,
            },
            _ => Err(Errno::EPIPE),
        }
    }

    fn take_error(&self) -> u32 {
        let stream = match self.state() {
            State::Connected(stream) => stream,
            State::Datagram(Some(socket)) => {
                return socket.take_error().map_or(0, |error| Errno::from(error).0);
            }
            _ => return 0,
        };
        match stream.take_error() {
            Ok(Some(_)) if self.is_reported.swap(true, Ordering::Relaxed) => 0,
            Ok(Some(error)) | Err(error) => Errno::from(error).0,
            Ok(None) => 0,
        }
    }
}

fn bit(has: bool, bit: u32) -> u32 {
    if has { bit } else { 0 }
}

/// An error alone does not count as data. It ends a connection, which then is closed too, but not a
/// datagram socket (`datagram_poll` in Linux's net/core/datagram.c).
fn bits(ready: Readiness) -> u32 {
    bit(ready.readable && !ready.failed, POLLIN)
        | bit(ready.writable, POLLOUT)
        | bit(ready.peer_finished, POLLIN | POLLRDHUP)
        | bit(ready.closed, POLLHUP | POLLIN | POLLRDHUP)
        | bit(ready.failed, POLLERR)
}

/// What of a socket concerns who waits for these bits of `poll`.
fn interests(events: u32) -> Interests {
    let reads = events & (POLLIN | POLLRDNORM | POLLRDHUP) != 0;
    match (reads, events & (POLLOUT | POLLWRNORM) != 0) {
        (true, true) => Interests::BOTH,
        (true, false) => Interests::READ,
        (false, true) => Interests::WRITE,
        (false, false) => Interests::NONE,
    }
}

impl File for Socket {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        self.receive(to, false).map(|received| received.count)
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        self.send(from, None)
    }

    fn arrivals(&self) -> u64 {
        // Without a read, more bytes than before have come since.
        match self.state() {
            State::Connected(stream) => stream.bytes_readable().unwrap_or(0) as u64,
            _ => 0,
        }
    }

    fn endpoint(&self) -> Option<&dyn Endpoint> {
        Some(self)
    }

    fn status(&self) -> Result<Status> {
        Ok(Status {
            mode: S_IFSOCK | 0o777,
            links: 1,
            ..Status::default()
        })
    }

    fn ready(&self) -> u32 {
        self.bits(self.with_source(|source| source.readiness()))
    }

    fn readable_bytes(&self) -> Result {
        match self.state() {
            State::Connected(stream) => Ok(stream.bytes_readable()? as u64),
            State::Listening(_) => Err(Errno::EINVAL),
            State::Stream => Ok(0),
            State::Datagram(Some(socket)) => Ok(socket.next_bytes()?.unwrap_or(0) as u64),
            State::Datagram(None) => Ok(0),
        }
    }

    fn watch(&self, waiter: &Waiter) {
        self.wakes.0.add(waiter);
        self.watched(Interests::BOTH);
    }

    fn unwatch(&self, waiter: &Waiter) {
        self.wakes.0.remove(waiter);
    }

    fn arm(&self, item: &Arc<Item>) -> Option<u32> {
        self.wakes.0.arm(item);
        Some(self.bits(self.watched(interests(item.events()))))
    }

    fn name(&self) -> String {
        String::from("socket:[1]")
    }
}
