//! A virtio device as a PCI function: registers, states, interrupts.

use std::sync::Arc;

use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

use super::common::{Register, Ring, store, value_of};
use super::counters::{TransportCounters, VirtioCounters};
use super::layout::{self, BAR_LEN, Capabilities, NOTIFY, NOTIFY_MULTIPLIER, Region};
use super::negotiation::{DRIVER_OK, Negotiation, Step};
use super::queue::Decision;
use super::{
    DEVICE_BASE, Interest, NO_VECTOR, Progress, QueueError, QueueSettings, Queues, VENDOR,
    VirtioDevice, Virtqueue,
};
use crate::pci::{
    Bar, ConfigSpace, ConfigWrite, Identity, Msix, MsixControl, Outcome, PciFunction,
};
use crate::{CounterSource, GuestRam, Kick, Wiring};

const TRANSPORT_FEATURES: u64 =
    1 << VIRTIO_F_VERSION_1 | 1 << VIRTIO_RING_F_EVENT_IDX | 1 << VIRTIO_RING_F_INDIRECT_DESC;
const ISR_QUEUE: u8 = 1;
const ISR_CONFIG: u8 = 2;

/// Whether queues live.
enum State {
    /// Before DRIVER_OK, after a failure, or with DEVICE_NEEDS_RESET.
    Inactive,
    /// Between DRIVER_OK and reset; queues that the driver did not enable are
    /// missing.
    Active(Vec<Option<Virtqueue>>),
}

/// A virtio device on the PCI bus.
///
/// vCPU threads reach it as a [`PciFunction`]; the I/O thread calls
/// [`notified`](Self::notified), [`backend_ready`](Self::backend_ready) and
/// [`interest`](Self::interest).
pub struct VirtioPci<D> {
    device: D,
    memory: GuestRam,
    kick: Arc<dyn Kick>,
    counters: Arc<TransportCounters>,
    config: ConfigSpace,
    capabilities: Capabilities,
    msix: Msix,
    negotiation: Negotiation,
    settings: Vec<QueueSettings>,
    state: State,
    queue_select: u16,
    config_vector: u16,
    generation: u8,
    isr: u8,
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
    pub fn queue_count(&self) -> u16 {
        self.settings.len() as u16
    }

