//! Gives the machine's devices to their drivers, at boot.

#![cfg_attr(not(target_os = "none"), allow(dead_code))] // the host has no devices

use alloc::sync::Arc;
use alloc::vec::Vec;

use tare_abi::cmdline;
use tare_hal::virtio::{self, Transport};
use virtio_drivers::transport::{DeviceType, Transport as _};

use crate::block::{self, Device, Tables, VirtioBlk};
use crate::env;

/// Takes the virtio devices over and starts the network.
/// To be called once, on the first core, when threads can be spawned.
pub(crate) fn start() {
    let mut network = None;
    let mut disks = Vec::new();
    for transport in virtio::devices() {
        match transport.device_type() {
            DeviceType::EntropySource => crate::random::attach(transport),
            DeviceType::Network if network.is_none() => network = Some(transport),
            DeviceType::Block => disks.extend(open_disk(transport)),
            other => match virtio::console_driver() {
                Some(take) if other == DeviceType::Console => take(transport),
                _ => log::debug!("no driver for a device of type {}", other as u8),
            },
        }
    }
    block::set_disks(block::attach(disks));
    crate::net::boot::start(network);
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
