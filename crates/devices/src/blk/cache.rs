//! The cache mode: when a write counts as done. The driver may change it while requests are in
//! flight (CONFIG_WCE). A driver that has chosen write-through does not flush any more, so from
//! then on every write that was answered must be durable.

use std::io;

use rustix::fs::fdatasync;
use rustix::io::retry_on_intr;
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;

use super::in_flight::InFlightRequest;
use super::io_engine::Durability;
use super::{Blk, Cache, Request, config};

impl Blk {
    /// The cache mode in force.
    pub fn cache(&self) -> Cache {
        self.cache
    }

    /// The cache mode that the driver requests by writing `data` to device configuration; `None` if
    /// the driver may not write there.
    pub fn cache_written(&self, offset: usize, data: &[u8]) -> Option<Cache> {
        let written = offset == config::WRITEBACK && self.disk.is_writable();
        match data {
            [0] if written => Some(Cache::Writethrough),
            [1] if written => Some(Cache::Writeback),
            _ => None,
        }
    }

    /// Changes the cache mode, until the driver does or resets the device. To
    /// write-through: waits until what was answered is durable; after an error
    /// nothing has changed.
    pub fn set_cache(&mut self, cache: Cache) -> io::Result<()> {
        if cache == Cache::Writethrough && self.cache == Cache::Writeback {
            retry_on_intr(|| fdatasync(self.disk.file()))?;
        }
        self.cache = cache;
        Ok(())
    }

    /// A driver that does not know flush must find every write durable
    /// (5.2.6.2).
    pub(super) fn durability(&self) -> Durability {
        match (config::has(self.features, VIRTIO_BLK_F_FLUSH), self.cache) {
            (true, Cache::Writeback) => Durability::Cached,
            _ => Durability::Durable,
        }
    }

    /// Whether the request must be made durable before its answer, although the file already has
    /// its data: it was sent before durability was required, or its system call has no durable
    /// form. The next operation is then a flush ([`super::device::operation`]).
    pub(super) fn owes_flush(&self, pending: &mut InFlightRequest) -> bool {
        let by_itself = match pending.request {
            Request::Write { .. } => pending.durability == Durability::Durable,
            Request::WriteZeroes { .. } => {
                pending.copied && pending.durability == Durability::Durable
            }
            _ => true,
        };
        let owes = !by_itself && !pending.flushes && self.durability() == Durability::Durable;
        if owes {
            (pending.flushes, pending.durability) = (true, Durability::Durable);
        }
        owes
    }
}
