//! A device of plain memory, for tests of drivers on the host.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::ptr::NonNull;

use virtio_drivers::transport::mmio::MmioTransport;

use super::interrupts::Interrupts;
use super::transport::{Notifier, Transport};

/// Bytes of the registers and of a configuration space (virtio 1.2, 4.2.2).
const BYTES: usize = 0x200;

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
        ] {
            words[offset / 4] = value;
        }
        Self(words)
    }

    /// Keeps them as long as the tests run, with a sight of them for later.
    pub fn leak(self) -> (&'static mut Self, Sight) {
        let place = NonNull::from(Box::leak(Box::new(self)));
        // SAFETY: never freed; a sight reads words only.
        (unsafe { &mut *place.as_ptr() }, Sight(place))
    }
}

/// What a device sees of the queue that was set up last.
#[derive(Clone, Copy, Debug)]
pub struct Sight(NonNull<Registers>);

impl Sight {
    /// Requests that were published since the queue was set up, modulo 2^16.
    pub fn published(self) -> u16 {
        /// Where the driver's area of a queue is, in two words.
        const DRIVER_AREA: usize = 0x90;
        let word = |offset: usize| {
            let word = self.0.cast::<u32>().as_ptr().wrapping_add(offset / 4);
            // SAFETY: one of the registers, which stay.
            u64::from(unsafe { word.read_volatile() })
        };
        let area = (word(DRIVER_AREA) | word(DRIVER_AREA + 4) << 32) as usize;
        // Behind the flags.
        let index = core::ptr::with_exposed_provenance::<u16>(area).wrapping_add(1);
        // SAFETY: a driver that has set the queue up keeps its memory.
        unsafe { index.read_volatile() }
    }
}

impl Transport {
    /// A transport to such a device; `None` if the registers do not belong to a device.
    pub fn in_memory(registers: &'static mut Registers) -> Option<Self> {
        let header = NonNull::from(registers).cast();
        // SAFETY: the registers are aligned, as long as they say, and nothing else refers to them from now on.
        let inner = unsafe { MmioTransport::new(header, BYTES) }.ok()?;
        Some(Self::new(inner.into(), Notifier::Inner, Interrupts::None))
    }
}
