//! [`Listener`]: a port that waits for connections. It holds no sockets in
//! store: a SYN makes one. What a flood of SYNs can take is bounded by the
//! backlog; beyond it, SYNs are answered by cookies, which take nothing.

use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr};

use crate::waiters::Waiters;

/// Names a listening port until it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(super) u32);

pub(super) struct Listener<W> {
    /// The address may be unspecified: any.
    pub(super) local: SocketAddr,
    /// A listener on `::` that leaves IPv4 to others (`IPV6_V6ONLY`).
    pub(super) only_v6: bool,
    pub(super) backlog: usize,
    /// How many handshakes are going on.
    pub(super) half_open: usize,
    /// Open connections that the application has not accepted yet.
    pub(super) ready: VecDeque<u32>,
    pub(super) acceptors: Waiters<W>,
}

impl<W> Listener<W> {
    pub(super) fn new(local: SocketAddr, backlog: usize) -> Self {
        Self {
            local,
            only_v6: false,
            backlog: backlog.max(1),
            half_open: 0,
            ready: VecDeque::new(),
            acceptors: Waiters::default(),
        }
    }

    pub(super) fn takes(&self, address: &SocketAddr) -> bool {
        overlap(&self.local, address) && !(self.only_v6 && address.is_ipv4())
    }
}

/// Whether a packet could be for both.
pub(super) fn overlap(a: &SocketAddr, b: &SocketAddr) -> bool {
    let (one, other) = (a.ip(), b.ip());
    // `::` is all of this host's addresses, `0.0.0.0` those of IPv4.
    let covers = |any: IpAddr, ip: IpAddr| any.is_unspecified() && (any.is_ipv6() || ip.is_ipv4());
    a.port() == b.port() && (one == other || covers(one, other) || covers(other, one))
}
