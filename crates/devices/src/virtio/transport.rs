//! A virtio device behind the PCI transport: its states, the I/O thread's way
//! in, interrupts. Registers are in `registers`, the way from the bus in `function`.

use std::sync::Arc;

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use super::counters::{TransportCounters, VirtioCounters};
use super::layout::{self, BAR_LEN, Capabilities, NOTIFY, NOTIFY_MULTIPLIER};
use super::negotiation::{DRIVER_OK, Negotiation};
use super::queue::Decision;
use super::{
    DEVICE_BASE, Interest, Look, NO_VECTOR, Progress, QueueError, QueueSettings, Queues, VENDOR,
    VirtioDevice, Virtqueue,
};
use crate::pci::{Bar, ConfigSpace, Identity, Msix, MsixDelivery};
use crate::{CounterSource, GuestRam, Kick, Wiring};

const TRANSPORT_FEATURES: u64 =
    1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_RING_F_INDIRECT_DESC;
const ISR_QUEUE: u8 = 1;
const ISR_CONFIG: u8 = 2;

/// Whether queues live.
pub(super) enum State {
    /// Before DRIVER_OK, after a failure, or with DEVICE_NEEDS_RESET.
    Inactive,
    /// Between DRIVER_OK and reset; queues that the driver did not enable are
    /// missing.
    Active(Vec<Option<Virtqueue>>),
}

/// A virtio device on the PCI bus.
///
/// vCPU threads reach it as a
/// [`PciFunction`](crate::pci::PciFunction); the I/O thread calls
/// [`notified`](Self::notified), [`backend_ready`](Self::backend_ready) and
/// [`interest`](Self::interest).
pub struct VirtioPci<D> {
    pub(super) device: D,
    pub(super) memory: GuestRam,
    pub(super) kick: Arc<dyn Kick>,
    pub(super) counters: Arc<TransportCounters>,
    pub(super) config: ConfigSpace,
    pub(super) capabilities: Capabilities,
    pub(super) msix: Msix,
    pub(super) negotiation: Negotiation,
    pub(super) settings: Vec<QueueSettings>,
    pub(super) state: State,
    pub(super) queue_select: u16,
    pub(super) config_vector: u16,
    pub(super) generation: u8,
    pub(super) isr: u8,
}

impl<D: VirtioDevice> VirtioPci<D> {
    /// Puts `device` behind the PCI transport.
    pub fn new(device: D, memory: GuestRam, wiring: Wiring) -> Self {
        let settings: Vec<_> = device
            .queue_sizes()
            .iter()
            .map(|size| QueueSettings::new(*size))
            .collect();
        let queues = settings.len() as u16;
        let mut config = ConfigSpace::new(identity(&device));
        config.set_bar(Bar::new(BAR_LEN));
        let capabilities = layout::add_capabilities(&mut config, queues);
        Self {
            negotiation: Negotiation::new(device.features() | TRANSPORT_FEATURES),
            device,
            memory,
            kick: wiring.kick,
            counters: Arc::default(),
            config,
            capabilities,
            msix: Msix::new(queues + 1, wiring.interrupts, wiring.routes),
            settings,
            state: State::Inactive,
            queue_select: 0,
            config_vector: NO_VECTOR,
            generation: 0,
            isr: 0,
        }
    }

    /// Queues; they count from 0.
    pub(crate) fn queue_count(&self) -> u16 {
        self.settings.len() as u16
    }

    /// MSI-X vectors: one for each queue and one for configuration changes.
    /// Vectors from 0 to one less reach [`crate::Interrupts`] and
    /// [`crate::MsixRoutes`].
    pub(crate) fn vector_count(&self) -> u16 {
        self.msix.vector_count()
    }

    /// Guest-physical address at which a write of any width notifies `queue`;
    /// each queue has its own. `None` before the function is on a bus and for a
    /// queue that does not exist. Never changes.
    pub fn notify_address(&self, queue: u16) -> Option<u64> {
        let base = self.config.bar()?.address();
        let known = base != 0 && queue < self.queue_count();
        let offset = NOTIFY + u32::from(queue) * NOTIFY_MULTIPLIER;
        known.then(|| u64::from(base) + u64::from(offset))
    }

    /// I/O thread: the eventfd of `queue` fired, by ioeventfd or [`Kick`], or
    /// this call returned [`Progress::More`] before.
    pub fn notified(&mut self, queue: u16) -> Progress {
        let progress = self.work(|device, queues| match queues.get(queue.into()) {
            Some(_) => device.process(queue, queues),
            None => Ok(Progress::Done),
        });
        if !self.went_on(queue, progress) {
            self.counters.notifications.increment();
        }
        progress
    }

    /// I/O thread: it has no work, and looks for some ([`VirtioDevice::look`]). After [`Look::Again`] it
    /// does not sleep without [`Look::Last`].
    pub fn look(&mut self, look: Look) -> Progress {
        self.work(|device, queues| device.look(look, queues))
    }

    /// I/O thread: the backend's descriptor is ready in a direction that
    /// [`interest`](Self::interest) named, or this call returned
    /// [`Progress::More`] before.
    pub fn backend_ready(&mut self) -> Progress {
        self.work(|device, queues| device.backend_ready(queues))
    }

