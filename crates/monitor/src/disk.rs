//! Disks: from configuration and inherited descriptor to the arguments of the device.

use std::fs::File;
use std::time::Duration;

use tare_control::config::DiskConfig;
use tare_devices::blk::{self, Access, BlkSettings, Disk, Growth, IoEngineChoice};

pub(crate) use tare_daemon::disk::code;

use crate::inherit::Inherited;
use crate::start::{StartError, failed_to};

/// A disk that was checked and locked.
pub(crate) struct OpenDisk {
    pub(crate) path: String,
    pub(crate) disk: Disk,
    /// Created here: the jail allows no new ring.
    pub(crate) engine: IoEngineChoice,
    /// Created here for the same reason.
    pub(crate) growth: Growth,
    pub(crate) settings: BlkSettings,
    /// Time that each request takes at least.
    pub(crate) latency: Duration,
}

/// Takes the disk that `config` names.
pub(crate) fn open(config: &DiskConfig, inherited: &mut Inherited) -> Result<OpenDisk, StartError> {
    let settings = tare_daemon::disk::settings(config);
    let bad = |error| StartError::BadConfig(format!("the disk {}: {error}", config.path));
    let settings = settings.map_err(bad)?;
    let file = File::from(inherited.take(config.file)?);
    let access = if config.read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    let disk = Disk::from_file(file, &config.path, access)?;
    let engine = blk::choose(&disk).map_err(failed_to("copy a disk's descriptor"))?;
    let growth = Growth::new(&disk).map_err(failed_to("copy a disk's descriptor"))?;
    Ok(OpenDisk {
        path: config.path.clone(),
        growth,
        disk,
        engine,
        settings,
        latency: Duration::from_micros(config.latency_us.into()),
    })
}
