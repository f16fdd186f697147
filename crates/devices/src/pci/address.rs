//! Addresses: of functions on the bus, and of BARs in memory.

use std::fmt;

/// Address of a function: bus 0, device 0 to 31, function 0. Displays as
/// `00:01.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Device number.
    pub device: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00:{:02x}.0", self.device)
    }
}

/// Guest-physical addresses from which BARs are assigned, upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryWindow {
    /// First address; below 4 GiB.
    pub start: u64,
    /// Bytes; the window ends at or below 4 GiB.
    pub size: u64,
}

impl MemoryWindow {
    /// Takes `size` bytes (a power of two), aligned to their size.
    pub(super) fn allocate(&mut self, size: u64) -> Option<u64> {
        let base = self.start.checked_next_multiple_of(size)?;
        let skipped = base - self.start;
        let left = self.size.checked_sub(skipped)?.checked_sub(size)?;
        u32::try_from(base + size - 1).ok()?;
        *self = Self {
            start: base + size,
            size: left,
        };
        Some(base)
    }
}