    /// I/O thread: what to wait for on the backend's descriptor. Ask again after
    /// each call of the two above.
    pub fn interest(&self) -> Interest {
        match self.state {
            State::Active(_) => self.device.interest(),
            State::Inactive => Interest::default(),
        }
    }

    /// I/O thread: when to call [`deadline_passed`](Self::deadline_passed)
    /// (`CLOCK_MONOTONIC`, ns); `None` while nothing is held. Ask again after
    /// each call of the others.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::Active(_) => self.device.deadline_ns(),
            State::Inactive => None,
        }
    }

    /// I/O thread: the deadline may have passed.
    pub fn deadline_passed(&mut self) {
        let _nothing_left = self.work(|device, queues| {
            device.deadline_passed(queues)?;
            Ok(Progress::Done)
        });
    }

    /// Counters of transport and device, shared.
    pub fn counters(&self) -> Arc<dyn CounterSource> {
        Arc::new(VirtioCounters {
            transport: Arc::clone(&self.counters),
            device: self.device.counters(),
        })
    }

    /// The device behind the transport.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device behind the transport, for the monitor's own use of it.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// Queue work: a bounded piece by the device, then what follows from it.
    fn work(
        &mut self,
        piece: impl FnOnce(&mut D, &mut Queues<'_>) -> Result<Progress, QueueError>,
    ) -> Progress {
        let State::Active(live) = &mut self.state else {
            return Progress::Done;
        };
        let mut queues = Queues {
            memory: &self.memory,
            live,
        };
        let outcome = piece(&mut self.device, &mut queues)
            .and_then(|progress| self.interrupt_queues().map(|()| progress));
        if self.device.take_config_change() {
            self.config_changed();
        }
        outcome.unwrap_or_else(|_| {
            self.break_down();
            Progress::Done
        })
    }

    /// Whether the call that ended with `progress` went on with unfinished work.
    fn went_on(&mut self, queue: u16, progress: Progress) -> bool {
        match &mut self.state {
            State::Active(live) => match live.get_mut(usize::from(queue)) {
                Some(Some(queue)) => {
                    std::mem::replace(&mut queue.unfinished, progress == Progress::More)
                }
                _ => false,
            },
            State::Inactive => false,
        }
    }

    /// Sends one interrupt for each queue whose completions need one.
    fn interrupt_queues(&mut self) -> Result<(), QueueError> {
        let State::Active(live) = &mut self.state else {
            return Ok(());
        };
        for (queue, settings) in live.iter_mut().zip(&self.settings) {
            let Some(queue) = queue else { continue };
            match queue.decide(&self.memory)? {
                Decision::Nothing => {}
                Decision::Suppress => self.counters.interrupts_suppressed.increment(),
                Decision::Hold => self.counters.interrupts_held.increment(),
                Decision::Interrupt => {
                    self.isr |= ISR_QUEUE;
                    signal(&mut self.msix, settings.vector, &self.counters);
                }
            }
        }
        Ok(())
    }

    /// Tells the driver that device configuration or status changed.
    fn config_changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.counters.config_changes.increment();
        self.isr |= ISR_CONFIG;
        signal(&mut self.msix, self.config_vector, &self.counters);
    }

    /// Marks the device as broken: DEVICE_NEEDS_RESET, and nothing more until reset.
    pub(super) fn break_down(&mut self) {
        self.counters.malformed.increment();
        self.deactivate();
        self.negotiation.set_needs_reset();
        if self.negotiation.status() & DRIVER_OK != 0 {
            self.config_changed();
        }
    }

    pub(super) fn deactivate(&mut self) {
        if matches!(self.state, State::Active(_)) {
            self.state = State::Inactive;
            self.device.stop();
            self.kick_all();
        }
    }

    /// DRIVER_OK: the enabled queues come to life.
    pub(super) fn activate(&mut self) {
        let features = self.negotiation.features();
        let event_idx = features & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
        let live: Result<Vec<_>, QueueError> = self
            .settings
            .iter()
            .map(|settings| {
                let enabled = settings.enabled.then(|| settings.build(&self.memory));
                let queue = enabled.transpose()?;
                Ok(queue.map(|queue| Virtqueue::new(queue, event_idx)))
            })
            .collect();
        match live {
            Ok(live) => {
                self.state = State::Active(live);
                self.device.start(features);
                self.kick_all();
            }
            Err(_) => self.break_down(),
        }
    }

    pub(super) fn reset(&mut self) {
        self.counters.resets.increment();
        self.deactivate();
        self.device.reset();
        for settings in &mut self.settings {
            *settings = QueueSettings::new(settings.max_size);
        }
        self.queue_select = 0;
        self.config_vector = NO_VECTOR;
        self.isr = 0;
    }

    fn kick_all(&self) {
        for queue in 0..self.queue_count() {
            self.kick.kick(queue);
        }
    }
}

fn signal(msix: &mut Msix, vector: u16, counters: &TransportCounters) {
    if msix.signal(vector) != MsixDelivery::Nowhere {
        counters.interrupts.increment();
    }
}

fn identity(device: &impl VirtioDevice) -> Identity {
    let kind = device.kind();
    Identity {
        vendor: VENDOR,
        device: DEVICE_BASE + kind.id,
        revision: 1,
        class: kind.class,
        subsystem_vendor: VENDOR,
        subsystem: DEVICE_BASE + kind.id,
    }
}
