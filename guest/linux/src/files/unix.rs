//! Sockets of AF_UNIX (`unix(7)`): streams, datagrams and packets within the program.
//! Descriptors cannot be passed: there is one process.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, S_IFSOCK};
use linux_raw_sys::net::AF_UNIX;
use tare_libos::sync::SpinLock;
use tare_libos::thread::Thread as Waiter;

use super::endpoint::{Address, Half, Name, Received, SocketKind};
use super::{Endpoint, File, Status, Watchers};
use crate::errno::{Errno, Result};

/// Bytes that wait in one direction, as Linux's `wmem_default`.
const CAPACITY: usize = 212_992;
/// Most bytes of a message: Linux takes 32 for itself.
pub(crate) const MOST_MESSAGE: usize = CAPACITY - 32;
/// Messages that wait in one direction.
const MOST_MESSAGES: usize = 1024;

/// One direction of a connection, or what a datagram socket receives.
struct Channel {
    content: SpinLock<Content>,
    is_open: AtomicBool,
    /// The sender went with unread bytes: the reader finds ECONNRESET once, behind what came.
    is_reset: AtomicBool,
    sends: AtomicU64,
    watchers: Watchers,
}

/// Bytes of a stream, or messages with their senders.
enum Content {
    Bytes(VecDeque<u8>),
    Messages(VecDeque<(Vec<u8>, Name)>),
}

impl Content {
    fn length(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Messages(all) => all.iter().map(|(bytes, _)| bytes.len()).sum(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Messages(all) => all.is_empty(),
        }
    }

    /// Whether something can be added.
    fn has_room(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.len() < CAPACITY,
            Self::Messages(all) => all.len() < MOST_MESSAGES && self.length() < CAPACITY,
        }
    }
}

impl Channel {
    fn new(kind: SocketKind) -> Arc<Self> {
        let content = match kind {
            SocketKind::Stream => Content::Bytes(VecDeque::new()),
            SocketKind::Datagram | SocketKind::Packets => Content::Messages(VecDeque::new()),
        };
        Arc::new(Self {
            content: SpinLock::new(content),
            is_open: AtomicBool::new(true),
            is_reset: AtomicBool::new(false),
            sends: AtomicU64::new(0),
            watchers: Watchers::new(),
        })
    }

    fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }

    fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        self.watchers.wake();
    }

    fn send(&self, from: &[u8], sender: &Name) -> Result<usize> {
        let mut content = self.content.lock();
        let has_room = content.has_room();
        let length = content.length();
        let sent = match &mut *content {
            _ if !has_room => return Err(Errno::EAGAIN),
            Content::Bytes(bytes) => {
                let count = from.len().min(CAPACITY - bytes.len());
                bytes.extend(&from[..count]);
                count
            }
            Content::Messages(_) if from.len() > MOST_MESSAGE => return Err(Errno::EMSGSIZE),
            Content::Messages(_) if length + from.len() > CAPACITY => return Err(Errno::EAGAIN),
            Content::Messages(all) => {
                all.push_back((from.into(), sender.clone()));
                from.len()
            }
        };
        self.sends.fetch_add(1, Ordering::Relaxed);
        drop(content);
        self.watchers.wake();
        Ok(sent)
    }

    /// Takes, or with `peeks` copies, what there is; EAGAIN for nothing.
    fn receive(&self, to: &mut [u8], peeks: bool) -> Result<Received> {
        let mut content = self.content.lock();
        if content.is_empty() {
            return if self.is_reset.swap(false, Ordering::SeqCst) {
                Err(Errno::ECONNRESET)
            } else if self.is_open() {
                Err(Errno::EAGAIN)
            } else {
                Ok(Received::default())
            };
        }
        let received = match &mut *content {
            Content::Bytes(bytes) => {
                let count = to.len().min(bytes.len());
                for (slot, byte) in to.iter_mut().zip(bytes.iter()) {
                    *slot = *byte;
                }
                if !peeks {
                    bytes.drain(..count);
                }
                Received {
                    count,
                    length: count,
                    from: None,
                }
            }
            Content::Messages(all) => {
                let Some((bytes, sender)) = all.front() else {
                    return Err(Errno::EAGAIN);
                };
                let count = to.len().min(bytes.len());
                to[..count].copy_from_slice(&bytes[..count]);
                let received = Received {
                    count,
                    length: bytes.len(),
                    from: Some(Address::Unix(sender.clone())),
                };
                if !peeks {
                    all.pop_front();
                }
                received
            }
        };
        drop(content);
        self.watchers.wake();
        Ok(received)
    }
}

