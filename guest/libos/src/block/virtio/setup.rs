//! Taking a device over: features, configuration space, queues.

use tare_hal::virtio::Transport;
use virtio_drivers::transport::{DeviceStatus, Transport as _};

use super::features;
use crate::block::{Access, SECTOR_BYTES};

/// Longest request where the device says nothing.
const REQUEST_BYTES: usize = 1 << 20;
/// Most queues: the hal knows so many notification addresses.
const MAX_QUEUES: usize = 8;

/// Why a block device cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// It did not accept the features asked for.
    #[error("the block device refuses its features")]
    Features,
    /// A queue or the configuration space did not work out.
    #[error("the block device cannot be set up: {0}")]
    Setup(virtio_drivers::Error),
}

/// Whether requests use indirect tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// Three descriptors of the queue for each request.
    Direct,
    /// One descriptor, and a table of its own.
    Indirect,
}

/// What the configuration space says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) sectors: u64,
    pub(super) request_bytes: usize,
    pub(super) queues: usize,
    pub(super) access: Access,
}

/// Resets the device and agrees on features.
pub(super) fn negotiate(transport: &mut Transport, tables: Tables) -> Result<u64, OpenError> {
    transport.set_status(DeviceStatus::empty());
    let mut status = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(status);
    let wanted = match tables {
        Tables::Direct => features::WANTED,
        Tables::Indirect => features::WANTED | features::INDIRECT,
    };
    let features = transport.read_device_features() & wanted;
    transport.write_driver_features(features);
    status |= DeviceStatus::FEATURES_OK;
    transport.set_status(status);
    // A legacy device does not know the bit (virtio 1.2, 3.1.2).
    let accepted = transport.get_status().contains(DeviceStatus::FEATURES_OK);
    if features & features::VERSION_1 != 0 && !accepted {
        transport.set_status(DeviceStatus::FAILED);
        return Err(OpenError::Features);
    }
    transport.set_guest_page_size(virtio_drivers::PAGE_SIZE as u32);
    Ok(features)
}

/// Reads the configuration space; as many queues as there are `cores`.
pub(super) fn config(
    transport: &Transport,
    features: u64,
    cores: usize,
) -> virtio_drivers::Result<Config> {
    let low = transport.read_config_space::<u32>(features::CONFIG_CAPACITY)?;
    let high = transport.read_config_space::<u32>(features::CONFIG_CAPACITY + 4)?;
    let longest = match features & features::SIZE_MAX {
        0 => REQUEST_BYTES,
        _ => transport.read_config_space::<u32>(features::CONFIG_SIZE_MAX)? as usize,
    };
    let queues = match features & features::MULTI_QUEUE {
        0 => 1,
        _ => transport
            .read_config_space::<u16>(features::CONFIG_QUEUES)?
            .into(),
    };
    Ok(Config {
        sectors: u64::from(high) << 32 | u64::from(low),
        request_bytes: request_bytes(longest),
        queues: queues.min(cores).clamp(1, MAX_QUEUES),
        access: match features & features::READ_ONLY {
            0 => Access::ReadWrite,
            _ => Access::ReadOnly,
        },
    })
}

/// Whole sectors, at least one.
fn request_bytes(longest: usize) -> usize {
    let bytes = longest.min(REQUEST_BYTES) / SECTOR_BYTES * SECTOR_BYTES;
    bytes.max(SECTOR_BYTES)
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
}
