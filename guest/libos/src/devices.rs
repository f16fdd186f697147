//! Gives the machine's devices to their drivers, at boot.

#![cfg_attr(not(target_os = "none"), allow(dead_code))] // the host has no devices

use tare_hal::virtio;
use virtio_drivers::transport::{DeviceType, Transport as _};

/// Mounts the initramfs, takes the virtio devices over and starts the network.
/// To be called once, on the first core, when threads can be spawned.
pub(crate) fn start() {
    if let Some(archive) = crate::env::initramfs() {
        crate::fs::mount(archive);
    }
    let mut network = None;
    for transport in virtio::devices() {
        match transport.device_type() {
            DeviceType::EntropySource => crate::random::attach(transport),
            DeviceType::Network if network.is_none() => network = Some(transport),
            other => log::debug!("no driver for a device of type {other:?}"),
        }
    }
    crate::net::boot::start(network);
}
