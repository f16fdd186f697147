//! Taking a device over: features, configuration space, queues.

use tare_hal::virtio::Transport;
use virtio_drivers::transport::Transport as _;

use super::features;
use crate::block::{Access, SECTOR_BYTES};
use crate::virtio;

/// Longest request where the device says nothing.
const REQUEST_BYTES: usize = 1 << 20;
/// Most queues: the hal has that number of notification addresses.
const MAX_QUEUES: usize = 8;

/// Why a block device cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// It did not accept the features asked for.
    #[error("the block device does not accept the negotiated features")]
    Features,
    /// A queue has no room for a request.
    #[error("the block device's queue {index} has {descriptors} descriptors, fewer than 4")]
    ShortQueue {
        /// Its number.
        index: u16,
        /// Its length.
        descriptors: usize,
    },
    /// Devices before it have all interrupt vectors.
    #[error("no interrupt is left for the block device: give the machine fewer disks")]
    NoInterrupt,
    /// A queue or the configuration space did not work out.
    #[error("the block device cannot be set up: {}", virtio::reason(.0))]
    Setup(virtio_drivers::Error),
}

/// Whether requests use indirect tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// Three descriptors of the queue for each request.
    Direct,
    /// One descriptor with its own table.
    Indirect,
}

/// What the configuration space says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) sectors: u64,
    pub(super) request_bytes: usize,
    pub(super) queues: usize,
    pub(super) access: Access,
    /// Most sectors of one request; zero: the device knows none.
    pub(super) discard_sectors: u32,
    pub(super) zero_sectors: u32,
}

/// Resets the device and agrees on features.
pub(super) fn negotiate(transport: &mut Transport, tables: Tables) -> Result<u64, OpenError> {
    let wanted = match tables {
        Tables::Direct => features::WANTED,
        Tables::Indirect => features::WANTED | features::INDIRECT,
    };
    virtio::negotiate(transport, wanted).map_err(|virtio::Refused| OpenError::Features)
}

/// Reads the configuration space; as many queues as there are `cores`.
pub(super) fn config(
    transport: &Transport,
    features: u64,
    cores: usize,
) -> virtio_drivers::Result<Config> {
    let longest = match features & features::SIZE_MAX {
        0 => REQUEST_BYTES,
        _ => transport.read_config_space::<u32>(features::CONFIG_SIZE_MAX)? as usize,
    };
    let most = |feature, offset| match features & feature {
        0 => Ok(0),
        _ => transport.read_config_space::<u32>(offset),
    };
    let queues = match features & features::MULTI_QUEUE {
        0 => 1,
        _ => transport
            .read_config_space::<u16>(features::CONFIG_QUEUES)?
            .into(),
    };
    Ok(Config {
        sectors: capacity(transport)?,
        request_bytes: request_bytes(longest),
        queues: queues.min(cores).clamp(1, MAX_QUEUES),
        access: match features & features::READ_ONLY {
            0 => Access::ReadWrite,
            _ => Access::ReadOnly,
        },
        discard_sectors: most(features::DISCARD, features::CONFIG_DISCARD_SECTORS)?,
        zero_sectors: most(features::WRITE_ZEROES, features::CONFIG_ZERO_SECTORS)?,
    })
}

/// Sectors of the device now: both halves of one moment.
pub(super) fn capacity(transport: &Transport) -> virtio_drivers::Result<u64> {
    transport.read_consistent(|| {
        let low = transport.read_config_space::<u32>(features::CONFIG_CAPACITY)?;
        let high = transport.read_config_space::<u32>(features::CONFIG_CAPACITY + 4)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    })
}

/// Whole sectors, at least one.
fn request_bytes(longest: usize) -> usize {
    let bytes = longest.min(REQUEST_BYTES) / SECTOR_BYTES * SECTOR_BYTES;
    bytes.max(SECTOR_BYTES)
}

/// Most queues of a device, of which each takes an interrupt: a quarter of those that are left, so
/// that the devices that follow have some; `None` if there is none. A queue without one would never
/// complete a request.
pub(super) fn queues_for(interrupts_left: usize) -> Option<usize> {
    (interrupts_left > 0).then_some((interrupts_left / 4).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_whole_sectors_whatever_the_device_says() {
        assert_eq!(request_bytes(0), 512);
        assert_eq!(request_bytes(1000), 512);
        assert_eq!(request_bytes(262_144), 262_144);
        assert_eq!(request_bytes(usize::MAX), REQUEST_BYTES);
    }

    #[test]
    fn sixteen_disks_of_many_queues_have_an_interrupt_for_each() {
        // A machine has 60, and its network takes one.
        let (mut left, mut queues) = (59, Vec::new());
        while let Some(most) = queues_for(left) {
            let taken = most.min(MAX_QUEUES);
            left -= taken;
            queues.push(taken);
        }
        assert_eq!(queues[..4], [8, 8, 8, 8]);
        assert!(queues.len() >= 16, "{queues:?}");
        assert_eq!(left, 0);
    }
}
