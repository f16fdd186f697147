//! Disks: from the configuration to the arguments of the device, the rules that can change while a
//! disk is served, and the exit codes for disks that cannot be used.

use std::sync::Arc;

use tare_control::config::{DiskCache, DiskConfig};
use tare_control::exit::ExitCode;
use tare_control::sentence::chain;
use tare_control::settings::{Coalesce, DiskSettings, SettingsChange, SettingsError};
use tare_devices::blk::{
    Blk, BlkSettings, Cache, DiskError, Growth, MAX_QUEUES, Problem, SERIAL_BYTES,
};
use tare_policy::coalesce::{self, Settings};
use tare_policy::limit::DiskLimits;

use crate::rules::SharedRules;

/// An invalid disk configuration.
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
        limits: DiskLimits {
            iops: config.iops,
            bytes_per_s: config.bytes_per_s,
        },
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

/// The settings of a disk that can change while it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRules {
    /// Which completions interrupt the guest.
    pub coalesce: Settings,
    /// Requests and bytes a second.
    pub limits: DiskLimits,
    /// Length of the disk.
    pub bytes: u64,
}

impl DiskRules {
    /// The rules in force.
    pub fn now(disk: &Blk) -> Self {
        Self {
            coalesce: disk.coalescing(),
            limits: disk.limits(),
            bytes: disk.bytes(),
        }
    }

    /// Puts them into force. Notify a queue afterwards.
    pub fn apply(&self, disk: &mut Blk) {
        disk.set_coalescing(self.coalesce);
        disk.set_limits(self.limits);
        disk.set_bytes(self.bytes);
    }

    /// The rules as the control interface shows them, for the disk at `path`.
    pub fn settings(&self, path: &str) -> DiskSettings {
        DiskSettings {
            path: path.to_owned(),
            coalesce: Coalesce::from(&self.coalesce),
            iops: self.limits.iops,
            bytes_per_s: self.limits.bytes_per_s,
            size: self.bytes,
        }
    }

    /// The rules that `settings` requests.
    pub fn wanted(settings: &DiskSettings) -> Result<Self, coalesce::SettingsError> {
        Ok(Self {
            coalesce: settings.coalesce.settings()?,
            limits: DiskLimits {
                iops: settings.iops,
                bytes_per_s: settings.bytes_per_s,
            },
            bytes: settings.size,
        })
    }
}

/// A disk, seen from the main thread.
pub struct AdjustableDisk {
    /// Where it came from, for people.
    pub path: String,
    /// Shared with the I/O thread.
    pub rules: Arc<SharedRules<DiskRules>>,
    /// What extends it.
    pub growth: Growth,
}

/// The name of disk `number` in settings.
pub fn name(number: usize) -> String {
    format!("disk{number}")
}

impl AdjustableDisk {
    /// The settings in force.
    pub fn settings(&self) -> DiskSettings {
        self.rules.get().settings(&self.path)
    }
}

/// Extends the disk whose size `change` names, if it names one. This comes before the rest of a
/// change, since it can fail. The new size takes effect with the disk's rules.
pub fn grow<'a>(
    disks: impl Iterator<Item = &'a mut AdjustableDisk>,
    change: &SettingsChange,
) -> Result<(), SettingsError> {
    for (number, disk) in disks.enumerate() {
        let name = name(number);
        let wanted = change.disks.get(&name).and_then(|it| it.size);
        if let Some(wanted) = wanted {
            let grown = disk.growth.grow(disk.rules.get().bytes, wanted);
            grown.map_err(|error| SettingsError::Size {
                disk: name,
                problem: chain(&error),
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(mode: coalesce::Mode, iops: u64) -> DiskRules {
        DiskRules {
            coalesce: Settings::with_mode(mode),
            limits: DiskLimits {
                iops,
                bytes_per_s: 0,
            },
            bytes: 512,
        }
    }

    #[test]
    fn rules_come_back_from_what_is_shown() {
        let rules = rules(coalesce::Mode::Off, 7);
        assert_eq!(DiskRules::wanted(&rules.settings("d")), Ok(rules));
    }
}
