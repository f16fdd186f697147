//! Sockets of AF_UNIX (`unix(7)`): streams, datagrams and packets within the program.
//! Descriptors cannot be passed: there is one process.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::general::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, S_IFSOCK};
use linux_raw_sys::net::AF_UNIX;
use tare_libos::sync::SpinLock;
use tare_libos::thread::Thread as Waiter;

use super::channel::Channel;
pub(crate) use super::channel::MOST_MESSAGE;
use super::endpoint::{Address, Half, Name, Received, SocketKind};
use super::watch::Item;
use super::{Endpoint, File, Status, Watchers};
use crate::errno::{Errno, Result};

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
        /// The peer's name, which it may get later.
        peer: SharedName,
        /// The peer of a datagram socket, which need not know of it.
        socket: Weak<Inner>,
    },
}

/// A socket's name, as its peer sees it too.
type SharedName = Arc<SpinLock<Name>>;

struct Inner {
    kind: SocketKind,
    name: SharedName,
    state: SpinLock<State>,
    /// Halves that were shut down before or without a connection.
    shut: Shut,
    /// What a datagram socket receives.
    own: Arc<Channel>,
    /// Apart, so that who waits for the socket need not hold it open.
    watchers: Arc<Watchers>,
}

/// Which halves were shut down.
#[derive(Default)]
struct Shut {
    reads: AtomicBool,
    writes: AtomicBool,
}

impl Shut {
    /// Bits of `poll` for a socket that listens.
    fn bits(&self) -> u32 {
        match (
            self.reads.load(Ordering::SeqCst),
            self.writes.load(Ordering::SeqCst),
        ) {
            (true, true) => POLLIN | POLLRDHUP | POLLHUP,
            (true, false) => POLLIN | POLLRDHUP,
            (false, _) => 0,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.own.close();
        self.watchers.wake();
        match self.state.get_mut() {
            State::Connected { reads, writes, .. } if self.kind != SocketKind::Datagram => {
                let is_lost = !reads.content.lock().is_empty();
                writes.is_reset.fetch_or(is_lost, Ordering::SeqCst);
                writes.close();
                reads.close();
            }
            State::Listening { waiting, .. } => {
                // Who was never accepted is reset.
                for socket in waiting {
                    if let State::Connected { writes, .. } = &*socket.0.state.lock() {
                        writes.is_reset.store(true, Ordering::SeqCst);
                    }
                }
            }
            _ => {}
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
    fn status(&self) -> Result<Status> {
        Ok(Status::anonymous())
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
            name: Arc::new(SpinLock::new(name)),
            state: SpinLock::new(state),
            shut: Shut::default(),
            own: Channel::new(kind),
            watchers: Arc::default(),
        }))
    }

    /// Two connected ones (`socketpair(2)`).
    pub(crate) fn pair(kind: SocketKind) -> (Self, Self) {
        let (one, two) = (Self::new(kind), Self::new(kind));
        if kind == SocketKind::Datagram {
            one.set_peer(&two);
            two.set_peer(&one);
        } else {
            one.join(&two);
        }
        (one, two)
    }

    /// Connects two sockets that send to each other.
    fn join(&self, other: &Self) {
        let (there, back) = (Channel::new(self.0.kind), Channel::new(self.0.kind));
        let connect = |one: &Self, two: &Self, reads: &Arc<Channel>, writes: &Arc<Channel>| {
            *one.0.state.lock() = State::Connected {
                reads: reads.clone(),
                writes: writes.clone(),
                peer: two.0.name.clone(),
                socket: Weak::new(),
            };
        };
        connect(other, self, &there, &back);
        connect(self, other, &back, &there);
        // What was shut before stays so; of an end of writing the other learns nothing.
        if self.0.shut.reads.load(Ordering::SeqCst) {
            back.close();
        }
    }

