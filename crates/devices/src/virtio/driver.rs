//! The other side, for tests and fuzzing: a machine with one device, and a
//! driver that reaches it as a guest does, through configuration space, BAR
//! and rings in guest memory.

use std::sync::{Arc, Mutex, PoisonError};

use tare_abi::{layout, ports};
use vm_memory::{Bytes, GuestAddress};

use super::negotiation::{ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK};
use super::{VirtioDevice, VirtioPci};
use crate::pci::{CAPABILITY_MSIX, CAPABILITY_VENDOR, MemoryWindow, PciBus};
use crate::{GuestRam, Interrupts, Kick, MsiMessage, MsixRoutes, Wiring};

/// Guest memory of the machine.
pub(crate) const MEMORY_LEN: usize = 1 << 20;
/// Rings of queue n are in the n-th of these pages; buffers come behind.
const RINGS: u64 = 0x1_0000;
const RINGS_LEN: u64 = 0x8000;
/// First address that no ring uses.
pub(crate) const BUFFERS: u64 = 0x8_0000;
/// Bit of a descriptor: another follows.
pub(crate) const NEXT: u16 = 1;
/// Bit of a descriptor: the device writes.
pub(crate) const WRITE: u16 = 2;
/// Bit of a descriptor: it is a table.
pub(crate) const INDIRECT: u16 = 4;

/// What the device asked of the monitor.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) signals: Mutex<Vec<u16>>,
    pub(crate) routes: Mutex<Vec<(u16, Option<MsiMessage>)>>,
    pub(crate) kicks: Mutex<Vec<u16>>,
}

impl Interrupts for Recorder {
    fn signal(&self, vector: u16) {
        push(&self.signals, vector);
    }
}

impl MsixRoutes for Recorder {
    fn set(&self, vector: u16, message: Option<MsiMessage>) {
        push(&self.routes, (vector, message));
    }
}

impl Kick for Recorder {
    fn kick(&self, queue: u16) {
        push(&self.kicks, queue);
    }
}

fn push<T>(list: &Mutex<Vec<T>>, item: T) {
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    // A fuzzer's guest may kick for ever.
    if list.len() < 10_000 {
        list.push(item);
    }
}

/// Takes what was recorded so far.
pub(crate) fn take<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A machine with one virtio device at 00:01.0.
pub(crate) struct Machine<D> {
    pub(crate) memory: GuestRam,
    pub(crate) bus: PciBus,
    pub(crate) device: Arc<Mutex<VirtioPci<D>>>,
    pub(crate) recorder: Arc<Recorder>,
}

impl<D: VirtioDevice + 'static> Machine<D> {
    #[allow(clippy::unwrap_used)]
    pub(crate) fn new(device: D) -> Self {
        let memory = GuestRam::from_ranges(&[(GuestAddress(0), MEMORY_LEN)]).unwrap();
        let recorder = Arc::new(Recorder::default());
        let wiring = Wiring {
            interrupts: Arc::clone(&recorder) as Arc<dyn Interrupts>,
            routes: Arc::clone(&recorder) as Arc<dyn MsixRoutes>,
            kick: Arc::clone(&recorder) as Arc<dyn Kick>,
        };
        let device = VirtioPci::new(device, memory.clone(), wiring);
        let device = Arc::new(Mutex::new(device));
        let mut bus = PciBus::new(MemoryWindow {
            start: layout::PCI_MMIO_START,
            size: layout::PCI_MMIO_SIZE,
        });
        bus.add(Arc::clone(&device)).unwrap();
        Self {
            memory,
            bus,
            device,
            recorder,
        }
    }

    /// Runs `action` on the device, as the I/O thread.
    pub(crate) fn io<T>(&self, action: impl FnOnce(&mut VirtioPci<D>) -> T) -> T {
        action(&mut self.device.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A counter of transport or device.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let counters = self.io(|device| device.counters());
        let value = counters.snapshot().get(name).copied();
        value.unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Does the I/O thread's part for every kick so far.
    pub(crate) fn serve_kicks(&self) {
        for queue in take(&self.recorder.kicks) {
            let _ = self.io(|device| device.notified(queue));
        }
    }
}

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
    pub(crate) machine: &'m Machine<D>,
    pub(crate) places: Places,
}

impl<'m, D: VirtioDevice + 'static> Driver<'m, D> {
    /// Finds the device's structures.
    pub(crate) fn new(machine: &'m Machine<D>) -> Self {
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

/// The driver's view of one queue. Buffers are the test's own.
pub(crate) struct Ring<'m> {
    memory: &'m GuestRam,
    pub(crate) size: u16,
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    next_descriptor: u16,
    pub(crate) available_index: u16,
    seen: u16,
    event_idx: bool,
}

