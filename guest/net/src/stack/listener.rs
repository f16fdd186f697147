//! [`Listener`]: a port that waits for connections. It holds no sockets in
//! store: a SYN makes one. What a flood of SYNs can take is bounded by the
//! backlog; beyond it, SYNs are answered by cookies, which take nothing.

use alloc::collections::VecDeque;

use crate::binding::Binding;
use crate::waiters::Waiters;

/// Names a listening port until it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(super) u32);

pub(super) struct Listener<W> {
    pub(super) local: Binding,
    pub(super) backlog: usize,
    /// How many handshakes are going on.
    pub(super) half_open: usize,
    /// Open connections that the application has not accepted yet.
    pub(super) ready: VecDeque<u32>,
    pub(super) acceptors: Waiters<W>,
}

impl<W> Listener<W> {
    pub(super) fn new(local: Binding, backlog: usize) -> Self {
        Self {
            local,
            backlog: backlog.max(1),
            half_open: 0,
            ready: VecDeque::new(),
            acceptors: Waiters::default(),
        }
    }
}
