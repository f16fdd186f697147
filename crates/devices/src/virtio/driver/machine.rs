//! The machine around a device under test.

use std::sync::{Arc, Mutex, PoisonError};

use tare_abi::layout;
use vm_memory::GuestAddress;

use crate::pci::{MemoryWindow, PciBus};
use crate::virtio::{VirtioDevice, VirtioPci};
use crate::{GuestRam, Interrupts, Kick, MsiMessage, MsixRoutes, Wiring};

/// Guest memory of the machine.
pub(crate) const MEMORY_LEN: usize = 1 << 20;

/// What the device called in the monitor.
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
    // A fuzzer's guest may kick forever.
    if list.len() < 10_000 {
        list.push(item);
    }
}

/// Takes what was recorded so far.
pub(crate) fn take<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A machine with one virtio device at 00:01.0.
pub(crate) struct MockMachine<D> {
    pub(crate) memory: GuestRam,
    pub(crate) bus: PciBus,
    pub(crate) device: Arc<Mutex<VirtioPci<D>>>,
    pub(crate) recorder: Arc<Recorder>,
}

impl<D: VirtioDevice + 'static> MockMachine<D> {
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
