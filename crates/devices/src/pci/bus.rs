//! The bus: finds the function for an access.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tare_abi::ports;

use super::host_bridge::HostBridge;
use super::{BusCounters, MemoryWindow, PciAddress};

const MAX_DEVICES: usize = 32;
const ENABLE: u32 = 1 << 31;
const DATA_END: u16 = ports::PCI_DATA + 4;
const ECAM_FUNCTION_LEN: u64 = 4096;

/// One function on the bus. All calls come from vCPU threads, under the
/// function's mutex, except the first three, which come before the guest runs.
pub trait PciFunction: Send {
    /// Size of BAR 0, a power of two of at least 16; `None` without BAR.
    fn bar_size(&self) -> Option<u32> {
        None
    }

    /// Sets the address of BAR 0, once.
    fn assign_bar(&mut self, address: u32) {
        let _ = address;
    }

    /// Whether the function answers in its BAR (command register).
    fn memory_enabled(&self) -> bool {
        false
    }

    /// Reads configuration space at `offset` below 4,096.
    fn config_read(&mut self, offset: u16, data: &mut [u8]);

    /// Writes configuration space at `offset` below 4,096.
    fn config_write(&mut self, offset: u16, data: &[u8]);

    /// Reads from BAR 0; the access lies within it.
    fn bar_read(&mut self, offset: u64, data: &mut [u8]) {
        let _ = offset;
        data.fill(0xff);
    }

    /// Writes to BAR 0; the access lies within it.
    fn bar_write(&mut self, offset: u64, data: &[u8]) {
        let _ = (offset, data);
    }
}

/// Why a function cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// All 32 device numbers are taken.
    #[error("no free device number on the bus")]
    BusFull,
    /// The memory window is used up.
    #[error("no room for a BAR of {size} bytes in the memory window")]
    WindowFull {
        /// Bytes wanted.
        size: u32,
    },
}

struct Slot {
    function: Arc<Mutex<dyn PciFunction>>,
    bar: Option<(u64, u64)>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, dyn PciFunction + 'static> {
        self.function.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bus. Functions are added before the vCPUs start; then it is shared by
/// all of them, without its own lock.
pub struct PciBus {
    slots: Vec<Slot>,
    window: MemoryWindow,
    address: AtomicU32,
    counters: Arc<BusCounters>,
}

impl PciBus {
    /// A bus with its host bridge at 00:00.0, assigning BARs from `window`.
    pub fn new(window: MemoryWindow) -> Self {
        let bridge = Slot {
            function: Arc::new(Mutex::new(HostBridge::new())),
            bar: None,
        };
        Self {
            slots: vec![bridge],
            window,
            address: AtomicU32::new(0),
            counters: Arc::default(),
        }
    }

    /// Puts a function at the next device number and assigns its BAR.
    pub fn add<F: PciFunction + 'static>(
        &mut self,
        function: Arc<Mutex<F>>,
    ) -> Result<PciAddress, AddError> {
        if self.slots.len() == MAX_DEVICES {
            return Err(AddError::BusFull);
        }
        let bar = self.assign(&mut *function.lock().unwrap_or_else(PoisonError::into_inner))?;
        let device = self.slots.len() as u8;
        self.slots.push(Slot { function, bar });
        Ok(PciAddress { device })
    }

    /// Whether a port access belongs to the bus: 32 bits at 0xcf8, anything within 0xcfc to 0xcff.
    /// (A byte at 0xcf9 is the reset register.)
    pub fn claims_port(port: u16, len: usize) -> bool {
        match port {
            ports::PCI_ADDRESS => len == 4,
            ports::PCI_DATA..DATA_END => usize::from(DATA_END - port) >= len,
            _ => false,
        }
    }

    /// A port read.
    pub fn port_read(&self, port: u16, data: &mut [u8]) {
        if !Self::claims_port(port, data.len()) {
            return self.unclaimed(data);
        }
        let address = self.address.load(Ordering::Relaxed);
        if port == ports::PCI_ADDRESS {
            return data.copy_from_slice(&address.to_le_bytes());
        }
        match Target::from_ports(address, port) {
            Some(target) => self.config_read(target, data),
            None => self.unclaimed(data),
        }
    }