/// What a socket is by now.
enum State {
    Idle,
    Listening {
        waiting: VecDeque<Unix>,
        backlog: usize,
        /// Bits of `poll` for what `shutdown` ended: then no more connections come.
        ended: u32,
    },
    Connected {
        reads: Arc<Channel>,
        writes: Arc<Channel>,
        peer: Name,
    },
}

struct Inner {
    kind: SocketKind,
    name: SpinLock<Name>,
    state: SpinLock<State>,
    /// What a datagram socket receives.
    own: Arc<Channel>,
    /// Apart, so that who waits for the socket need not hold it open.
    watchers: Arc<Watchers>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.own.close();
        self.watchers.wake();
        if let State::Connected { reads, writes, .. } = self.state.get_mut() {
            if self.kind != SocketKind::Datagram {
                let is_lost = !reads.content.lock().is_empty();
                writes.is_reset.store(is_lost, Ordering::SeqCst);
                writes.close();
            }
            reads.close();
        }
    }
}

/// A socket.
#[derive(Clone)]
pub(crate) struct Unix(Arc<Inner>);

/// A socket that a name leads to, as long as it is open.
#[derive(Clone)]
pub(crate) struct Named(Weak<Inner>);

impl Named {
    /// The socket; ECONNREFUSED if it was closed.
    pub(crate) fn socket(&self) -> Result<Unix> {
        self.0.upgrade().map(Unix).ok_or(Errno::ECONNREFUSED)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// What to watch while the socket has no room.
    pub(crate) fn watched(&self) -> Result<Watched> {
        let socket = self.socket()?;
        Ok(Watched {
            socket: socket.0.watchers.clone(),
            own: socket.0.own.clone(),
        })
    }
}

/// A socket as those see it who wait to connect or to send to it: what tells them of room
/// and of its end, not the socket, which they do not keep open.
pub(crate) struct Watched {
    socket: Arc<Watchers>,
    own: Arc<Channel>,
}

impl File for Watched {
    fn status(&self) -> Status {
        Status::anonymous()
    }

    fn watch(&self, waiter: &Waiter) {
        self.socket.add(waiter);
        self.own.watchers.add(waiter);
    }

    fn unwatch(&self, waiter: &Waiter) {
        self.socket.remove(waiter);
        self.own.watchers.remove(waiter);
    }
}

impl Unix {
    pub(crate) fn new(kind: SocketKind) -> Self {
        Self::with(kind, State::Idle, [][..].into())
    }

    fn with(kind: SocketKind, state: State, name: Name) -> Self {
        Self(Arc::new(Inner {
            kind,
            name: SpinLock::new(name),
            state: SpinLock::new(state),
            own: Channel::new(kind),
            watchers: Arc::default(),
        }))
    }

    /// Two connected ones (`socketpair(2)`).
    pub(crate) fn pair(kind: SocketKind) -> (Self, Self) {
        let none: Name = [][..].into();
        Self::connected(kind, (&none, &none))
    }

    fn connected(kind: SocketKind, (name, peer): (&Name, &Name)) -> (Self, Self) {
        let (there, back) = (Channel::new(kind), Channel::new(kind));
        let end = |reads: &Arc<Channel>, writes: &Arc<Channel>, name: &Name, peer: &Name| {
            let state = State::Connected {
                reads: reads.clone(),
                writes: writes.clone(),
                peer: peer.clone(),
            };
            Self::with(kind, state, name.clone())
        };
        (
            end(&back, &there, name, peer),
            end(&there, &back, peer, name),
        )
    }

    /// Gives it a name, once.
    pub(crate) fn bind(&self, name: Name) -> Result<Named> {
        let mut own = self.0.name.lock();
        if !own.is_empty() {
            return Err(Errno::EINVAL);
        }
        *own = name;
        Ok(Named(Arc::downgrade(&self.0)))
    }

