//! [`Listener`]: a port that waits for connections. It holds no sockets in
//! store: a SYN makes one. What a flood of SYNs can take is bounded by the
//! backlog; when that is full of half-open connections the oldest gives way.

use alloc::collections::VecDeque;
use core::net::SocketAddrV4;

use crate::net::waiters::Waiters;

/// Names a listening port until it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(super) u32);

pub(super) struct Listener<W> {
    /// The address may be unspecified: any.
    pub(super) local: SocketAddrV4,
    pub(super) backlog: usize,
    /// Connections whose handshake is going on, oldest first.
    pub(super) half_open: VecDeque<u32>,
    /// Open connections that are not accepted yet.
    pub(super) ready: VecDeque<u32>,
    pub(super) acceptors: Waiters<W>,
}

impl<W> Listener<W> {
    pub(super) fn new(local: SocketAddrV4, backlog: usize) -> Self {
        Self {
            local,
            backlog: backlog.max(1),
            half_open: VecDeque::new(),
            ready: VecDeque::new(),
            acceptors: Waiters::default(),
        }
    }

    pub(super) fn takes(&self, address: &SocketAddrV4) -> bool {
        overlap(&self.local, address)
    }

    pub(super) fn forget(&mut self, connection: u32) {
        self.half_open.retain(|other| *other != connection);
        self.ready.retain(|other| *other != connection);
    }
}

/// Whether a packet could be for both.
pub(super) fn overlap(a: &SocketAddrV4, b: &SocketAddrV4) -> bool {
    let either_any = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && (either_any || a.ip() == b.ip())
}
