//! What goes over to the devices: registers, configuration space, rings. The one place that
//! decides which addresses devices get.

#![allow(unsafe_code)]

use tare_libos::hal::raw::{self, Arena, Device};

use super::random::Random;

/// The queue's addresses in the common configuration (virtio 1.2, 4.1.4.3).
const ADDRESSES: core::ops::Range<u64> = 0x20..0x38;
/// A bit that no address of this machine's memory has: below 2 GiB.
const BEYOND: u32 = 1 << 31;
/// Rings and buffers begin at a place of the arena below this: a multiple of 64 KiB, so that
/// `flip` moves none beyond it. 128 KiB follow, more than `flip` makes of the longest length.
pub(super) const PLACES: usize = 384 << 10;
const _: () = assert!(PLACES.is_multiple_of(raw::ALIGNMENT));
/// Pages of the arena.
pub(super) const PAGES: usize = (PLACES + (128 << 10)) / 4096;

/// One device with the arena.
#[derive(Clone, Copy)]
pub(super) struct Wire {
    pub(super) device: Device,
    pub(super) arena: Arena,
}

impl Wire {
    pub(super) fn read(&self, offset: u64, width: u8) -> u32 {
        raw::read(&self.device, offset, width)
    }

    /// Writes a register. An address of a queue that is neither in the arena nor
    /// beyond memory becomes one that is.
    pub(super) fn write(&self, offset: u64, width: u8, value: u32) {
        let value = if ADDRESSES.contains(&offset) {
            if width < 4 {
                return;
            }
            self.harmless(value)
        } else {
            value
        };
        // SAFETY: addresses of queues are harmless. Descriptors in the rings' pages are those
        // of `prepare`, `descriptor`, `request` and `flood`, which stay in the arena or beyond memory
        // whatever `flip` makes of their low halves.
        unsafe { raw::write(&self.device, offset, width, value) }
    }

    /// Writes a register of configuration space, through which the others can be written.
    pub(super) fn write_config(&self, register: u8, value: u32) {
        // SAFETY: half of a queue's address that comes this way is harmless.
        unsafe { raw::write_config(&self.device, register, self.harmless(value)) }
    }

    /// A half of an address that lies, with whatever other half, in the arena or beyond
    /// memory; or a value that is too small for memory that matters.
    fn harmless(&self, value: u32) -> u32 {
        let start = self.arena.address() as u32;
        let inside = (start..start + PLACES as u32).contains(&value);
        if inside || !(0x100..BEYOND).contains(&value) {
            value
        } else {
            value | BEYOND
        }
    }

    /// An address for a device: in the arena mostly, else beyond memory, in the window of
    /// the devices, at the interrupt controller or at the end of all addresses.
    pub(super) fn target(&self, random: &mut Random) -> u64 {
        let place = u64::from(random.below(PLACES as u32));
        match random.below(16) {
            0 => u64::MAX - place,
            1 => u64::from(BEYOND) + place,
            2 => self.device.bar + place % raw::BAR_BYTES,
            3 => 0xfee0_0000 + place % 0x1000,
            // Beyond memory even if `flip` takes its upper half away.
            4 => place << 40 | u64::from(BEYOND),
            5..8 => self.arena.address() + place,
            _ => self.arena.address() + (place & !0xfff),
        }
    }

    /// A length: within 64 KiB, or more than there is memory.
    pub(super) fn length(random: &mut Random) -> u32 {
        match random.below(8) {
            0 => u32::MAX - random.below(16),
            1 => BEYOND,
            2 => 0,
            3 => random.below(64),
            4 => 0x1_0000,
            _ => (random.below(16) + 1) * 512,
        }
    }

    /// Writes a descriptor at `offset` of the arena.
    pub(super) fn descriptor(&self, offset: usize, random: &mut Random, size: u16) {
        self.arena.write(offset, &self.target(random).to_le_bytes());
        self.arena
            .write(offset + 8, &Self::length(random).to_le_bytes());
        // Next, device writes, table; rarely a bit that no driver sets.
        let flags = match random.below(8) {
            0 => random.below(8) as u16,
            1 => random.next() as u16,
            _ => random.below(4) as u16,
        };
        let next = match random.below(8) {
            0 => random.next() as u16,
            _ => random.below(u32::from(size.max(1))) as u16,
        };
        self.arena.write(offset + 12, &flags.to_le_bytes());
        self.arena.write(offset + 14, &next.to_le_bytes());
    }
}
