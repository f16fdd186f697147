//! Registers of PCI devices and memory that devices use, without a driver between: for
//! images that test what a monitor makes of a guest that keeps no rule.
//!
//! Such an image takes the devices from the library OS's drivers under their hands, and
//! a device that gets nonsense may overwrite the image. No other image uses this.

#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::ptr::NonNull;

use tare_abi::layout::{PCI_MMIO_SIZE, PCI_MMIO_START};
use tare_abi::ports::PCI_ADDRESS;
use x86_64::instructions::port::Port;

use crate::memory::{self, heap};
use crate::pci;

/// Bytes of a device's first memory BAR that are used.
pub const BAR_BYTES: u64 = 0x8000;
const PAGE: usize = 4096;
/// Of an [`Arena`]: whatever the low 16 bits of an address in it become, the address stays in it
/// if its length is a multiple of this.
pub const ALIGNMENT: usize = 64 << 10;
const VIRTIO_VENDOR: u32 = 0x1af4;

/// A virtio device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Its number on bus 0.
    pub number: u8,
    /// Its device ID: 0x1040 and the kind.
    pub id: u16,
    /// Address of its registers, [`BAR_BYTES`] from there.
    pub bar: u64,
}

/// Every virtio device whose registers can be reached.
pub fn devices() -> Vec<Device> {
    let virtio = pci::functions().filter(|(_, id)| id & 0xffff == VIRTIO_VENDOR);
    virtio
        .filter_map(|(at, id)| {
            let bar = u64::from(pci::read(at, 0x10) & !15);
            let range = bar..bar + BAR_BYTES;
            let fits = range.start >= PCI_MMIO_START && range.end <= PCI_MMIO_START + PCI_MMIO_SIZE;
            (fits && memory::map_device(&range)).then_some(Device {
                number: at.device,
                id: (id >> 16) as u16,
                bar,
            })
        })
        .collect()
}

/// Reads 1, 2 or 4 bytes at `offset` of a device's registers; 0 beyond them, not aligned, or of
/// another width.
pub fn read(device: &Device, offset: u64, width: u8) -> u32 {
    let Some(at) = register(device, offset, width) else {
        return 0;
    };
    match width {
        // SAFETY: 1. `register` checks that the bytes lie within the BAR that `devices` mapped, at
        //    a multiple of their width. 2. A read of a device's register changes no memory of this
        //    image's.
        1 => u32::from(unsafe { (at as *const u8).read_volatile() }),
        // SAFETY: 1. As for a byte: within the mapped BAR, aligned (`register`). 2. A read changes
        //    no memory of this image's.
        2 => u32::from(unsafe { (at as *const u16).read_volatile() }),
        // SAFETY: 1. As for a byte: within the mapped BAR, aligned (`register`). 2. A read changes
        //    no memory of this image's.
        _ => unsafe { (at as *const u32).read_volatile() },
    }
}

/// Writes 1, 2 or 4 bytes at `offset` of a device's registers; nothing beyond them, not aligned,
/// or of another width.
///
/// # Safety
///
/// The device may be set to write to memory: the caller sees to it that this is memory of
/// an [`Arena`], or none.
pub unsafe fn write(device: &Device, offset: u64, width: u8, value: u32) {
    let Some(at) = register(device, offset, width) else {
        return;
    };
    match width {
        // SAFETY: 1. `register` checks that the bytes lie within the BAR that `devices` mapped, at
        //    a multiple of their width. 2. The device writes to an arena or to no memory (the
        //    caller's promise).
        1 => unsafe { (at as *mut u8).write_volatile(value as u8) },
        // SAFETY: 1. As for a byte: within the mapped BAR, aligned (`register`). 2. The caller's
        //    promise.
        2 => unsafe { (at as *mut u16).write_volatile(value as u16) },
        // SAFETY: 1. As for a byte: within the mapped BAR, aligned (`register`). 2. The caller's
        //    promise.
        _ => unsafe { (at as *mut u32).write_volatile(value) },
    }
}

