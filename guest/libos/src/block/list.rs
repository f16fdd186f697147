//! The machine's disks, by name.
//!
//! Buses number disks as they like: QEMU's microvm finds the last first. Tare
//! gives each disk the serial number `tare-diskN` unless it was given another,
//! and that is the number that counts; other disks are numbered as they were
//! found.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Device, Disk};
use crate::hal::once::OnceCell;

/// What Tare's serial numbers begin with, before the disk's name.
const SERIAL_PREFIX: &str = "tare-";
/// What names begin with, before the disk's number.
const NAME_PREFIX: &str = "disk";

static DISKS: OnceCell<Vec<Disk>> = OnceCell::new();

/// The machine's disks, by name.
pub fn disks() -> &'static [Disk] {
    DISKS.get().map_or(&[], Vec::as_slice)
}

/// The disk called `name`, or with that serial number.
pub fn disk(name: &str) -> Option<&'static Disk> {
    let disks = disks();
    let by_name = disks.iter().find(|disk| disk.name() == name);
    by_name.or_else(|| disks.iter().find(|disk| disk.serial() == name))
}

/// Names devices, which are in the bus's order.
pub(crate) fn attach(devices: Vec<Arc<dyn Device>>) -> Vec<Disk> {
    let mut numbers: Vec<Option<u32>> = Vec::new();
    for device in &devices {
        let number = number(&device.geometry().serial);
        let taken = number.is_some() && numbers.contains(&number);
        numbers.push(number.filter(|_| !taken));
    }
    for place in 0..numbers.len() {
        if numbers[place].is_none() {
            numbers[place] = (0..).find(|number| !numbers.contains(&Some(*number)));
        }
    }
    let mut disks: Vec<_> = numbers.into_iter().flatten().zip(devices).collect();
    disks.sort_unstable_by_key(|(number, _)| *number);
    let named = |(number, device)| Disk::new(&name(number), device);
    disks.into_iter().map(named).collect()
}

/// Makes `disks` the machine's; the first call counts.
pub(crate) fn set_disks(disks: Vec<Disk>) {
    let _ = DISKS.set(disks);
}

fn name(number: u32) -> String {
    format!("{NAME_PREFIX}{number}")
}

/// The number in a serial number of Tare's.
fn number(serial: &str) -> Option<u32> {
    let name = serial.strip_prefix(SERIAL_PREFIX)?;
    let number = name.strip_prefix(NAME_PREFIX)?.parse::<u32>().ok()?;
    (number.to_string() == name[NAME_PREFIX.len()..]).then_some(number)
}