    /// Connects to a socket: EAGAIN while too many wait to be accepted.
    pub(crate) fn connect(&self, to: &Self) -> Result<()> {
        if self.0.kind != to.0.kind {
            return Err(Errno::EPROTOTYPE);
        }
        let (own_name, peer) = (self.0.name.lock().clone(), to.0.name.lock().clone());
        if self.0.kind == SocketKind::Datagram {
            *self.0.state.lock() = State::Connected {
                reads: self.0.own.clone(),
                writes: to.0.own.clone(),
                peer,
            };
            self.0.watchers.wake();
            return Ok(());
        }
        if !to.is_listening() {
            return Err(Errno::ECONNREFUSED);
        }
        match &*self.0.state.lock() {
            State::Idle => {}
            State::Connected { .. } => return Err(Errno::EISCONN),
            State::Listening { .. } => return Err(Errno::EINVAL),
        }
        let mut state = to.0.state.lock();
        let State::Listening {
            waiting,
            backlog,
            ended,
        } = &mut *state
        else {
            return Err(Errno::ECONNREFUSED);
        };
        if *ended != 0 {
            return Err(Errno::ECONNREFUSED);
        }
        if waiting.len() > *backlog {
            return Err(Errno::EAGAIN);
        }
        let (mut here, there) = Self::connected(self.0.kind, (&own_name, &peer));
        waiting.push_back(there);
        drop(state);
        to.0.watchers.wake();
        // This socket takes over the end that was made for it.
        if let Some(inner) = Arc::get_mut(&mut here.0) {
            let end = core::mem::replace(inner.state.get_mut(), State::Idle);
            *self.0.state.lock() = end;
        }
        self.0.watchers.wake();
        Ok(())
    }

    /// The channels to read from and to write to.
    fn channels(&self) -> (Option<Arc<Channel>>, Option<Arc<Channel>>) {
        match &*self.0.state.lock() {
            State::Connected { reads, writes, .. } => (Some(reads.clone()), Some(writes.clone())),
            _ if self.0.kind == SocketKind::Datagram => (Some(self.0.own.clone()), None),
            _ => (None, None),
        }
    }

    /// Sends a datagram to a socket that a name leads to.
    pub(crate) fn send_to(&self, from: &[u8], to: &Self) -> Result<usize> {
        if to.0.kind != SocketKind::Datagram || self.0.kind != SocketKind::Datagram {
            return Err(Errno::EPROTOTYPE);
        }
        to.0.own.send(from, &self.0.name.lock())
    }
}

impl Endpoint for Unix {
    fn family(&self) -> u32 {
        AF_UNIX
    }

    fn kind(&self) -> SocketKind {
        self.0.kind
    }

    fn listen(&self, backlog: usize) -> Result<()> {
        if self.0.kind == SocketKind::Datagram {
            return Err(Errno::EOPNOTSUPP);
        }
        if self.0.name.lock().is_empty() {
            return Err(Errno::EINVAL);
        }
        let mut state = self.0.state.lock();
        match &mut *state {
            State::Idle => {
                *state = State::Listening {
                    waiting: VecDeque::new(),
                    backlog,
                    ended: 0,
                };
            }
            State::Listening { backlog: old, .. } => *old = backlog,
            State::Connected { .. } => return Err(Errno::EINVAL),
        }
        drop(state);
        self.0.watchers.wake();
        Ok(())
    }

    fn is_listening(&self) -> bool {
        matches!(*self.0.state.lock(), State::Listening { .. })
    }

    fn accept(&self) -> Result<(Arc<dyn File>, Address)> {
        if self.0.kind == SocketKind::Datagram {
            return Err(Errno::EOPNOTSUPP);
        }
        let State::Listening { waiting, ended, .. } = &mut *self.0.state.lock() else {
            return Err(Errno::EINVAL);
        };
        let none = if *ended == 0 {
            Errno::EAGAIN
        } else {
            Errno::EINVAL
        };
        let socket = waiting.pop_front().ok_or(none)?;
        let peer = socket.peer()?;
        // Room for who waits to connect.
        self.0.watchers.wake();
        Ok((Arc::new(socket), peer))
    }

    fn shutdown(&self, half: Half) -> Result<()> {
        if let State::Listening { ended, .. } = &mut *self.0.state.lock() {
            *ended |= match half {
                Half::Read => POLLIN | POLLRDHUP,
                Half::Write => 0,
                Half::Both => POLLIN | POLLRDHUP | POLLHUP,
            };
        }
        self.0.watchers.wake();
        // As Linux does for one that is not connected: nothing.
        let (reads, writes) = self.channels();
        if half != Half::Write
            && let Some(reads) = reads
        {
            reads.close();
        }
        // What a datagram socket writes to is another's, whoever else writes there.
        if half != Half::Read
            && self.0.kind != SocketKind::Datagram
            && let Some(writes) = writes
        {
            writes.close();
        }
        Ok(())
    }

    fn local(&self) -> Result<Address> {
        Ok(Address::Unix(self.0.name.lock().clone()))
    }

