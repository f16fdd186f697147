//! Gives the machine's devices to their drivers, at boot.

#![cfg_attr(not(target_os = "none"), allow(dead_code))] // the host has no devices

use alloc::sync::Arc;
use alloc::vec::Vec;

use tare_abi::cmdline;
use tare_hal::virtio::{self, Transport};
use virtio_drivers::transport::{DeviceType, Transport as _};

use crate::block::{self, Device, Tables, VirtioBlk};
use crate::{env, fs};

/// Takes the virtio devices over, mounts the files and starts the network. To
/// be called once, on the first core, when threads can be spawned.
pub(crate) fn start() -> Result<(), fs::MountError> {
    let mut network = None;
    let mut disks = Vec::new();
    for transport in virtio::devices() {
        match transport.device_type() {
            DeviceType::EntropySource => crate::random::attach(transport),
            DeviceType::Network if network.is_none() => network = Some(transport),
            DeviceType::Block => disks.extend(open_disk(transport)),
            other => log::debug!("no driver for a device of type {other:?}"),
        }
    }
    block::settle(block::attach(disks));
    mount()?;
    crate::net::boot::start(network);
    Ok(())
}

fn open_disk(transport: Transport) -> Option<Arc<dyn Device>> {
    let tables = match env::var(cmdline::BLK_INDIRECT) {
        Some("on") => Tables::Indirect,
        _ => Tables::Direct,
    };
    match VirtioBlk::new(transport, tables) {
        Ok(device) => Some(device),
        Err(error) => {
            log::error!("block: {error}");
            None
        }
    }
}

/// The files that the command line names, or the initramfs.
fn mount() -> Result<(), fs::MountError> {
    if let Some(name) = env::var(cmdline::ROOT) {
        let disk = block::disk(name).ok_or(fs::MountError::NoDisk(name))?;
        return fs::mount_disk(disk);
    }
    if let Some(archive) = env::initramfs() {
        fs::mount(archive);
    }
    Ok(())
}
