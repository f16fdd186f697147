//! A device of plain memory, for tests of drivers on the host.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::ptr::NonNull;

use virtio_drivers::transport::mmio::MmioTransport;

use super::interrupts::Interrupts;
use super::transport::{Notifier, Transport};

/// Bytes of the registers and of a configuration space (virtio 1.2, 4.2.2).
const BYTES: usize = 0x200;
/// Where a driver writes the number of the queue that it notifies of.
const NOTIFY: usize = 0x50;
/// No queue has this number.
const NO_QUEUE: u32 = u32::MAX;

/// The registers of a virtio-mmio device that does nothing: a driver reads what a test has put
/// there, or what it has written itself.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct Registers(pub [u32; BYTES / 4]);

impl Registers {
    /// A device of that type whose queues have this many descriptors. `features` are both halves
    /// of what it offers.
    pub fn new(device: u32, features: u32, descriptors: u32) -> Self {
        const MAGIC: u32 = 0x7472_6976;
        const VERSION: u32 = 2;
        let mut words = [0; BYTES / 4];
        for (offset, value) in [
            (0x000, MAGIC),
            (0x004, VERSION),
            (0x008, device),
            (0x010, features),
            (0x034, descriptors),
            (NOTIFY, NO_QUEUE),
        ] {
            words[offset / 4] = value;
        }
        Self(words)
    }

    /// Keeps them as long as the tests run: for the one transport that uses them, and for the
    /// notifications that come through it.
    pub fn leak(self) -> (DeviceMemory, Doorbell) {
        let memory = NonNull::from(Box::leak(Box::new(self)));
        (DeviceMemory(memory), Doorbell(memory))
    }
}

/// Registers that stay, for one transport: no reference to them exists.
#[derive(Debug)]
pub struct DeviceMemory(NonNull<Registers>);

/// Where the driver notifies such a device.
#[derive(Clone, Copy, Debug)]
pub struct Doorbell(NonNull<Registers>);

impl Doorbell {
    /// The queue of the last notification, if there was one since this was last asked.
    pub fn take(self) -> Option<u32> {
        let word = self.0.cast::<u32>().as_ptr().wrapping_add(NOTIFY / 4);
        // SAFETY: 1. One of the registers: the offset is below BYTES. 2. They are never freed
        //    (`leak`), and no reference to them exists. 3. Every value is valid.
        let queue = unsafe { word.read_volatile() };
        // SAFETY: 1. to 3. As for the read.
        unsafe { word.write_volatile(NO_QUEUE) };
        (queue != NO_QUEUE).then_some(queue)
    }
}

impl Transport {
    /// A transport to such a device; `None` if the registers do not belong to a device.
    pub fn in_memory(device: DeviceMemory) -> Option<Self> {
        let header = device.0.cast();
        // SAFETY: 1. The registers are aligned to 8, BYTES long and never freed (`leak`). 2. This
        //    transport alone has them: a `DeviceMemory` cannot be copied. 3. A `Doorbell` uses
        //    one word, by volatile accesses, as a device would.
        let inner = unsafe { MmioTransport::new(header, BYTES) }.ok()?;
        Some(Self::new(inner.into(), Notifier::Inner, Interrupts::None))
    }
}
