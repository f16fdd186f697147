//! Disks: from the configuration to what the device takes, and the exit codes
//! of those that cannot be used.

use tare_control::config::{DiskCache, DiskConfig};
use tare_control::exit::ExitCode;
use tare_devices::blk::{BlkSettings, Cache, DiskError, MAX_QUEUES, Problem, SERIAL_BYTES};
use tare_policy::coalesce::{self, Settings};

/// A configuration that no disk can have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskConfigError {
    /// Queues.
    #[error("the number of queues is zero or too large")]
    Queues,
    /// Serial number.
    #[error("its serial number is too long")]
    Serial,
    /// Coalescing.
    #[error("{0}")]
    Coalesce(coalesce::SettingsError),
}

/// How the disk looks to the guest.
pub fn settings(config: &DiskConfig) -> Result<BlkSettings, DiskConfigError> {
    if !(1..=MAX_QUEUES).contains(&config.queues) {
        return Err(DiskConfigError::Queues);
    }
    let mut serial = [0; SERIAL_BYTES];
    let given = config.serial.as_bytes();
    let place = serial.get_mut(..given.len());
    place.ok_or(DiskConfigError::Serial)?.copy_from_slice(given);
    let mode = config.coalesce.mode();
    Ok(BlkSettings {
        serial,
        queues: config.queues,
        cache: match config.cache {
            DiskCache::Writeback => Cache::Writeback,
            DiskCache::Writethrough => Cache::Writethrough,
        },
        coalesce: Settings::with_mode(mode.map_err(DiskConfigError::Coalesce)?),
    })
}

/// The exit code for a disk that cannot be used.
pub fn code(error: &DiskError) -> ExitCode {
    match error.problem {
        Problem::Missing
        | Problem::NotWritable(_)
        | Problem::NotReadable(_)
        | Problem::Io { .. } => ExitCode::DiskUnreadable,
        Problem::NotADisk | Problem::Empty | Problem::OddSize { .. } | Problem::Format { .. } => {
            ExitCode::DiskUnusable
        }
        Problem::InUse | Problem::Mounted { .. } => ExitCode::DiskInUse,
    }
}
