//! What every driver of a virtio device does first.

#![cfg_attr(not(target_os = "none"), allow(dead_code))] // the host has no devices

use tare_hal::virtio::Transport;
pub(crate) use tare_hal::virtio::reason;
use virtio_drivers::transport::{DeviceStatus, Transport as _};

/// Not a legacy device (virtio 1.2, 6).
pub(crate) const VERSION_1: u64 = 1 << 32;

/// The device did not accept the features asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// Resets the device and agrees on what it offers of `wanted`.
pub(crate) fn negotiate(transport: &mut Transport, wanted: u64) -> Result<u64, Refused> {
    negotiate_by(transport, &|offered| offered & wanted)
}

/// Resets the device and agrees on what `choose` takes of what it offers.
pub(crate) fn negotiate_by(
    transport: &mut Transport,
    choose: &dyn Fn(u64) -> u64,
) -> Result<u64, Refused> {
    transport.set_status(DeviceStatus::empty());
    let mut status = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(status);
    let features = choose(transport.read_device_features());
    transport.write_driver_features(features);
    status |= DeviceStatus::FEATURES_OK;
    transport.set_status(status);
    // A legacy device does not know the bit (virtio 1.2, 3.1.2).
    let accepted = transport.get_status().contains(DeviceStatus::FEATURES_OK);
    if features & VERSION_1 != 0 && !accepted {
        transport.set_status(DeviceStatus::FAILED);
        return Err(Refused);
    }
    transport.set_guest_page_size(virtio_drivers::PAGE_SIZE as u32);
    Ok(features)
}
