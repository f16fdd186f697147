//! How a PCI function reaches the vCPUs and the I/O thread: an irqfd for each
//! MSI-X vector, an eventfd for each queue that is its ioeventfd as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tare_control::sentence::chain;
use tare_devices::{Interrupts, Kick, MsiMessage, MsixRoutes, Wiring};
use tare_hv::{IoAddress, Vm, VmError, WriteMatch};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::complaint::complain;

/// First GSI that is not an IOAPIC pin.
const FIRST_MSI_GSI: u32 = 24;

/// Why a function cannot be wired.
#[derive(Debug, thiserror::Error)]
pub enum WiringError {
    /// No eventfd.
    #[error("cannot make an eventfd")]
    EventFd(#[source] std::io::Error),
    /// KVM refused an irqfd or ioeventfd.
    #[error(transparent)]
    Kvm(#[from] VmError),
}

/// An eventfd that never blocks.
pub fn eventfd() -> Result<EventFd, WiringError> {
    EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(WiringError::EventFd)
}

/// Hands out GSIs.
#[derive(Debug)]
pub struct Gsis(AtomicU32);

impl Default for Gsis {
    fn default() -> Self {
        Self(AtomicU32::new(FIRST_MSI_GSI))
    }
}

impl Gsis {
    fn take(&self, count: u32) -> u32 {
        self.0.fetch_add(count, Ordering::Relaxed)
    }
}

/// Vectors and queues of one function.
pub(crate) struct FunctionWiring {
    vm: Arc<Vm>,
    first_gsi: u32,
    vectors: Vec<EventFd>,
    queues: Vec<Arc<EventFd>>,
    reported: AtomicBool,
}

impl FunctionWiring {
    /// Eventfds for `vectors` vectors, bound as irqfds, and for `queues` queues.
    pub(crate) fn new(
        vm: &Arc<Vm>,
        gsis: &Gsis,
        vectors: u16,
        queues: u16,
    ) -> Result<Arc<Self>, WiringError> {
        let first_gsi = gsis.take(vectors.into());
        let vectors = (0..vectors)
            .map(|vector| {
                let event = eventfd()?;
                vm.irqfd(first_gsi + u32::from(vector), &event)?;
                Ok(event)
            })
            .collect::<Result<_, WiringError>>()?;
        let queues = (0..queues)
            .map(|_| eventfd().map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            vm: Arc::clone(vm),
            first_gsi,
            vectors,
            queues,
            reported: AtomicBool::new(false),
        }))
    }

    /// The three traits as the function gets them.
    pub(crate) fn wiring(self: &Arc<Self>) -> Wiring {
        Wiring {
            interrupts: Arc::clone(self) as _,
            routes: Arc::clone(self) as _,
            kick: Arc::clone(self) as _,
        }
    }

    /// The queues' events, by queue.
    pub(crate) fn queues(&self) -> &[Arc<EventFd>] {
        &self.queues
    }

    /// Binds an ioeventfd: a guest's write to `address` notifies `queue`.
    pub(crate) fn bind(&self, queue: u16, address: u64) -> Result<(), WiringError> {
        if let Some(event) = self.queues.get(usize::from(queue)) {
            let address = IoAddress::Memory(address);
            self.vm.ioeventfd(address, WriteMatch::Any, event)?;
        }
        Ok(())
    }

    fn route(&self, vector: u16, message: Option<MsiMessage>) -> Result<(), VmError> {
        let gsi = self.first_gsi + u32::from(vector);
        match message {
            Some(message) => self.vm.msi_route(gsi, message),
            None => self.vm.remove_msi_route(gsi),
        }
    }
}

impl Interrupts for FunctionWiring {
    fn signal(&self, vector: u16) {
        if let Some(event) = self.vectors.get(usize::from(vector)) {
            // KVM drains an irqfd at once, so its counter is never full.
            let _ = event.write(1);
        }
    }
}

impl MsixRoutes for FunctionWiring {
    fn set(&self, vector: u16, message: Option<MsiMessage>) {
        if usize::from(vector) >= self.vectors.len() {
            return;
        }
        // Printed once: a guest must not fill the monitor's standard error.
        if let Err(error) = self.route(vector, message)
            && !self.reported.swap(true, Ordering::Relaxed)
        {
            let error = chain(&error);
            complain(format_args!("an interrupt is lost: {error}"));
        }
    }
}

impl Kick for FunctionWiring {
    fn kick(&self, queue: u16) {
        if let Some(event) = self.queues.get(usize::from(queue)) {
            let _ = event.write(1);
        }
    }
}
