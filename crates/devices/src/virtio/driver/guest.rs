//! The driver: finds the device's structures and uses them.

use tare_abi::ports;

use super::{MockMachine, Ring};
use crate::pci::{CAPABILITY_MSIX, CAPABILITY_VENDOR};
use crate::virtio::VirtioDevice;
use crate::virtio::negotiation::{ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK};

/// Where the device's structures are, found through its capabilities.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    pub(crate) common: u64,
    pub(crate) notify: u64,
    pub(crate) notify_multiplier: u64,
    pub(crate) isr: u64,
    pub(crate) device: u64,
    pub(crate) table: u64,
    pub(crate) pba: u64,
    /// In configuration space.
    pub(crate) msix: u16,
    pub(crate) window: u16,
}

/// A guest's driver for the device at 00:01.0.
pub(crate) struct Driver<'m, D> {
    pub(crate) machine: &'m MockMachine<D>,
    pub(crate) places: Places,
}

impl<'m, D: VirtioDevice + 'static> Driver<'m, D> {
    /// Finds the device's structures.
    pub(crate) fn new(machine: &'m MockMachine<D>) -> Self {
        let mut driver = Self {
            machine,
            places: Places::default(),
        };
        driver.places = driver.walk_capabilities();
        driver
    }

    /// The whole initialisation (virtio 1.2, 3.1.1), queues of `size` entries,
    /// one MSI-X vector each and the last for configuration changes; returns the
    /// queues' rings.
    pub(crate) fn start(&self, features: u64, size: u16) -> Vec<Ring<'m>> {
        self.enable_msix();
        self.negotiate(features);
        self.write_common(0x10, 2, u64::from(self.vector_count() - 1));
        let rings: Vec<_> = (0..self.queue_count())
            .map(|queue| self.add_queue(queue, size, features))
            .collect();
        self.add_status(DRIVER_OK);
        rings
    }

    pub(crate) fn negotiate(&self, features: u64) {
        self.write_common(0x14, 1, 0);
        self.add_status(ACKNOWLEDGE);
        self.add_status(DRIVER);
        for half in 0..2 {
            self.write_common(0x08, 4, half);
            self.write_common(0x0c, 4, features >> (32 * half) & 0xffff_ffff);
        }
        self.add_status(FEATURES_OK);
    }

    pub(crate) fn add_queue(&self, queue: u16, size: u16, features: u64) -> Ring<'m> {
        let ring = Ring::new(&self.machine.memory, queue, size, features);
        self.write_common(0x16, 2, queue.into());
        self.write_common(0x18, 2, size.into());
        self.write_common(0x1a, 2, queue.into());
        for (at, address) in [
            (0x20, ring.descriptors),
            (0x28, ring.available),
            (0x30, ring.used),
        ] {
            self.write_common(at, 4, address & 0xffff_ffff);
            self.write_common(at + 4, 4, address >> 32);
        }
        self.write_common(0x1c, 2, 1);
        ring
    }

    /// Routes every vector.
    pub(crate) fn enable_msix(&self) {
        let vectors = self.vector_count();
        for vector in 0..vectors {
            self.set_vector(vector, 0xfee0_0000, 0x40 + u32::from(vector));
            self.mask_vector(vector, 0);
        }
        self.write_config(self.places.msix + 2, &0x8000u16.to_le_bytes());
    }

    pub(crate) fn set_vector(&self, vector: u16, address: u64, data: u32) {
        let entry = self.places.table + u64::from(vector) * 16;
        self.write_memory(entry, 4, address & 0xffff_ffff);
        self.write_memory(entry + 4, 4, address >> 32);
        self.write_memory(entry + 8, 4, data.into());
    }

    pub(crate) fn mask_vector(&self, vector: u16, mask: u64) {
        self.write_memory(self.places.table + u64::from(vector) * 16 + 12, 4, mask);
    }

    pub(crate) fn status(&self) -> u8 {
        self.read_common(0x14, 1) as u8
    }

    pub(crate) fn add_status(&self, bits: u8) {
        let status = self.status();
        self.write_common(0x14, 1, u64::from(status | bits));
    }

    pub(crate) fn reset(&self) {
        self.write_common(0x14, 1, 0);
    }

    pub(crate) fn offered(&self) -> u64 {
        (0..2).fold(0, |features, half| {
            self.write_common(0x00, 4, half);
            features | self.read_common(0x04, 4) << (32 * half)
        })
    }

    pub(crate) fn queue_count(&self) -> u16 {
        self.read_common(0x12, 2) as u16
    }

    pub(crate) fn vector_count(&self) -> u16 {
        (self.read_config16(self.places.msix + 2) & 0x7ff) + 1
    }

    /// Notifies by an ordinary memory write.
    pub(crate) fn notify(&self, queue: u16) {
        let offset = u64::from(queue) * self.places.notify_multiplier;
        self.write_memory(self.places.notify + offset, 2, queue.into());
    }

    pub(crate) fn read_common(&self, offset: u64, len: usize) -> u64 {
        self.read_memory(self.places.common + offset, len)
    }

    pub(crate) fn write_common(&self, offset: u64, len: usize, value: u64) {
        self.write_memory(self.places.common + offset, len, value);
    }

    pub(crate) fn read_memory(&self, address: u64, len: usize) -> u64 {
        let mut bytes = [0; 8];
        self.machine.bus.memory_read(address, &mut bytes[..len]);
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn write_memory(&self, address: u64, len: usize, value: u64) {
        let bytes = value.to_le_bytes();
        self.machine.bus.memory_write(address, &bytes[..len]);
    }

    /// Reads by configuration mechanism #1.
    pub(crate) fn read_config(&self, offset: u16, data: &mut [u8]) {
        self.select(offset);
        let port = ports::PCI_DATA + offset % 4;
        self.machine.bus.port_read(port, data);
    }

    /// Writes by configuration mechanism #1.
    pub(crate) fn write_config(&self, offset: u16, data: &[u8]) {
        self.select(offset);
        let port = ports::PCI_DATA + offset % 4;
        self.machine.bus.port_write(port, data);
    }

    pub(crate) fn read_config8(&self, offset: u16) -> u8 {
        let mut data = [0];
        self.read_config(offset, &mut data);
        data[0]
    }

    pub(crate) fn read_config16(&self, offset: u16) -> u16 {
        let mut data = [0; 2];
        self.read_config(offset, &mut data);
        u16::from_le_bytes(data)
    }

    pub(crate) fn read_config32(&self, offset: u16) -> u32 {
        let mut data = [0; 4];
        self.read_config(offset, &mut data);
        u32::from_le_bytes(data)
    }

    fn select(&self, offset: u16) {
        let address = 0x8000_0000 | 1 << 11 | u32::from(offset & 0xfc);
        let bus = &self.machine.bus;
        bus.port_write(ports::PCI_ADDRESS, &address.to_le_bytes());
    }

    fn walk_capabilities(&self) -> Places {
        let bar = u64::from(self.read_config32(0x10) & !0xf);
        let mut places = Places::default();
        let mut at = u16::from(self.read_config8(0x34));
        while at != 0 {
            let offset = |from: u16| bar + u64::from(self.read_config32(at + from));
            match (self.read_config8(at), self.read_config8(at + 3)) {
                (CAPABILITY_MSIX, _) => {
                    places.msix = at;
                    places.table = offset(4);
                    places.pba = offset(8);
                }
                (CAPABILITY_VENDOR, 1) => places.common = offset(8),
                (CAPABILITY_VENDOR, 2) => {
                    places.notify = offset(8);
                    places.notify_multiplier = self.read_config32(at + 16).into();
                }
                (CAPABILITY_VENDOR, 3) => places.isr = offset(8),
                (CAPABILITY_VENDOR, 4) => places.device = offset(8),
                (CAPABILITY_VENDOR, 5) => places.window = at,
                _ => {}
            }
            at = self.read_config8(at + 1).into();
        }
        places
    }
}
