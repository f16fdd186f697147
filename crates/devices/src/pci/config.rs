//! A type 0 configuration header with a list of capabilities (PCI 3.0, 6.1
//! to 6.7): bytes, and for each byte the bits that a guest may change.

use super::CONFIG_LEN;
use super::bar::{Bar, BarWrite};

const VENDOR: usize = 0x00;
const DEVICE: usize = 0x02;
const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const REVISION: usize = 0x08;
const CLASS: usize = 0x09;
const BAR0: usize = 0x10;
const SUBSYSTEM_VENDOR: usize = 0x2c;
const SUBSYSTEM: usize = 0x2e;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;
const FIRST_CAPABILITY: usize = 0x40;

const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_MASTER: u16 = 1 << 2;
const COMMAND_NO_INTX: u16 = 1 << 10;
const STATUS_CAPABILITIES: u16 = 1 << 4;

/// A function's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor.
    pub vendor: u16,
    /// Device.
    pub device: u16,
    /// Revision.
    pub revision: u8,
    /// Base class, subclass and interface, 24 bits.
    pub class: u32,
    /// Subsystem vendor.
    pub subsystem_vendor: u16,
    /// Subsystem.
    pub subsystem: u16,
}

/// The effect of a guest's write, for the function that owns the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ConfigWrite {
    /// Stored, as far as the bits are writable.
    Stored,
    /// It tried to move the BAR.
    BarMoveRefused,
}

/// Configuration space of one function.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: [u8; CONFIG_LEN],
    writable: [u8; CONFIG_LEN],
    bar: Option<Bar>,
    /// Where the pointer to the next capability goes, and where that begins.
    link: usize,
    free: usize,
}

impl ConfigSpace {
    /// A header without BAR and capabilities, memory decoding on.
    pub fn new(identity: Identity) -> Self {
        let mut space = Self {
            bytes: [0; CONFIG_LEN],
            writable: [0; CONFIG_LEN],
            bar: None,
            link: CAPABILITIES,
            free: FIRST_CAPABILITY,
        };
        let class = identity.class.to_le_bytes();
        space.put(VENDOR, &identity.vendor.to_le_bytes());
        space.put(DEVICE, &identity.device.to_le_bytes());
        space.put(REVISION, &[identity.revision]);
        space.put(CLASS, &class[..3]);
        space.put(SUBSYSTEM_VENDOR, &identity.subsystem_vendor.to_le_bytes());
        space.put(SUBSYSTEM, &identity.subsystem.to_le_bytes());
        space.put(COMMAND, &(COMMAND_MEMORY | COMMAND_MASTER).to_le_bytes());
        space.allow(
            COMMAND,
            &(COMMAND_MEMORY | COMMAND_MASTER | COMMAND_NO_INTX).to_le_bytes(),
        );
        space.allow(INTERRUPT_LINE, &[0xff]);
        space
    }

    /// Gives the function BAR 0.
    pub(crate) fn set_bar(&mut self, bar: Bar) {
        self.bar = Some(bar);
    }

    /// BAR 0.
    pub fn bar(&self) -> Option<Bar> {
        self.bar
    }

    /// Sets the address of BAR 0.
    pub(crate) fn assign_bar(&mut self, address: u32) {
        if let Some(bar) = &mut self.bar {
            bar.assign(address);
        }
    }

    /// Appends a capability; `body` follows its identifier and link, and
    /// `writable` are the body's bits that a guest may change. Returns the
    /// capability's offset.
    ///
    /// # Panics
    /// When the space is full: capabilities are fixed by the device's code.
    pub(crate) fn add_capability(&mut self, id: u8, body: &[u8], writable: &[u8]) -> u16 {
        let at = self.free;
        let end = at + 2 + body.len();
        assert!(end <= CONFIG_LEN, "configuration space is full");
        self.put(self.link, &[at as u8]);
        self.put(at, &[id, 0]);
        self.put(at + 2, body);
        self.allow(at + 2, writable);
        self.put(STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        self.link = at + 1;
        self.free = end.next_multiple_of(4);
        at as u16
    }

    /// Reads `data.len()` bytes; zeros beyond the 256 bytes.
    pub fn read(&self, offset: u16, data: &mut [u8]) {
        for (at, byte) in (usize::from(offset)..).zip(data) {
            *byte = self.byte(at);
        }
    }

    /// Writes what is writable of `data`.
    pub fn write(&mut self, offset: u16, data: &[u8]) -> ConfigWrite {
        let mut outcome = ConfigWrite::Stored;
        for (at, value) in (usize::from(offset)..).zip(data) {
            if self.write_byte(at, *value) == BarWrite::MoveRefused {
                outcome = ConfigWrite::BarMoveRefused;
            }
        }
        outcome
    }

    /// Whether the function answers in its BAR.
    pub(crate) fn memory_enabled(&self) -> bool {
        self.word(COMMAND as u16) & COMMAND_MEMORY != 0
    }

    /// The present value of a 16-bit register.
    pub fn word(&self, offset: u16) -> u16 {
        let mut bytes = [0; 2];
        self.read(offset, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    /// The present value of a 32-bit register.
    pub fn dword(&self, offset: u16) -> u32 {
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn byte(&self, at: usize) -> u8 {
        match (self.bar, at) {
            (Some(bar), BAR0..0x14) => bar.read().to_le_bytes()[at - BAR0],
            _ => self.bytes.get(at).copied().unwrap_or(0),
        }
    }

    fn write_byte(&mut self, at: usize, value: u8) -> BarWrite {
        if let (Some(bar), BAR0..0x14) = (&mut self.bar, at) {
            bar.write_byte(at - BAR0, value);
            return if at == 0x13 {
                bar.end_write()
            } else {
                BarWrite::Kept
            };
        }
        if let (Some(byte), Some(mask)) = (self.bytes.get_mut(at), self.writable.get(at)) {
            *byte = *byte & !mask | value & mask;
        }
        BarWrite::Kept
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }
}
