//! When a write counts as done, and the change of that while requests are in
//! flight (CONFIG_WCE): a driver that has chosen write-through does not flush any
//! more, so that all writes that were answered must be durable from then on.

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

    /// The cache mode that a driver's write of `data` to device configuration
    /// asks for; `None`: that is not to be written.
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

    /// Whether the request, whose data the file has, is to be made durable before
    /// its answer: it was sent before durability was required, or there is no such
    /// operation. What follows is a flush ([`super::device::operation`]).
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
