//! virtio-mmio devices in the DSDT: QEMU's microvm and Firecracker describe
//! them there, as devices with the ID `LNRO0005` whose resources are one memory
//! range and one interrupt (ACPI 6.5, 6.4.3.4 and 6.4.3.6).
//!
//! The AML is not interpreted. After each ID the next two descriptors of that
//! shape are taken; what else a hostile table makes of this is at worst a
//! device whose registers do not say that it is one.

use alloc::vec::Vec;

use crate::boot::u32_at;
use crate::virtio::MmioWord;

const ID: &[u8] = b"LNRO0005";
/// Memory32Fixed: tag, length 9.
const MEMORY: &[u8] = &[0x86, 0x09, 0x00];
/// Extended interrupt with one number: tag, length 6.
const INTERRUPT: &[u8] = &[0x89, 0x06, 0x00];
/// Bytes after an ID in which its resources must lie.
const REACH: usize = 256;
const MAX_DEVICES: usize = 32;

/// The devices, in table order.
pub(super) fn virtio_mmio(dsdt: &[u8]) -> Vec<MmioWord> {
    let mut devices = Vec::new();
    let mut rest = dsdt;
    while devices.len() < MAX_DEVICES
        && let Some(after) = after(rest, ID)
    {
        rest = after;
        devices.extend(device(&rest[..rest.len().min(REACH)]));
    }
    devices
}

fn device(resources: &[u8]) -> Option<MmioWord> {
    let memory = after(resources, MEMORY)?;
    let interrupt = after(memory, INTERRUPT)?;
    MmioWord::new(
        u64::from(u32_at(memory, 1)?),
        u64::from(u32_at(memory, 5)?),
        u32_at(interrupt, 2)?,
    )
}

/// What follows the first `pattern`.
fn after<'a>(bytes: &'a [u8], pattern: &[u8]) -> Option<&'a [u8]> {
    let at = bytes
        .windows(pattern.len())
        .position(|window| window == pattern)?;
    Some(&bytes[at + pattern.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aml(base: u32, size: u32, line: u32) -> Vec<u8> {
        let mut aml = b"\x5b\x82VR00\x08_HID\x0dLNRO0005\0\x08_CRS\x11".to_vec();
        aml.extend(MEMORY);
        aml.push(1);
        aml.extend(base.to_le_bytes());
        aml.extend(size.to_le_bytes());
        aml.extend(INTERRUPT);
        aml.extend([1, 1]);
        aml.extend(line.to_le_bytes());
        aml
    }

    #[test]
    fn devices_are_found_in_order() {
        let mut dsdt = aml(0xfeb0_0000, 512, 24);
        dsdt.extend(aml(0xfeb0_0200, 512, 25));
        let found = virtio_mmio(&dsdt);
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].base, found[1].line), (0xfeb0_0200, 25));
    }

    #[test]
    fn every_truncation_is_survived() {
        let dsdt = aml(0xfeb0_0000, 512, 24);
        for length in 0..dsdt.len() {
            assert!(virtio_mmio(&dsdt[..length]).is_empty());
        }
        assert_eq!(virtio_mmio(&ID.repeat(1000)), []);
    }
}
