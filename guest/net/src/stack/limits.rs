//! [`Limits`]: how much peers can make this side hold, and [`Orphans`], the
//! connections that the application has closed.
//!
//! A closed connection stays until its peer has acknowledged everything, and holds
//! its buffers meanwhile. Peers that never acknowledge must not be able to fill the
//! memory with them: their number is bounded, and they give way to new connections.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use tare_tcp::Pool;

use crate::memory::Memory;

/// What a connection takes of the heap without its buffers, which come from the
/// [`pool`], and with a share of its application's.
const CONNECTION_BYTES: usize = 8 * 1024;

/// Bounds of the connection table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections in any state.
    pub connections: usize,
    /// Most of them that the application has closed.
    pub orphans: usize,
    /// Most connections of a listener that wait: as many half-open ones, and as
    /// many that are not accepted yet.
    pub backlog: usize,
}

impl Limits {
    /// What this memory can carry: connections may take three quarters of
    /// it, closed ones an eighth of these, and a listener's queues a quarter.
    pub fn within(memory: Memory) -> Self {
        let connections = ((memory.total / 4 * 3) as usize / CONNECTION_BYTES).max(64);
        Self {
            connections,
            orphans: (connections / 8).max(16),
            backlog: (connections / 4).clamp(32, 4096),
        }
    }

    /// Whether one more connection may be made beside `open` ones.
    pub(super) fn allow(&self, open: usize, memory: Memory) -> bool {
        open < self.connections && (memory.has_room)(CONNECTION_BYTES)
    }
}

/// What the buffers of all connections may take: half of the heap, while its
/// reserve stays untouched.
pub(super) fn pool(memory: Memory) -> Pool {
    Pool::with_check((memory.total / 2) as usize, memory.has_room)
}

/// Connections that the application has closed, oldest first.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// Connections with the stamp they were added with; those whose stamp has
    /// changed since are gone.
    queue: VecDeque<(u32, u64)>,
    /// Stamp of each connection that is an orphan now; 0 for the others.
    stamps: Vec<u64>,
    last: u64,
    len: usize,
}

impl Orphans {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn add(&mut self, id: u32) {
        let at = id as usize;
        if at >= self.stamps.len() {
            self.stamps.resize(at + 1, 0);
        }
        if self.stamps[at] != 0 {
            return;
        }
        if self.queue.len() > 2 * self.len + 64 {
            let stamps = &self.stamps;
            self.queue
                .retain(|(id, stamp)| stamps[*id as usize] == *stamp);
        }
        self.last += 1;
        self.stamps[at] = self.last;
        self.queue.push_back((id, self.last));
        self.len += 1;
    }

    pub(super) fn remove(&mut self, id: u32) {
        if let Some(stamp) = self.stamps.get_mut(id as usize)
            && *stamp != 0
        {
            *stamp = 0;
            self.len -= 1;
        }
    }

    /// The one that was closed first.
    pub(super) fn oldest(&mut self) -> Option<u32> {
        while let Some((id, stamp)) = self.queue.front().copied() {
            if self.stamps[id as usize] == stamp {
                return Some(id);
            }
            self.queue.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_orphan_is_found_among_reused_numbers() {
        let mut orphans = Orphans::default();
        for id in 0..10 {
            orphans.add(id);
        }
        for id in 0..9 {
            orphans.remove(id);
        }
        orphans.add(3);
        assert_eq!((orphans.oldest(), orphans.len()), (Some(9), 2));
        orphans.remove(9);
        assert_eq!((orphans.oldest(), orphans.len()), (Some(3), 1));
        orphans.remove(3);
        assert_eq!((orphans.oldest(), orphans.len()), (None, 0));
    }

    #[test]
    fn connections_that_come_and_go_leave_nothing_behind() {
        let mut orphans = Orphans::default();
        for _ in 0..10_000 {
            orphans.add(1);
            orphans.remove(1);
        }
        assert!(orphans.queue.len() < 100);
    }
}