    fn peer(&self) -> Result<Address> {
        match &*self.0.state.lock() {
            State::Connected { peer, .. } => Ok(Address::Unix(peer.clone())),
            _ => Err(Errno::ENOTCONN),
        }
    }

    fn receive(&self, to: &mut [u8], peeks: bool) -> Result<Received> {
        let (reads, _) = self.channels();
        let reads = reads.ok_or(Errno::EINVAL)?;
        let received = reads.receive(to, peeks)?;
        // The peer of a connection is known.
        let from = received
            .from
            .filter(|_| self.0.kind == SocketKind::Datagram);
        Ok(Received { from, ..received })
    }

    fn send(&self, from: &[u8], to: Option<&Address>) -> Result<usize> {
        let (_, writes) = self.channels();
        match (writes, to) {
            (Some(_), Some(_)) if self.0.kind != SocketKind::Datagram => Err(Errno::EISCONN),
            (Some(writes), _) if writes.is_open() => {
                let name = self.0.name.lock().clone();
                writes.send(from, &name)
            }
            (Some(_), _) if self.0.kind == SocketKind::Datagram => Err(Errno::ECONNREFUSED),
            (Some(_), _) => Err(Errno::EPIPE),
            (None, _) => Err(Errno::ENOTCONN),
        }
    }
}

impl File for Unix {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        self.receive(to, false).map(|received| received.count)
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        self.send(from, None)
    }

    fn readable_bytes(&self) -> Result {
        let (reads, _) = self.channels();
        Ok(reads.map_or(0, |reads| reads.content.lock().length() as u64))
    }

    fn arrivals(&self) -> u64 {
        let (reads, _) = self.channels();
        reads.map_or(0, |reads| reads.sends.load(Ordering::Relaxed))
    }

    fn endpoint(&self) -> Option<&dyn Endpoint> {
        Some(self)
    }

    fn status(&self) -> Status {
        Status {
            inode: Arc::as_ptr(&self.0).addr() as u64,
            mode: S_IFSOCK | 0o777,
            links: 1,
            ..Status::default()
        }
    }

    fn ready(&self) -> u32 {
        if let State::Listening { waiting, ended, .. } = &*self.0.state.lock() {
            return ended | if waiting.is_empty() { 0 } else { POLLIN };
        }
        let bit = |has, bit| if has { bit } else { 0 };
        let (reads, writes) = self.channels();
        let Some(reads) = reads else {
            return POLLOUT | POLLHUP;
        };
        let is_ended = !reads.is_open();
        let has_data = !reads.content.lock().is_empty();
        let (is_shut, has_room) = writes.map_or((false, true), |writes| {
            (!writes.is_open(), writes.content.lock().has_room())
        });
        let is_reset = reads.is_reset.load(Ordering::SeqCst);
        bit(has_data || is_ended, POLLIN)
            | bit(is_reset, POLLERR)
            | bit(is_ended, POLLRDHUP)
            | bit(is_ended && is_shut, POLLHUP)
            | bit(has_room, POLLOUT)
    }

    fn watch(&self, waiter: &Waiter) {
        self.0.watchers.add(waiter);
        let (reads, writes) = self.channels();
        for channel in [reads, writes].into_iter().flatten() {
            channel.watchers.add(waiter);
        }
    }

    fn unwatch(&self, waiter: &Waiter) {
        self.0.watchers.remove(waiter);
        let (reads, writes) = self.channels();
        for channel in [reads, writes].into_iter().flatten() {
            channel.watchers.remove(waiter);
        }
    }

