//! Finds the device for a guest's access.
//!
//! Without a device, reads return ones and writes have no effect, as on hardware; the PCI bus or
//! this module counts them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tare_abi::{layout, ports};
use tare_devices::CounterSource;
use tare_devices::cmos::Cmos;
use tare_devices::pci::PciBus;
use tare_devices::power::{Power, PowerEvent};

use crate::console::Console;
use crate::huge_pages::HugePageRequests;
use crate::signals::ProgramSignals;

const COM1_PORTS: u16 = 8;
const PCI_MMIO_END: u64 = layout::PCI_MMIO_START + layout::PCI_MMIO_SIZE;
const ECAM_END: u64 = layout::PCI_ECAM_START + layout::PCI_ECAM_SIZE;

/// Everything on a machine's buses. Shared by all vCPU threads.
pub struct Bus {
    /// PCI.
    pub pci: PciBus,
    /// First serial port.
    pub console: Arc<Console>,
    /// Clock.
    pub cmos: Mutex<Cmos>,
    /// Reset, power-off, exit.
    pub power: Mutex<Power>,
    /// Requests for huge pages.
    pub(crate) huge_pages: Arc<HugePageRequests>,
    /// Signals for the guest's program, if it runs one.
    pub(crate) signals: Option<Arc<ProgramSignals>>,
    /// Accesses outside every device.
    pub stray: Arc<StrayAccesses>,
}

/// Accesses that no device answered.
#[derive(Debug, Default)]
pub struct StrayAccesses {
    ports: AtomicU64,
    memory: AtomicU64,
}

impl CounterSource for StrayAccesses {
    fn snapshot(&self) -> BTreeMap<String, u64> {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BTreeMap::from([
            ("unclaimed_ports".to_owned(), value(&self.ports)),
            ("unclaimed_memory".to_owned(), value(&self.memory)),
        ])
    }
}

impl Bus {
    /// A read of `data.len()` bytes from `port`.
    pub fn port_read(&self, port: u16, data: &mut [u8]) {
        let len = data.len();
        match port {
            _ if Power::claims_port(port, len) => lock(&self.power).read(port, data),
            _ if PciBus::claims_port(port, len) => self.pci.port_read(port, data),
            ports::CMOS_INDEX | ports::CMOS_DATA => lock(&self.cmos).read(port, data),
            _ => match (serial_offset(port), &self.signals) {
                (Some(offset), _) => self.console.read(offset, data),
                (None, Some(signals)) if port == ports::SIGNAL => signals.read(data),
                (None, _) => stray_read(&self.stray.ports, data),
            },
        }
    }

    /// A write of `data` to `port`; may end the run.
    pub fn port_write(&self, port: u16, data: &[u8]) -> Option<PowerEvent> {
        let len = data.len();
        match port {
            _ if Power::claims_port(port, len) => return lock(&self.power).write(port, data),
            _ if PciBus::claims_port(port, len) => self.pci.port_write(port, data),
            ports::CMOS_INDEX | ports::CMOS_DATA => lock(&self.cmos).write(port, data),
            ports::HUGE_PAGE => self.huge_pages.write(data),
            _ => match serial_offset(port) {
                Some(offset) => self.console.write(offset, data),
                None => count(&self.stray.ports),
            },
        }
        None
    }

    /// A read of guest-physical memory that is not RAM.
    pub fn memory_read(&self, address: u64, data: &mut [u8]) {
        match address {
            layout::PCI_MMIO_START..PCI_MMIO_END => self.pci.memory_read(address, data),
            layout::PCI_ECAM_START..ECAM_END => {
                self.pci.ecam_read(address - layout::PCI_ECAM_START, data);
            }
            _ => stray_read(&self.stray.memory, data),
        }
    }

    /// A write to guest-physical memory that is not RAM.
    pub fn memory_write(&self, address: u64, data: &[u8]) {
        match address {
            layout::PCI_MMIO_START..PCI_MMIO_END => self.pci.memory_write(address, data),
            layout::PCI_ECAM_START..ECAM_END => {
                self.pci.ecam_write(address - layout::PCI_ECAM_START, data);
            }
            _ => count(&self.stray.memory),
        }
    }
}

fn serial_offset(port: u16) -> Option<u16> {
    port.checked_sub(ports::COM1)
        .filter(|offset| *offset < COM1_PORTS)
}

fn stray_read(counter: &AtomicU64, data: &mut [u8]) {
    count(counter);
    data.fill(0xff);
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn lock<T>(device: &Mutex<T>) -> MutexGuard<'_, T> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}