    /// MSI-X vectors: one for each queue and one for configuration changes.
    /// Vectors from 0 to one less reach [`crate::Interrupts`] and
    /// [`crate::MsixRoutes`].
    pub fn vector_count(&self) -> u16 {
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
        let outcome = piece(&mut self.device, &mut queues);
        let outcome = outcome.and_then(|progress| self.interrupt_queues().map(|()| progress));
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

    /// Sends the interrupts that completions are worth, one for each queue.
    fn interrupt_queues(&mut self) -> Result<(), QueueError> {
        let State::Active(live) = &mut self.state else {
            return Ok(());
        };
        for (queue, settings) in live.iter_mut().zip(&self.settings) {
            let Some(queue) = queue else { continue };
            match queue.decide(&self.memory)? {
                Decision::Nothing => {}
                Decision::Suppress => self.counters.interrupts_suppressed.increment(),
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

    /// A queue is broken: DEVICE_NEEDS_RESET, and nothing more until reset.
    fn break_down(&mut self) {
        self.counters.malformed.increment();
        self.deactivate();
        self.negotiation.set_needs_reset();
        if self.negotiation.status() & DRIVER_OK != 0 {
            self.config_changed();
        }
    }

    fn deactivate(&mut self) {
        if matches!(self.state, State::Active(_)) {
            self.state = State::Inactive;
            self.device.stop();
            self.kick_all();
        }
    }

    /// DRIVER_OK: the enabled queues come to life.
    fn activate(&mut self) {
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

    fn reset(&mut self) {
        self.counters.resets.increment();
        self.deactivate();
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

    fn common_read(&self, register: Register) -> u64 {
        let selected = self.settings.get(usize::from(self.queue_select));
        let queue = |value: fn(&QueueSettings) -> u64| selected.map_or(0, value);
        match register {
            Register::OfferedSelect => self.negotiation.offered_select.into(),
            Register::Offered => self.negotiation.offered_word().into(),
            Register::AcceptedSelect => self.negotiation.accepted_select.into(),
            Register::Accepted => self.negotiation.accepted_word().into(),
            Register::ConfigVector => self.config_vector.into(),
            Register::QueueCount => self.queue_count().into(),
            Register::Status => self.negotiation.status().into(),
            Register::Generation => self.generation.into(),
            Register::QueueSelect => self.queue_select.into(),
            Register::QueueSize => queue(|queue| queue.size.into()),
            Register::QueueVector => selected.map_or(NO_VECTOR, |queue| queue.vector).into(),
            Register::QueueEnable => queue(|queue| queue.enabled.into()),
            Register::QueueNotifyOffset => selected.map_or(0, |_| self.queue_select).into(),
            Register::QueueNotifyData | Register::QueueReset => 0,
            Register::Ring(Ring::Descriptors, part) => part.of(queue(|queue| queue.descriptors)),
            Register::Ring(Ring::Available, part) => part.of(queue(|queue| queue.available)),
            Register::Ring(Ring::Used, part) => part.of(queue(|queue| queue.used)),
        }
    }

    /// Whether the write made sense.
    fn common_write(&mut self, register: Register, value: u64) -> bool {
        match register {
            Register::OfferedSelect => self.negotiation.offered_select = value as u32,
            Register::AcceptedSelect => self.negotiation.accepted_select = value as u32,
            Register::Accepted => return self.negotiation.accept_word(value as u32),
            Register::ConfigVector => self.config_vector = self.known_vector(value),
            Register::Status => return self.write_status(value as u8),
            Register::QueueSelect => self.queue_select = value as u16,
            Register::QueueVector => return self.write_queue_vector(value),
            Register::QueueEnable => return self.enable_queue(value),
            Register::QueueSize => {
                return self.configure(|queue| queue.size = value as u16);
            }
            Register::Ring(ring, part) => {
                return self.configure(|queue| {
                    let address = match ring {
                        Ring::Descriptors => &mut queue.descriptors,
                        Ring::Available => &mut queue.available,
                        Ring::Used => &mut queue.used,
                    };
                    *address = part.replace(*address, value);
                });
            }
            Register::Offered
            | Register::QueueCount
            | Register::Generation
            | Register::QueueNotifyOffset
            | Register::QueueNotifyData
            | Register::QueueReset => return false,
        }
        true
    }

    fn write_status(&mut self, value: u8) -> bool {
        let device = &self.device;
        let step = self
            .negotiation
            .write_status(value, |features| device.accepts(features));
        match step {
            Step::Reset => self.reset(),
            Step::Start => self.activate(),
            Step::Fail => self.deactivate(),
            Step::Refused => self.counters.features_refused.increment(),
            Step::Noted => {}
            Step::Invalid => return false,
        }
        true
    }

    fn write_queue_vector(&mut self, value: u64) -> bool {
        let vector = self.known_vector(value);
        let selected = self.settings.get_mut(usize::from(self.queue_select));
        selected.map(|queue| queue.vector = vector).is_some()
    }

    /// Changes a queue that is not enabled yet.
    fn configure(&mut self, change: impl FnOnce(&mut QueueSettings)) -> bool {
        match self.settings.get_mut(usize::from(self.queue_select)) {
            Some(queue) if !queue.enabled => change(queue),
            _ => return false,
        }
        true
    }

    /// Enables the selected queue if its settings are good; a queue that
    /// cannot work is a broken one.
    fn enable_queue(&mut self, value: u64) -> bool {
        let started = self.negotiation.status() & DRIVER_OK != 0;
        let selected = self.settings.get_mut(usize::from(self.queue_select));
        let (Some(queue), 1, false) = (selected, value, started) else {
            return false;
        };
        match queue.build(&self.memory) {
            Ok(_) => queue.enabled = true,
            Err(_) => self.break_down(),
        }
        true
    }

    /// A vector that does not exist becomes [`NO_VECTOR`] (4.1.5.1.2.1).
    fn known_vector(&self, value: u64) -> u16 {
        let vector = value as u16;
        if vector < self.vector_count() {
            vector
        } else {
            NO_VECTOR
        }
    }

    fn notify_written(&mut self, offset: usize) -> bool {
        let queue = offset / NOTIFY_MULTIPLIER as usize;
        let live = matches!(self.state, State::Active(_)) && queue < self.settings.len();
        if live {
            self.kick.kick(queue as u16);
        }
        live
    }

    /// Reads the byte that clears itself (4.1.4.5).
    fn read_isr(&mut self, data: &mut [u8]) {
        store(data, std::mem::take(&mut self.isr).into());
    }

    fn read_region(&mut self, region: Region, offset: usize, data: &mut [u8]) -> bool {
        data.fill(0);
        match region {
            Region::Common => match Register::at(offset, data.len()) {
                Some(register) => store(data, self.common_read(register)),
                None => return false,
            },
            Region::Isr if offset == 0 => self.read_isr(data),
            Region::Device => self.device.read_config(offset, data),
            Region::Table => self.msix.table_read(offset, data),
            Region::Pba => self.msix.pba_read(offset, data),
            Region::Isr | Region::Notify | Region::Nothing => return false,
        }
        true
    }

    fn write_region(&mut self, region: Region, offset: usize, data: &[u8]) -> bool {
        match region {
            Region::Common => match Register::at(offset, data.len()) {
                Some(register) => self.common_write(register, value_of(data)),
                None => false,
            },
            Region::Notify => self.notify_written(offset),
            Region::Table => {
                self.msix.table_write(offset, data);
                true
            }
            Region::Isr | Region::Device | Region::Pba | Region::Nothing => false,
        }
    }

    /// The access that the configuration window describes, if `offset` to
    /// `offset + len` touches its data and it is a valid one (4.1.4.9).
    fn window(&self, offset: u16, len: usize) -> Option<(u64, usize)> {
        let cap = self.capabilities.window;
        let data = usize::from(cap + 16)..usize::from(cap + 20);
        let start = usize::from(offset);
        let touches = start < data.end && start + len > data.start;
        let bar = self.config.word(cap + 4) & 0xff;
        let at = u64::from(self.config.dword(cap + 8));
        let width = self.config.dword(cap + 12);
        let valid = bar == 0 && matches!(width, 1 | 2 | 4) && at % u64::from(width) == 0;
        let inside = at + u64::from(width) <= u64::from(BAR_LEN);
        (touches && valid && inside).then_some((at, width as usize))
    }
}

impl<D: VirtioDevice> PciFunction for VirtioPci<D> {
    fn bar_size(&self) -> Option<u32> {
        Some(BAR_LEN)
    }

    fn assign_bar(&mut self, address: u32) {
        self.config.assign_bar(address);
    }

    fn memory_enabled(&self) -> bool {
        self.config.memory_enabled()
    }

    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        if let Some((at, width)) = self.window(offset, data.len()) {
            let mut value = [0; 4];
            self.bar_read(at, &mut value[..width]);
            let _ = self.config.write(self.capabilities.window + 16, &value);
        }
        self.config.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) {
        if self.config.write(offset, data) == ConfigWrite::BarMoveRefused {
            self.counters.bar_moves_refused.increment();
        }
        let control = self.config.word(self.capabilities.msix_control);
        self.msix.set_control(MsixControl::from_word(control));
        if let Some((at, width)) = self.window(offset, data.len()) {
            let value = self.config.dword(self.capabilities.window + 16);
            self.bar_write(at, &value.to_le_bytes()[..width]);
        }
    }

    fn bar_read(&mut self, offset: u64, data: &mut [u8]) {
        let (region, at) = Region::at(offset);
        if !self.read_region(region, at, data) {
            self.counters.invalid_accesses.increment();
        }
    }

    fn bar_write(&mut self, offset: u64, data: &[u8]) {
        let (region, at) = Region::at(offset);
        if !self.write_region(region, at, data) {
            self.counters.invalid_accesses.increment();
        }
    }
}

fn signal(msix: &mut Msix, vector: u16, counters: &TransportCounters) {
    if msix.signal(vector) != Outcome::Nowhere {
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
