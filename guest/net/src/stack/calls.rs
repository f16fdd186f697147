//! What applications do with TCP: the calls behind listeners and streams. None
//! waits: what cannot be done yet is `WouldBlock`, and a thread can be
//! registered for being woken.

use alloc::boxed::Box;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use smoltcp::time::{Duration, Instant};
use tare_io::{Error, ErrorKind, IoSlice, Result};
use tare_tcp::{Connection, KeepAlive};

use super::connection::{CLOSE, Limit, Role, is_opening, to_kind, to_tcp};
use super::listener::Listener;
use super::tcp::EPHEMERAL;
use super::via::Via;
use super::{ConnectionId, ListenerId, Stack};
use crate::binding::Binding;
use crate::flow::Flow;
use crate::link::Link;
use crate::readiness::{Interest, Readiness};
use crate::waiters::Wake;

/// How long connecting may take.
const CONNECT_HANDSHAKE: Duration = Duration::from_secs(30);

const NO_MEMORY: Error = Error::new(ErrorKind::ResourceBusy, "no memory for a connection");

/// A half of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// What the peer sends.
    Read,
    /// What this side sends.
    Write,
}

/// When written bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// At once, as far as the peer and Nagle's rule let them.
    Now,
    /// With the next `tare_libos::net::send_written`, or at once where there are many.
    Later,
    /// The same, and a last segment that is not full waits for what is written next, at most
    /// 200 ms (Linux: `MSG_MORE`).
    WithMore,
}

impl<L: Link, W: Wake> Stack<L, W> {
    /// Listens on `local`; at most `backlog` connections wait to be accepted.
    /// Port 0 takes a free one.
    pub fn listen(&mut self, local: impl Into<SocketAddr>, backlog: usize) -> Result<ListenerId> {
        self.listen_as(local.into().into(), backlog)
    }

    /// The same on an address that may leave IPv4 to others.
    pub fn listen_as(&mut self, mut local: Binding, backlog: usize) -> Result<ListenerId> {
        let is_any = local.address.port() == 0;
        let is_taken = |local: &Binding| {
            let mut listeners = self.tcp.listeners.iter().flatten();
            listeners.any(|other| {
                if W::of_programs() && !is_any {
                    other.local.excludes_listener(local)
                } else {
                    other.local.overlaps(local)
                }
            })
        };
        if is_any {
            let free = (EPHEMERAL..=u16::MAX)
                .map(|port| local.with_port(port))
                .find(|local| !is_taken(local));
            local = free.ok_or(ErrorKind::ResourceBusy)?;
        } else if is_taken(&local) {
            return Err(ErrorKind::AddrInUse.into());
        }
        let listener = Listener::new(local, backlog);
        let listener = Some(listener);
        let index = match self.tcp.listeners.iter().position(Option::is_none) {
            Some(index) => {
                self.tcp.listeners[index] = listener;
                index
            }
            None => {
                self.tcp.listeners.push(listener);
                self.tcp.listeners.len() - 1
            }
        };
        Ok(ListenerId(index as u32))
    }

    /// Where a listener listens.
    pub fn listens_on(&mut self, id: ListenerId) -> Result<SocketAddr> {
        Ok(self.tcp.listener(id)?.local.address)
    }

    /// What a listener can do now.
    pub fn listener_readiness(&mut self, id: ListenerId) -> Readiness {
        let listener = self.tcp.listener(id);
        Readiness {
            readable: listener.is_ok_and(|listener| !listener.ready.is_empty()),
            ..Readiness::default()
        }
    }

    /// Stops listening; connections that were not accepted are reset.
    pub fn close_listener(&mut self, id: ListenerId, now: Instant) {
        let Some(listener) = self
            .tcp
            .listeners
            .get_mut(id.0 as usize)
            .and_then(Option::take)
        else {
            return;
        };
        drop(listener);
        for connection in self.tcp.waiting_for(id) {
            if let Ok(found) = self.tcp.connection(connection) {
                found.role = Role::Orphan;
                found.tcp.abort();
                self.drive_connection(connection, now);
            }
        }
        self.finish(now);
    }

    /// The next open connection, or `WouldBlock`.
    pub fn accept(&mut self, id: ListenerId) -> Result<(ConnectionId, SocketAddr)> {
        let next = self.tcp.listener(id)?.ready.pop_front();
        let id = ConnectionId(next.ok_or(ErrorKind::WouldBlock)?);
        let connection = self.tcp.connection(id)?;
        connection.role = Role::Owned;
        Ok((id, connection.flow.remote))
    }

    /// Registers for being woken when there is something to accept.
    pub fn wait_accept(&mut self, id: ListenerId, waiter: W) {
        if let Ok(listener) = self.tcp.listener(id) {
            listener.acceptors.add(waiter);
        }
    }

    /// Takes a registration back.
    pub fn cancel_accept(&mut self, id: ListenerId, waiter: &W) {
        if let Ok(listener) = self.tcp.listener(id) {
            listener.acceptors.remove(waiter);
        }
    }