    /// Makes another socket the one that a datagram socket sends to.
    fn set_peer(&self, peer: &Self) {
        *self.0.state.lock() = State::Connected {
            reads: self.0.own.clone(),
            writes: peer.0.own.clone(),
            peer: peer.0.name.clone(),
            socket: Arc::downgrade(&peer.0),
        };
    }

    /// What a datagram socket sends to, while that is open.
    fn datagram_peer(&self) -> Option<Weak<Inner>> {
        match &*self.0.state.lock() {
            State::Connected { socket, .. } => Some(socket.clone()),
            _ => None,
        }
    }

    /// Whether a datagram socket may send to another: one that has a peer takes from that only.
    fn may_send(&self, to: &Self) -> Result<()> {
        match to.datagram_peer() {
            Some(peer) if !core::ptr::eq(peer.as_ptr(), Arc::as_ptr(&self.0)) => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// What came from a datagram socket's peer goes when the peer does, or another takes its place; if
    /// the old one sends to this socket still, it gets an error.
    fn leave_peer(&self, old: Option<Weak<Inner>>) {
        let Some(old) = old else {
            return;
        };
        if self.0.own.content.lock().is_empty() {
            return;
        }
        self.0.own.purge();
        let Some(old) = old.upgrade().map(Self) else {
            return;
        };
        let back = old.datagram_peer();
        if back.is_some_and(|back| core::ptr::eq(back.as_ptr(), Arc::as_ptr(&self.0))) {
            old.0.own.is_reset.store(true, Ordering::SeqCst);
            old.0.own.watchers.wake();
        }
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
        if self.0.kind == SocketKind::Datagram {
            self.may_send(to)?;
            let old = self.datagram_peer();
            self.set_peer(to);
            let is_other = |old: &Weak<Inner>| !core::ptr::eq(old.as_ptr(), Arc::as_ptr(&to.0));
            self.leave_peer(old.filter(is_other));
            self.0.watchers.wake();
            return Ok(());
        }
        // Looked at before the other's, so that no two are locked at once, and reported after it.
        let own = match &*self.0.state.lock() {
            State::Idle => Ok(()),
            State::Connected { .. } => Err(Errno::EISCONN),
            State::Listening { .. } => Err(Errno::EINVAL),
        };
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
        own?;
        let there = Self::with(self.0.kind, State::Idle, to.0.name.lock().clone());
        self.join(&there);
        waiting.push_back(there);
        drop(state);
        to.0.watchers.wake();
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
        self.may_send(to)?;
        if !to.0.own.is_open() {
            return Err(Errno::EPIPE);
        }
        let name = self.0.name.lock().clone();
        to.0.own.send(from, &name)
    }

    /// What refuses a message before its name is looked up: packets without a connection, an
    /// error that waits, a half that is shut down.
    pub(crate) fn may_send_messages(&self) -> Result<()> {
        let (reads, writes) = self.channels();
        if writes.is_none() && self.0.kind == SocketKind::Packets {
            return Err(Errno::ENOTCONN);
        }
        if let Some(reads) = reads {
            reads.check_reset()?;
        }
        if self.0.shut.writes.load(Ordering::SeqCst) {
            return Err(Errno::EPIPE);
        }
        Ok(())
    }

    /// Sends a datagram to the peer.
    fn send_to_peer(&self, from: &[u8]) -> Result<usize> {
        self.may_send_messages()?;
        let peer = self.datagram_peer().ok_or(Errno::ENOTCONN)?;
        match peer.upgrade().map(Self) {
            Some(peer) => self.send_to(from, &peer),
            None => {
                *self.0.state.lock() = State::Idle;
                self.leave_peer(Some(peer));
                Err(Errno::ECONNREFUSED)
            }
        }
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
                    ended: self.0.shut.bits(),
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
        let (reads, writes) = self.channels();
        if half != Half::Write {
            self.0.shut.reads.store(true, Ordering::SeqCst);
            if let Some(reads) = reads {
                reads.close();
            }
        }
        if half != Half::Read {
            self.0.shut.writes.store(true, Ordering::SeqCst);
            // What a datagram socket writes to is another's, whoever else writes there.
            if let Some(writes) = writes.filter(|_| self.0.kind != SocketKind::Datagram) {
                writes.close();
            }
        }
        if let State::Listening { ended, .. } = &mut *self.0.state.lock() {
            *ended = self.0.shut.bits();
        }
        self.0.watchers.wake();
        Ok(())
    }

    fn local(&self) -> Result<Address> {
        Ok(Address::Unix(self.0.name.lock().clone()))
    }

    fn peer(&self) -> Result<Address> {
        match &*self.0.state.lock() {
            State::Connected { peer, .. } => Ok(Address::Unix(peer.lock().clone())),
            _ => Err(Errno::ENOTCONN),
        }
    }

    fn receive(&self, to: &mut [u8], peeks: bool) -> Result<Received> {
        let (reads, _) = self.channels();
        let reads = reads.ok_or(match self.0.kind {
            SocketKind::Packets => Errno::ENOTCONN,
            _ => Errno::EINVAL,
        })?;
        let received = reads.receive(to, peeks)?;
        // The peer of a connection is known.
        let from = received
            .from
            .filter(|_| self.0.kind == SocketKind::Datagram);
        Ok(Received { from, ..received })
    }

    fn send(&self, from: &[u8], to: Option<&Address>) -> Result<usize> {
        if self.0.kind == SocketKind::Datagram {
            return self.send_to_peer(from);
        }
        let (_, writes) = self.channels();
        let writes = writes.ok_or(Errno::ENOTCONN)?;
        match self.0.kind {
            SocketKind::Packets => self.may_send_messages()?,
            _ if to.is_some() => return Err(Errno::EISCONN),
            _ => {}
        }
        if !writes.is_open() || self.0.shut.writes.load(Ordering::SeqCst) {
            return Err(Errno::EPIPE);
        }
        let name = self.0.name.lock().clone();
        writes.send(from, &name)
    }

    fn take_error(&self) -> u32 {
        let (reads, _) = self.channels();
        let error = reads.and_then(|reads| reads.check_reset().err());
        error.map_or(0, |errno| errno.0)
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

    fn status(&self) -> Result<Status> {
        Ok(Status {
            inode: Arc::as_ptr(&self.0).addr() as u64,
            mode: S_IFSOCK | 0o777,
            links: 1,
            ..Status::default()
        })
    }

    fn ready(&self) -> u32 {
        if let State::Listening { waiting, ended, .. } = &*self.0.state.lock() {
            return ended | if waiting.is_empty() { 0 } else { POLLIN };
        }
        let bit = |has, bit| if has { bit } else { 0 };
        let (reads, writes) = self.channels();
        let is_shut = self.0.shut.writes.load(Ordering::SeqCst);
        let Some(reads) = reads else {
            let is_ended = self.0.shut.reads.load(Ordering::SeqCst);
            return POLLOUT | POLLHUP | bit(is_ended, POLLIN | POLLRDHUP);
        };
        let is_ended = !reads.is_open();
        let has_data = !reads.content.lock().is_empty();
        let is_datagram = self.0.kind == SocketKind::Datagram;
        let (is_shut, has_room) = match writes {
            // Its end is not this socket's, nor is there room in it for a peer that has another.
            Some(writes) if is_datagram => (is_shut, writes.content.lock().has_room()),
            Some(writes) => (!writes.is_open(), writes.content.lock().has_room()),
            None => (is_shut, true),
        };
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

    fn arm(&self, item: &Arc<Item>) -> Option<u32> {
        self.0.watchers.arm(item);
        let (reads, writes) = self.channels();
        for channel in [reads, writes].into_iter().flatten() {
            channel.watchers.arm(item);
        }
        Some(self.ready())
    }

    fn name(&self) -> String {
        String::from("socket:[1]")
    }
}

#[cfg(test)]
#[path = "unix_tests.rs"]
mod tests;