    /// A port write.
    pub fn port_write(&self, port: u16, data: &[u8]) {
        if !Self::claims_port(port, data.len()) {
            return self.counters.unclaimed.increment();
        }
        if let (ports::PCI_ADDRESS, Ok(bytes)) = (port, data.try_into()) {
            let address = u32::from_le_bytes(bytes);
            return self.address.store(address, Ordering::Relaxed);
        }
        match Target::from_ports(self.address.load(Ordering::Relaxed), port) {
            Some(target) => self.config_write(target, data),
            None => self.counters.unclaimed.increment(),
        }
    }

    /// A read at `offset` into the ECAM window.
    pub fn ecam_read(&self, offset: u64, data: &mut [u8]) {
        match Target::from_ecam(offset, data.len()) {
            Some(target) => self.config_read(target, data),
            None => self.unclaimed(data),
        }
    }

    /// A write at `offset` into the ECAM window.
    pub fn ecam_write(&self, offset: u64, data: &[u8]) {
        match Target::from_ecam(offset, data.len()) {
            Some(target) => self.config_write(target, data),
            None => self.counters.unclaimed.increment(),
        }
    }

    /// A read at guest-physical `address` in the BAR window.
    pub fn memory_read(&self, address: u64, data: &mut [u8]) {
        self.counters.memory_accesses.increment();
        if let Some((slot, offset)) = self.slot_at(address, data.len()) {
            let mut function = slot.lock();
            if function.memory_enabled() {
                return function.bar_read(offset, data);
            }
        }
        self.unclaimed(data);
    }

    /// A write at guest-physical `address` in the BAR window.
    pub fn memory_write(&self, address: u64, data: &[u8]) {
        self.counters.memory_accesses.increment();
        if let Some((slot, offset)) = self.slot_at(address, data.len()) {
            let mut function = slot.lock();
            if function.memory_enabled() {
                return function.bar_write(offset, data);
            }
        }
        self.counters.unclaimed.increment();
    }

    /// Counters, shared.
    pub fn counters(&self) -> Arc<BusCounters> {
        Arc::clone(&self.counters)
    }

    fn assign(&mut self, function: &mut dyn PciFunction) -> Result<Option<(u64, u64)>, AddError> {
        let Some(size) = function.bar_size() else {
            return Ok(None);
        };
        let full = || AddError::WindowFull { size };
        let base = self.window.allocate(size.into()).ok_or_else(full)?;
        function.assign_bar(u32::try_from(base).map_err(|_| full())?);
        Ok(Some((base, size.into())))
    }

    fn config_read(&self, target: Target, data: &mut [u8]) {
        self.counters.config_accesses.increment();
        match self.slots.get(target.device) {
            Some(slot) => slot.lock().config_read(target.register, data),
            None => self.unclaimed(data),
        }
    }

    fn config_write(&self, target: Target, data: &[u8]) {
        self.counters.config_accesses.increment();
        match self.slots.get(target.device) {
            Some(slot) => slot.lock().config_write(target.register, data),
            None => self.counters.unclaimed.increment(),
        }
    }

    fn slot_at(&self, address: u64, len: usize) -> Option<(&Slot, u64)> {
        self.slots.iter().find_map(|slot| {
            let (base, size) = slot.bar?;
            let offset = address.checked_sub(base)?;
            let left = size.checked_sub(offset)?;
            (left >= len as u64).then_some((slot, offset))
        })
    }

    fn unclaimed(&self, data: &mut [u8]) {
        self.counters.unclaimed.increment();
        data.fill(0xff);
    }
}

/// A location in configuration space. Only function 0 of a device exists; other functions and buses
/// map to an unused device number.
#[derive(Clone, Copy)]
struct Target {
    device: usize,
    register: u16,
}

impl Target {
    fn from_ports(address: u32, port: u16) -> Option<Self> {
        let place = (address >> 8 & 0xffff) as usize;
        let register = (address & 0xfc) as u16 + (port & 3);
        (address & ENABLE != 0).then(|| Self::at(place, register))
    }

    fn from_ecam(offset: u64, len: usize) -> Option<Self> {
        let register = offset % ECAM_FUNCTION_LEN;
        let place = usize::try_from(offset / ECAM_FUNCTION_LEN).ok()?;
        let inside = register + len as u64 <= ECAM_FUNCTION_LEN;
        inside.then(|| Self::at(place, register as u16))
    }

    /// `place` is bus, device, function in 8, 5 and 3 bits.
    fn at(place: usize, register: u16) -> Self {
        let device = if place.is_multiple_of(8) {
            place / 8
        } else {
            usize::MAX
        };
        Self { device, register }
    }
}
