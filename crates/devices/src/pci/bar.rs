//! A 32-bit memory BAR that does not move (PCI 3.0, 6.2.5.1).

/// A base address register: non-prefetchable memory below 4 GiB.
///
/// Sizing works, in one write or byte by byte. A write of any other address is refused and counted,
/// and the register keeps the assigned one, so that a guest that reads it back uses the right
/// address. Moving a BAR would require binding every ioeventfd again, and no known guest needs it:
/// Linux keeps assigned BARs, and small guests only read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    size: u32,
    address: u32,
    written: u32,
}

/// What a write to the register was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BarWrite {
    /// Sizing, or the assigned address, or part of one of them.
    Kept,
    /// Another address.
    MoveRefused,
}

impl Bar {
    /// A BAR of `size` bytes, a power of two of at least 16.
    pub fn new(size: u32) -> Self {
        debug_assert!(size.is_power_of_two() && size >= 16);
        Self {
            size,
            address: 0,
            written: 0,
        }
    }

    /// Bytes.
    pub fn size(self) -> u32 {
        self.size
    }

    /// The assigned address.
    pub fn address(self) -> u32 {
        self.address
    }

    /// Assigns the address, before the guest runs.
    pub fn assign(&mut self, address: u32) {
        self.address = address;
        self.written = address;
    }

    /// The register as the guest reads it.
    pub(super) fn read(self) -> u32 {
        if self.sizing() {
            self.mask()
        } else {
            self.address
        }
    }

    /// Writes byte `index` of the register.
    pub(super) fn write_byte(&mut self, index: usize, value: u8) {
        let mut bytes = self.written.to_le_bytes();
        bytes[index] = value;
        self.written = u32::from_le_bytes(bytes);
    }

    /// Evaluates the register after a write that reached its last byte.
    pub(super) fn end_write(&mut self) -> BarWrite {
        if self.sizing() || self.written & self.mask() == self.address {
            return BarWrite::Kept;
        }
        self.written = self.address;
        BarWrite::MoveRefused
    }

    fn sizing(self) -> bool {
        self.written & self.mask() == self.mask()
    }

    fn mask(self) -> u32 {
        !(self.size - 1)
    }
}
