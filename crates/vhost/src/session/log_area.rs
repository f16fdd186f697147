//! The memory in which all queues keep their logs of what is in flight. It is
//! made here and kept by the front-end, which gives it to the next back-end. A byte
//! behind the logs is the cache mode that the driver believes in.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use tare_devices::GuestRam;
use tare_devices::blk::MAX_QUEUES;
use tare_devices::virtio::InflightLog;
use vm_memory::{Bytes as _, GuestAddress};

use super::memory::{FrontendRegion, MemoryError, Regions};
use super::ring::MAX_SIZE;

/// Bytes behind the logs.
const BEHIND: u64 = 64;

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// Numbers of queues or descriptors that there are not.
    #[error(
        "invalid in-flight log: {queues} queues of {size} descriptors (at most {MAX_QUEUES} queues of {MAX_SIZE})"
    )]
    Shape {
        /// Queues.
        queues: u16,
        /// Descriptors of each.
        size: u16,
    },
    /// The memory is too small for it.
    #[error("an in-flight log of {given} bytes is too short: {needed} bytes are needed")]
    Short {
        /// Given.
        given: u64,
        /// Needed.
        needed: u64,
    },
    /// It cannot be made.
    #[error("cannot allocate memory for the in-flight log")]
    Make(#[source] io::Error),
    /// It cannot be mapped.
    #[error("cannot map the in-flight log")]
    Memory(#[from] MemoryError),
}

/// The logs of all queues.
pub(crate) struct LogArea {
    /// Watches the memory.
    regions: Regions,
    memory: Arc<GuestRam>,
    queues: u16,
    size: u16,
    /// Where the byte of the cache mode is.
    cache_at: GuestAddress,
}

impl LogArea {
    /// Bytes for `queues` queues of `size` descriptors.
    pub(crate) fn bytes(queues: u16, size: u16) -> Result<u64, LogError> {
        let known = (1..=MAX_QUEUES).contains(&queues) && (1..=MAX_SIZE).contains(&size);
        known
            .then(|| u64::from(queues) * InflightLog::part_bytes(size) + BEHIND)
            .ok_or(LogError::Shape { queues, size })
    }

    /// Empty memory for the logs of that many queues, as a file to be passed on, and its
    /// bytes. It has room for the longest queues, whatever `size` says: that is the
    /// front-end's setting, and over virtio-mmio QEMU lets a driver choose more
    /// (QueueNumMax is 1024 there). What no queue uses takes no memory.
    pub(crate) fn make(queues: u16, size: u16) -> Result<(File, u64), LogError> {
        Self::bytes(queues, size)?;
        let bytes = Self::bytes(queues, MAX_SIZE)?;
        let flags = MemfdFlags::CLOEXEC;
        let made = memfd_create(c"tare-inflight", flags).map(File::from);
        let file = made.map_err(|errno| LogError::Make(errno.into()))?;
        file.set_len(bytes).map_err(LogError::Make)?;
        Ok((file, bytes))
    }

    /// Maps what [`make`](Self::make) made, perhaps in another process. A log of other
    /// length has queues of `size` descriptors, as earlier versions made it.
    pub(crate) fn map(
        file: File,
        (offset, given): (u64, u64),
        (queues, size): (u16, u16),
    ) -> Result<Self, LogError> {
        let announced = Self::bytes(queues, size)?;
        let longest = Self::bytes(queues, MAX_SIZE)?;
        let (needed, size) = if given == longest {
            (longest, MAX_SIZE)
        } else {
            (announced, size)
        };
        if given < needed {
            return Err(LogError::Short { given, needed });
        }
        let mut regions = Regions::default();
        let place = FrontendRegion {
            guest: 0,
            size: needed,
            user: 0,
            offset,
        };
        regions.add(place, file)?;
        let memory = regions.memory().ok_or(MemoryError::Unknown)?;
        Ok(Self {
            regions,
            memory: Arc::new(memory),
            queues,
            size,
            cache_at: GuestAddress(needed - BEHIND),
        })
    }

    /// What is noted of the cache mode; zero: nothing.
    pub(crate) fn cache_mode(&self) -> u8 {
        self.memory.read_obj(self.cache_at).unwrap_or_default()
    }

    /// Notes the cache mode.
    pub(crate) fn note_cache_mode(&self, entry: u8) {
        // Cannot fail: the area was mapped with this byte.
        let _ = self.memory.write_obj(entry, self.cache_at);
    }

    /// Whether the file became shorter than the log.
    pub(crate) fn is_gone(&self) -> bool {
        self.regions.are_gone()
    }

    /// The log of queue `index` with `size` descriptors; `None`: there is no
    /// place for it.
    pub(crate) fn log(&self, index: usize, size: u16) -> Option<InflightLog> {
        if index >= usize::from(self.queues) || size > self.size {
            return None;
        }
        let base = index as u64 * InflightLog::part_bytes(self.size);
        InflightLog::new(Arc::clone(&self.memory), base, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_room_for_longer_queues_than_the_front_end_announced() {
        let (file, bytes) = LogArea::make(2, 128).unwrap();
        let area = LogArea::map(file, (0, bytes), (2, 128)).unwrap();
        for index in 0..2 {
            assert!(area.log(index, 128).is_some());
            assert!(area.log(index, MAX_SIZE).is_some());
        }
        assert!(area.log(2, 128).is_none());
    }

    #[test]
    fn a_log_of_an_earlier_version_keeps_its_layout() {
        let (file, _) = LogArea::make(2, 128).unwrap();
        let bytes = LogArea::bytes(2, 128).unwrap();
        file.set_len(bytes).unwrap();
        let area = LogArea::map(file, (0, bytes), (2, 128)).unwrap();
        assert_eq!(area.cache_at, GuestAddress(bytes - BEHIND));
        assert!(area.log(1, 128).is_some());
        assert!(area.log(1, 256).is_none());
    }
}