    /// Begins to connect to `remote`; see [`Stack::connected`].
    pub fn connect(&mut self, remote: impl Into<SocketAddr>, now: Instant) -> Result<ConnectionId> {
        let remote = remote.into();
        let any = match remote {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        self.connect_from(SocketAddr::new(any, 0).into(), remote, now)
    }

    /// The same from an address of this host; port 0 is a free one. Fails with `AddrNotAvailable`
    /// if there is such a connection, and with `NetworkUnreachable` if `local` has no address of
    /// the peer's family.
    pub fn connect_from(
        &mut self,
        local: Binding,
        remote: SocketAddr,
        now: Instant,
    ) -> Result<ConnectionId> {
        if remote.port() == 0 || remote.ip().is_unspecified() || remote.ip().is_multicast() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "not the address and port of a host",
            ));
        }
        let (via, source) = self.source(remote.ip(), &local, now)?;
        let flow = match local.address.port() {
            0 => self
                .tcp
                .ephemeral(source, remote)
                .ok_or(ErrorKind::ResourceBusy)?,
            port => self
                .tcp
                .unused(SocketAddr::new(source, port), remote)
                .ok_or(ErrorKind::AddrNotAvailable)?,
        };
        if !self.tcp.make_room(&mut self.counters) {
            return Err(NO_MEMORY);
        }
        let mut connection = match via {
            Via::Wire => self.tcp.connect(&self.wire, flow, via, now),
            Via::Loopback => self.tcp.connect(&self.loopback, flow, via, now),
        };
        connection.limit = Some((now + CONNECT_HANDSHAKE, Limit::Handshake));
        let id = ConnectionId(self.tcp.insert(Box::new(connection)));
        self.drive_connection(id, now);
        self.finish(now);
        Ok(id)
    }

    /// Whether connecting is done; `WouldBlock` while it is not.
    pub fn connected(&mut self, id: ConnectionId) -> Result<()> {
        let connection = self.tcp.connection(id)?;
        if is_opening(connection.tcp.state()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        connection.failure().map_or(Ok(()), Err)
    }

    /// Why connecting failed or the connection was lost.
    pub fn failure(&mut self, id: ConnectionId) -> Result<Option<Error>> {
        Ok(self.tcp.connection(id)?.failure())
    }

    /// What a connection can do now.
    pub fn readiness(&mut self, id: ConnectionId) -> Readiness {
        let connection = self.tcp.connection(id);
        connection.map_or(Readiness::default(), |connection| connection.readiness())
    }

    /// Bytes that a read would give.
    pub fn bytes_readable(&mut self, id: ConnectionId) -> Result<usize> {
        Ok(self.tcp.connection(id)?.tcp.recv_queue())
    }

    /// Moves received bytes into `buf`; 0 is the end, `WouldBlock` not yet.
    pub fn read(&mut self, id: ConnectionId, buf: &mut [u8], now: Instant) -> Result<usize> {
        let connection = self.tcp.connection(id)?;
        let n = connection.read(buf, now)?;
        if connection.tcp.has_update() {
            self.drive_connection(id, now);
            self.finish(now);
        }
        Ok(n)
    }

    /// Copies received bytes into `buf` and leaves them.
    pub fn peek(&mut self, id: ConnectionId, buf: &mut [u8]) -> Result<usize> {
        self.tcp.connection(id)?.peek(buf)
    }

    /// Queues bytes and sends what may be sent; how many were queued, or
    /// `WouldBlock` when there is no room.
    pub fn write(
        &mut self,
        id: ConnectionId,
        parts: &[IoSlice<'_>],
        now: Instant,
    ) -> Result<usize> {
        self.write_as(id, parts, Sending::Now, now)
    }

    /// The same for bytes that may wait for [`send_written`](Self::send_written).
    #[inline]
    pub fn write_as(
        &mut self,
        id: ConnectionId,
        parts: &[IoSlice<'_>],
        sending: Sending,
        now: Instant,
    ) -> Result<usize> {
        let connection = self.tcp.connection(id)?;
        let (mut written, mut is_whole) = (0, true);
        for part in parts {
            let queued = match sending {
                Sending::Now | Sending::Later => connection.tcp.send(part),
                Sending::WithMore => connection.tcp.send_with_more(part),
            };
            let n = queued.map_err(to_kind)?;
            written += n;
            if n < part.len() {
                is_whole = false;
                break;
            }
        }
        if written > 0 {
            // What fills the buffer goes: its writer waits for room.
            if sending == Sending::Now || !is_whole || !self.tcp.postpone(id) {
                self.drive_connection(id, now);
                self.finish(now);
            }
        } else if parts.iter().any(|part| !part.is_empty()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(written)
    }

    /// Whether written bytes wait for [`send_written`](Self::send_written).
    #[inline]
    pub fn has_written(&self) -> bool {
        self.tcp.has_postponed()
    }

    /// Sends what was written to be sent later: the bytes of all writes to a connection
    /// together.
    pub fn send_written(&mut self, now: Instant) {
        let mut postponed = self.tcp.take_postponed();
        for id in postponed.drain(..) {
            if self.tcp.ends_wait(id) {
                self.drive_connection(id, now);
            }
        }
        self.tcp.keep_postponed(postponed);
        self.finish(now);
    }

    /// Ends a half of the connection; what is queued is still sent.
    pub fn shutdown(&mut self, id: ConnectionId, half: Half, now: Instant) -> Result<()> {
        let connection = self.tcp.connection(id)?;
        match half {
            Half::Read => {
                connection.read_shut = true;
                connection.readers.wake_all();
            }
            Half::Write => {
                // Without a limit: a peer that answers may take its time to read (RFC 9293,
                // 3.8.6.1), and retransmission gives up one that is silent.
                connection.tcp.close();
                self.drive_connection(id, now);
                self.finish(now);
            }
        }
        Ok(())
    }

    /// Gives the connection up: what is queued is sent, then it ends. What was
    /// received and not read makes it a reset.
    pub fn close(&mut self, id: ConnectionId, now: Instant) {
        self.give_up(id, now, |tcp| match tcp.recv_queue() {
            0 => tcp.close(),
            _ => tcp.abort(),
        });
    }

    /// Gives the connection up with a reset: what is queued is not sent, and nothing of it stays
    /// (Linux: `SO_LINGER` with no time).
    pub fn abort(&mut self, id: ConnectionId, now: Instant) {
        self.give_up(id, now, Connection::abort);
    }

    fn give_up(&mut self, id: ConnectionId, now: Instant, end: impl FnOnce(&mut Connection)) {
        let Ok(connection) = self.tcp.connection(id) else {
            return;
        };
        connection.role = Role::Orphan;
        self.tcp.note_orphan(id.0, &mut self.counters);
        let Ok(connection) = self.tcp.connection(id) else {
            return;
        };
        connection.limit = Some((now + CLOSE, Limit::Close));
        end(&mut connection.tcp);
        self.drive_connection(id, now);
        self.finish(now);
    }

    /// Registers for being woken when the connection can go on.
    pub fn wait(&mut self, id: ConnectionId, interest: Interest, waiter: W) {
        if let Ok(connection) = self.tcp.connection(id) {
            match interest {
                Interest::Readable => connection.readers.add(waiter),
                Interest::Writable => connection.writers.add(waiter),
            }
        }
    }

    /// Takes a registration back.
    pub fn cancel(&mut self, id: ConnectionId, interest: Interest, waiter: &W) {
        if let Ok(connection) = self.tcp.connection(id) {
            match interest {
                Interest::Readable => connection.readers.remove(waiter),
                Interest::Writable => connection.writers.remove(waiter),
            }
        }
    }

    /// Whether small writes wait for acknowledgements (Nagle) or go at once. Those that wait
    /// go now.
    pub fn set_nodelay(&mut self, id: ConnectionId, nodelay: bool, now: Instant) -> Result<()> {
        let tcp = &mut self.tcp.connection(id)?.tcp;
        tcp.set_nodelay(nodelay);
        if nodelay && tcp.unsent() > 0 {
            self.drive_connection(id, now);
            self.finish(now);
        }
        Ok(())
    }

    /// Whether a last segment that is not full waits for what is written next.
    pub fn set_corked(&mut self, id: ConnectionId, corked: bool, now: Instant) -> Result<()> {
        let tcp = &mut self.tcp.connection(id)?.tcp;
        tcp.set_corked(corked);
        if !corked && tcp.unsent() > 0 {
            self.drive_connection(id, now);
            self.finish(now);
        }
        Ok(())
    }

    /// Probes a silent peer; `None` never does.
    pub fn set_keep_alive(
        &mut self,
        id: ConnectionId,
        keep_alive: Option<KeepAlive>,
        now: Instant,
    ) -> Result<()> {
        let connection = self.tcp.connection(id)?;
        connection.tcp.set_keep_alive(keep_alive, to_tcp(now));
        self.drive_connection(id, now);
        self.finish(now);
        Ok(())
    }

    /// Gives a peer up that acknowledges nothing for this long; `None` after the time that holds for all.
    pub fn set_user_timeout(
        &mut self,
        id: ConnectionId,
        limit: Option<tare_tcp::time::Duration>,
        now: Instant,
    ) -> Result<()> {
        let connection = self.tcp.connection(id)?;
        connection.tcp.set_user_timeout(limit, to_tcp(now));
        self.drive_connection(id, now);
        self.finish(now);
        Ok(())
    }

    /// The addresses of a connection.
    pub fn flow(&mut self, id: ConnectionId) -> Result<Flow> {
        Ok(self.tcp.connection(id)?.flow)
    }

    fn drive_connection(&mut self, id: ConnectionId, now: Instant) {
        self.tcp.drive_any(
            &mut self.wire,
            &mut self.loopback,
            id.0,
            &mut self.counters,
            now,
        );
    }

    /// After a call of the application: what went to the loopback arrives in
    /// the caller's context, and the device gets notified of frames.
    pub(super) fn finish(&mut self, now: Instant) {
        while self.receive_from_loopback(now) {}
        self.wire.link.flush();
    }
}