/// Where a register lies, if it is one of `width` bytes.
fn register(device: &Device, offset: u64, width: u8) -> Option<u64> {
    if !matches!(width, 1 | 2 | 4) {
        return None;
    }
    let bytes = u64::from(width);
    let is_inside = offset.is_multiple_of(bytes) && offset <= BAR_BYTES - bytes;
    is_inside.then_some(device.bar + offset)
}

/// Reads a register of a device's configuration space.
pub fn read_config(device: &Device, register: u8) -> u32 {
    pci::read(function(device), register)
}

/// Writes a register of a device's configuration space.
///
/// # Safety
///
/// As for [`write()`]: the space has a window to the registers.
pub unsafe fn write_config(device: &Device, register: u8, value: u32) {
    pci::write(function(device), register, value);
}

/// Reads 1, 2 or 4 bytes from one of the eight ports of configuration space.
pub fn read_port(number: u16, width: u8) -> u32 {
    let port = PCI_ADDRESS + number % 8;
    match width {
        // SAFETY: 1. The port is one of the eight of PCI's configuration space, whose addresses the
        //    PC fixes. 2. A read changes no memory.
        1 => u32::from(unsafe { Port::<u8>::new(port).read() }),
        // SAFETY: 1. As for a byte: a port of configuration space. 2. A read changes no memory.
        2 => u32::from(unsafe { Port::<u16>::new(port).read() }),
        // SAFETY: 1. As for a byte: a port of configuration space. 2. A read changes no memory.
        _ => unsafe { Port::<u32>::new(port).read() },
    }
}

/// Writes the address port of configuration space, which changes no device.
pub fn write_address_port(value: u32) {
    pci::write_address(value);
}

fn function(device: &Device) -> virtio_drivers::transport::pci::bus::DeviceFunction {
    virtio_drivers::transport::pci::bus::DeviceFunction {
        bus: 0,
        device: device.number,
        function: 0,
    }
}

/// Memory that only devices and this type touch, for as long as the image runs. Any core may
/// write to it at any time.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: 1. `new` has the memory for itself and never frees it. 2. No reference to it exists, on
//    any CPU.
unsafe impl Send for Arena {}
// SAFETY: 1. No reference to the memory exists: `read` and `write` copy single bytes. 2. Each
//    access is volatile and of one byte, so that cores and devices at once only mix values.
unsafe impl Sync for Arena {}

impl Arena {
    /// `pages` pages of zeros from a multiple of [`ALIGNMENT`], never freed; `None` if there
    /// are fewer.
    pub fn new(pages: usize) -> Option<Self> {
        let found = heap::pages(pages + ALIGNMENT / PAGE - 1)?;
        let skipped = found.addr().get().next_multiple_of(ALIGNMENT) - found.addr().get();
        Some(Self {
            // SAFETY: 1. The heap's pages begin at multiples of PAGE, so that at most ALIGNMENT -
            //    PAGE bytes are skipped. 2. The allocation is that much longer than the arena: the
            //    arena ends with it.
            start: unsafe { found.add(skipped) },
            bytes: pages * PAGE,
        })
    }

    /// Where devices find it.
    pub fn address(&self) -> u64 {
        self.start.addr().get() as u64
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes `value` at `offset`, as far as it lies in the arena.
    pub fn write(&self, offset: usize, value: &[u8]) {
        for (at, byte) in (offset..self.bytes).zip(value) {
            // SAFETY: 1. `at` is below `bytes` (the range's end), which the allocation has.
            let place = unsafe { self.start.add(at) };
            // SAFETY: 1. A byte of the arena (the line above), which is mapped and writable. 2. No
            //    reference to it exists (`Arena`).
            unsafe { place.write_volatile(*byte) };
        }
    }

    /// Reads the byte at `offset`; 0 beyond the arena.
    pub fn read(&self, offset: usize) -> u8 {
        if offset >= self.bytes {
            return 0;
        }
        // SAFETY: 1. `offset` is below `bytes` (checked above), which the allocation has.
        let place = unsafe { self.start.add(offset) };
        // SAFETY: 1. A byte of the arena (the line above), which is mapped and initialised by
        //    `heap::pages`. 2. No reference to it exists (`Arena`).
        unsafe { place.read_volatile() }
    }
}