impl<'m> Ring<'m> {
    pub(crate) fn new(memory: &'m GuestRam, queue: u16, size: u16, features: u64) -> Self {
        let base = RINGS + u64::from(queue) * RINGS_LEN;
        let ring = Self {
            memory,
            size,
            descriptors: base,
            available: base + 0x4000,
            used: base + 0x6000,
            next_descriptor: 0,
            available_index: 0,
            seen: 0,
            event_idx: features & 1 << 29 != 0,
        };
        let zeros = [0; RINGS_LEN as usize];
        ring.put(base, &zeros);
        ring
    }

    /// Offers a chain of (address, length, flags); returns its head.
    pub(crate) fn offer(&mut self, buffers: &[(u64, u32, u16)]) -> u16 {
        let head = self.next_descriptor;
        for (n, (address, len, flags)) in buffers.iter().enumerate() {
            let at = self.next_descriptor;
            self.next_descriptor = (at + 1) % self.size;
            let more = if n + 1 < buffers.len() { NEXT } else { 0 };
            self.set_descriptor(at, *address, *len, flags | more, self.next_descriptor);
        }
        self.offer_head(head);
        head
    }

    /// Makes a head available, whatever it is.
    pub(crate) fn offer_head(&mut self, head: u16) {
        let slot = u64::from(self.available_index % self.size);
        self.put(self.available + 4 + slot * 2, &head.to_le_bytes());
        self.set_available_index(self.available_index.wrapping_add(1));
    }

    pub(crate) fn set_available_index(&mut self, index: u16) {
        self.available_index = index;
        self.put(self.available + 2, &index.to_le_bytes());
    }

    pub(crate) fn set_descriptor(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        write_descriptor(
            self.memory,
            self.descriptors + u64::from(index) * 16,
            (address, len, flags, next),
        );
    }

    /// The next used entry: head and bytes written.
    pub(crate) fn take_used(&mut self) -> Option<(u32, u32)> {
        if self.used_index() == self.seen {
            return None;
        }
        let entry = self.used + 4 + u64::from(self.seen % self.size) * 8;
        self.seen = self.seen.wrapping_add(1);
        Some((self.get32(entry), self.get32(entry + 4)))
    }

    pub(crate) fn used_index(&self) -> u16 {
        self.get16(self.used + 2)
    }

    /// Asks for an interrupt when used entry `index` is written.
    pub(crate) fn set_used_event(&self, index: u16) {
        let at = self.available + 4 + u64::from(self.size) * 2;
        self.put(at, &index.to_le_bytes());
    }

    pub(crate) fn set_available_flags(&self, flags: u16) {
        self.put(self.available, &flags.to_le_bytes());
    }

    /// Whether the device wants a notification for what was made available
    /// since index `before`.
    pub(crate) fn notification_wanted(&self, before: u16) -> bool {
        if !self.event_idx {
            return self.get16(self.used) & 1 == 0;
        }
        let event = self.get16(self.used + 4 + u64::from(self.size) * 8);
        let new = self.available_index;
        new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(before)
    }

    fn put(&self, address: u64, bytes: &[u8]) {
        put(self.memory, address, bytes);
    }

    fn get16(&self, address: u64) -> u16 {
        let bytes = get(self.memory, address, 2);
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    fn get32(&self, address: u64) -> u32 {
        u32::from(self.get16(address)) | u32::from(self.get16(address + 2)) << 16
    }
}

/// Writes a descriptor (address, length, flags, next) anywhere.
pub(crate) fn write_descriptor(memory: &GuestRam, at: u64, descriptor: (u64, u32, u16, u16)) {
    let (address, len, flags, next) = descriptor;
    let mut bytes = address.to_le_bytes().to_vec();
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(&next.to_le_bytes());
    put(memory, at, &bytes);
}

/// Writes guest memory.
#[allow(clippy::unwrap_used)]
pub(crate) fn put(memory: &GuestRam, address: u64, bytes: &[u8]) {
    memory.write_slice(bytes, GuestAddress(address)).unwrap();
}

/// Reads guest memory.
#[allow(clippy::unwrap_used)]
pub(crate) fn get(memory: &GuestRam, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory
        .read_slice(&mut bytes, GuestAddress(address))
        .unwrap();
    bytes
}
