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

    /// Keeps them as long as the tests run: for the one transport that uses them, and a view of
    /// them for later.
    pub fn leak(self) -> (DeviceMemory, Sight) {
        let memory = NonNull::from(Box::leak(Box::new(self)));
        (DeviceMemory(memory), Sight(memory))
    }
}

/// Registers that stay, for one transport: no reference to them exists.
#[derive(Debug)]
pub struct DeviceMemory(NonNull<Registers>);

/// What a device sees of the queue that was set up last.
#[derive(Clone, Copy, Debug)]
pub struct Sight(NonNull<Registers>);

impl Sight {
    /// Requests that were published since the queue was set up, modulo 2^16. For as long as its
    /// driver lives.
    ///
    /// # Panics
    /// If no queue was set up.
    pub fn published(self) -> u16 {
        /// Where the driver's area of a queue is, in two words.
        const DRIVER_AREA: usize = 0x90;
        let word = |offset: usize| {
            let word = self.0.cast::<u32>().as_ptr().wrapping_add(offset / 4);
            // SAFETY: 1. One of the registers: the offset is below BYTES. 2. They are never freed
            //    (`leak`), and no reference to them exists. 3. Every value is valid.
            u64::from(unsafe { word.read_volatile() })
        };
        let area = (word(DRIVER_AREA) | word(DRIVER_AREA + 4) << 32) as usize;
        assert_ne!(area, 0, "a queue is set up");
        // Behind the flags.
        let index = core::ptr::with_exposed_provenance::<u16>(area).wrapping_add(1);
        // SAFETY: 1. A driver has set the queue up (asserted), with the address of its ring. 2. It
        //    keeps the ring while it lives, as the test keeps it. 3. Both sides use the index as an
        //    atomic or by volatile accesses.
        unsafe { index.read_volatile() }
    }
}

impl Transport {
    /// A transport to such a device; `None` if the registers do not belong to a device.
    pub fn in_memory(device: DeviceMemory) -> Option<Self> {
        let header = device.0.cast();
        // SAFETY: 1. The registers are aligned to 8, BYTES long and never freed (`leak`). 2. This
        //    transport alone has them: a `DeviceMemory` cannot be copied. 3. A `Sight` only reads
        //    single words, as a device would.
        let inner = unsafe { MmioTransport::new(header, BYTES) }.ok()?;
        Some(Self::new(inner.into(), Notifier::Inner, Interrupts::None))
    }
}
