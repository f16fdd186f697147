//! Disks: from configuration and inherited descriptor to what the device takes.

use std::fs::File;

use tare_control::{
    config::{DiskCache, DiskConfig},
    exit::ExitCode,
};
use tare_devices::blk::{
    Access, BlkSettings, Cache, Disk, DiskError, MAX_QUEUES, Problem, SERIAL_BYTES,
};
use tare_policy::coalesce::Settings;

use crate::{inherit::Inherited, start::StartError};

/// A disk that was judged and locked.
pub(crate) struct OpenDisk {
    pub(crate) path: String,
    pub(crate) disk: Disk,
    pub(crate) settings: BlkSettings,
}

/// Takes the disk that `config` names.
pub(crate) fn open(config: &DiskConfig, inherited: &mut Inherited) -> Result<OpenDisk, StartError> {
    let settings = settings(config)?;
    let file = File::from(inherited.take(config.file)?);
    let access = match config.read_only {
        true => Access::ReadOnly,
        false => Access::ReadWrite,
    };
    Ok(OpenDisk {
        path: config.path.clone(),
        disk: Disk::from_file(file, &config.path, access)?,
        settings,
    })
}

/// The exit code for a disk that cannot be used.
pub(crate) fn code(error: &DiskError) -> ExitCode {
    match error.problem {
        Problem::Missing
        | Problem::NotWritable(_)
        | Problem::NotReadable(_)
        | Problem::Io { .. } => ExitCode::DiskUnreadable,
        Problem::NotADisk | Problem::Empty | Problem::OddSize { .. } | Problem::Format { .. } => {
            ExitCode::DiskUnusable
        }
        Problem::InUse => ExitCode::DiskInUse,
    }
}

fn settings(config: &DiskConfig) -> Result<BlkSettings, StartError> {
    let bad = |what: &str| StartError::BadConfig(format!("the disk {}: {what}", config.path));
    if !(1..=MAX_QUEUES).contains(&config.queues) {
        return Err(bad("it has no queue or too many"));
    }
    let mut serial = [0; SERIAL_BYTES];
    let given = config.serial.as_bytes();
    let place = serial.get_mut(..given.len());
    place
        .ok_or_else(|| bad("its serial number is too long"))?
        .copy_from_slice(given);
    let mode = config.coalesce.mode();
    let mode = mode.map_err(|error| bad(&error.to_string()))?;
    Ok(BlkSettings {
        serial,
        queues: config.queues,
        cache: match config.cache {
            DiskCache::Writeback => Cache::Writeback,
            DiskCache::Writethrough => Cache::Writethrough,
        },
        coalesce: Settings::with_mode(mode),
    })
}