    fn name(&self) -> String {
        String::from("socket:[1]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> Unix {
        let listener = Unix::new(SocketKind::Stream);
        assert_eq!(listener.listen(1), Err(Errno::EINVAL));
        listener.bind(b"/run/x"[..].into()).expect("unnamed yet");
        assert_eq!(listener.listen(1), Ok(()));
        listener
    }

    #[test]
    fn a_connection_carries_bytes_both_ways_and_ends() {
        let listener = listener();
        assert_eq!(listener.accept().err(), Some(Errno::EAGAIN));
        let client = Unix::new(SocketKind::Stream);
        assert_eq!(client.ready(), POLLOUT | POLLHUP);
        assert_eq!(client.connect(&listener), Ok(()));
        assert_eq!(client.connect(&listener), Err(Errno::EISCONN));
        assert_eq!(listener.ready(), POLLIN);
        let (server, _) = listener.accept().expect("one waits");
        assert_eq!(client.write(b"hello"), Ok(5));
        let mut bytes = [0; 8];
        assert_eq!(server.read(&mut bytes), Ok(5));
        assert_eq!(server.read(&mut bytes), Err(Errno::EAGAIN));
        assert_eq!(client.shutdown(Half::Write), Ok(()));
        assert_eq!(server.read(&mut bytes), Ok(0));
        assert_eq!(server.write(b"x"), Ok(1));
        drop(server);
        assert_eq!(client.ready() & POLLERR, 0);
        assert_eq!(client.read(&mut bytes), Ok(1));
        assert_eq!(client.write(b"x"), Err(Errno::EPIPE));
        assert_eq!(client.ready() & POLLHUP, POLLHUP);
    }

    #[test]
    fn bytes_that_a_peer_left_unread_are_a_reset() {
        let (one, two) = Unix::pair(SocketKind::Stream);
        assert_eq!(one.write(b"lost"), Ok(4));
        assert_eq!(two.write(b"x"), Ok(1));
        drop(two);
        assert_eq!(one.ready() & POLLERR, POLLERR);
        let mut bytes = [0; 8];
        assert_eq!(one.read(&mut bytes), Ok(1));
        assert_eq!(one.read(&mut bytes), Err(Errno::ECONNRESET));
        assert_eq!(one.read(&mut bytes), Ok(0));
    }

    #[test]
    fn a_full_backlog_waits_and_a_closed_listener_refuses() {
        let listener = listener();
        let clients: Vec<_> = (0..3).map(|_| Unix::new(SocketKind::Stream)).collect();
        assert_eq!(clients[0].connect(&listener), Ok(()));
        assert_eq!(clients[1].connect(&listener), Ok(()));
        assert_eq!(clients[2].connect(&listener), Err(Errno::EAGAIN));
        let named = Named(Arc::downgrade(&listener.0));
        let watched = named.watched().expect("it is open");
        drop(listener);
        // Who waits for it does not keep it open.
        assert_eq!(named.socket().err(), Some(Errno::ECONNREFUSED));
        drop(watched);
        assert_eq!(clients[0].read(&mut [0; 1]), Ok(0));
    }

    #[test]
    fn a_listener_that_is_shut_takes_no_more_connections() {
        let listener = listener();
        let client = Unix::new(SocketKind::Stream);
        assert_eq!(client.connect(&listener), Ok(()));
        assert_eq!(listener.shutdown(Half::Write), Ok(()));
        assert_eq!(Unix::new(SocketKind::Stream).connect(&listener), Ok(()));
        assert_eq!(listener.shutdown(Half::Both), Ok(()));
        let late = Unix::new(SocketKind::Stream);
        assert_eq!(late.connect(&listener), Err(Errno::ECONNREFUSED));
        assert!(listener.accept().is_ok() && listener.accept().is_ok());
        assert_eq!(listener.accept().err(), Some(Errno::EINVAL));
        assert_eq!(listener.ready(), POLLIN | POLLRDHUP | POLLHUP);
    }

    #[test]
    fn messages_keep_their_borders() {
        for kind in [SocketKind::Datagram, SocketKind::Packets] {
            let (one, two) = Unix::pair(kind);
            assert_eq!(one.write(b"one"), Ok(3));
            assert_eq!(one.write(b"three"), Ok(5));
            let mut bytes = [0; 2];
            let cut = two.receive(&mut bytes, true).expect("a message");
            assert_eq!((cut.count, cut.length), (2, 3));
            assert_eq!(two.read(&mut bytes), Ok(2));
            assert_eq!(two.read(&mut [0; 9]), Ok(5));
            assert_eq!(two.read(&mut bytes), Err(Errno::EAGAIN));
        }
    }

    #[test]
    fn what_waits_in_a_channel_is_bounded() {
        let (one, two) = Unix::pair(SocketKind::Stream);
        assert_eq!(one.write(&[1; CAPACITY + 5]), Ok(CAPACITY));
        assert_eq!(one.write(b"x"), Err(Errno::EAGAIN));
        assert_eq!(one.ready() & POLLOUT, 0);
        assert_eq!(two.read(&mut [0; 9]), Ok(9));
        assert_eq!(one.ready() & POLLOUT, POLLOUT);
        let (one, _two) = Unix::pair(SocketKind::Datagram);
        let sent = (0..2 * MOST_MESSAGES).take_while(|_| one.write(b"").is_ok());
        assert_eq!(sent.count(), MOST_MESSAGES);
    }
}
