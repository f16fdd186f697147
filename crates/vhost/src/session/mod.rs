//! The device between a front-end's messages and its queues: memory, rings,
//! queue work, interrupts. Messages are in `requests`.
//!
//! All of it is called by one thread under one mutex; the main thread takes the
//! mutex to change settings. Whenever memory or a queue is to go away, the
//! device first ends what it has in flight ([`Blk::quiesce`]): nothing of a
//! front-end that went is lost, and nothing is written after it.

mod cache_mode;
mod channel;
mod log_area;
mod memory;
mod notifier;
mod requests;
mod ring;
mod shortened;
mod signal;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tare_daemon::disk::DiskRules;
use tare_daemon::poll::{Interest, Poll};
use tare_devices::blk::{Blk, Cache, QUEUE_SIZE};
use tare_devices::virtio::{
    EventIdx, InterruptDecision, Progress, QueueError, Queues, VirtioDevice as _, Virtqueue,
};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_CONFIG_WCE;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use crate::counters::VhostCounters;
use cache_mode::{Belief, Driver};
pub(crate) use channel::Channel;
use log_area::LogArea;
use memory::Regions;
use notifier::Kick;
use ring::Ring;
pub(crate) use shortened::install as install_bus_error_handler;
use signal::Signal;

/// Why a queue does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The front-end did not say where it is, or it is not in its memory.
    #[error("queue {0} lies outside the shared memory")]
    Nowhere(usize),
    /// The log has no place for it.
    #[error("queue {0} does not fit into the in-flight log")]
    NoLog(usize),
    /// Its rings make no sense.
    #[error("cannot use queue {index}")]
    Queue {
        /// Which.
        index: usize,
        /// Why.
        source: QueueError,
    },
    /// Its notifier cannot be watched.
    #[error("cannot watch the notifications of queue {index}")]
    Watch {
        /// Which.
        index: usize,
        /// Why.
        source: std::io::Error,
    },
}

/// The device and what its front-end set up.
pub(crate) struct Session {
    device: Blk,
    poll: Arc<Poll>,
    counters: Arc<VhostCounters>,
    first_token: u64,
    features: u64,
    /// The command line's cache mode.
    offered_cache: Cache,
    belief: Belief,
    regions: Regions,
    memory: Option<tare_devices::GuestRam>,
    /// Comes with the message that is about to be read.
    offered_channel: Option<Channel>,
    /// Where the front-end learns of another size.
    channel: Option<Channel>,
    /// Length of the disk when the front-end last read its capacity.
    read_bytes: Option<u64>,
    log: Option<LogArea>,
    rings: Vec<Ring>,
    /// How each ring's call descriptor is signalled.
    signals: Vec<Signal>,
    /// Queues that are started and enabled, by index.
    live: Vec<Option<Virtqueue>>,
    backend_pending: bool,
    /// A file became shorter than the memory that was mapped of it.
    memory_went: bool,
    /// What went wrong in a queue, until it is logged.
    complaint: Option<String>,
}

impl Session {
    /// A device without a front-end. Its queues' notifications get tokens from
    /// `first_token` on.
    pub(crate) fn new(
        device: Blk,
        poll: Arc<Poll>,
        counters: Arc<VhostCounters>,
        first_token: u64,
    ) -> Self {
        let queues = device.queue_sizes().len();
        let offered_cache = device.cache();
        Self {
            device,
            poll,
            counters,
            first_token,
            features: 0,
            offered_cache,
            belief: Belief::Unknown,
            regions: Regions::default(),
            memory: None,
            offered_channel: None,
            channel: None,
            read_bytes: None,
            log: None,
            rings: (0..queues).map(|_| Ring::default()).collect(),
            signals: (0..queues).map(|_| Signal::new()).collect(),
            live: (0..queues).map(|_| None).collect(),
            backend_pending: false,
            memory_went: false,
            complaint: None,
        }
    }

    /// The device.
    pub(crate) fn device(&self) -> &Blk {
        &self.device
    }

    /// Changes coalescing, limits and size at run time; [`go_on`](Self::go_on) delivers what
    /// was held and takes what waited.
    pub(crate) fn set_rules(&mut self, rules: &DiskRules) {
        rules.apply(&mut self.device);
        if self.device.take_config_change() {
            self.config_changed();
        }
        self.backend_pending = true;
        for ring in &mut self.rings {
            ring.pending = true;
        }
    }

    /// The front-end is about to read the configuration again, if it has given a channel for
    /// that. One that has not sees it when it next asks.
    fn config_changed(&mut self) {
        match self.channel.as_ref().map(Channel::config_changed) {
            Some(Ok(())) => self.counters.config_changes.increment(),
            Some(Err(_)) => self.counters.config_changes_lost.increment(),
            None => {}
        }
    }

    /// What [`Channel::look`] found with the message that is read next.
    pub(crate) fn offer_channel(&mut self, channel: Option<Channel>) {
        self.offered_channel = channel;
    }

    /// Whether the front-end took memory away that it had shared.
    pub(crate) fn memory_is_gone(&self) -> bool {
        let log = self.log.as_ref();
        self.memory_went || self.regions.are_gone() || log.is_some_and(LogArea::is_gone)
    }

    /// What went wrong in a queue since the last call.
    pub(crate) fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// A queue's notifier can be read.
    pub(crate) fn notified(&mut self, index: usize) {
        let Some(ring) = self.rings.get_mut(index) else {
            return;
        };
        let Some(kick) = &mut ring.kick else { return };
        match kick.take() {
            Kick::Notified => {
                self.counters.notifications.increment();
                ring.pending = true;
            }
            Kick::Nothing => {}
            Kick::Broken => {
                self.counters.bad_notifiers.increment();
                let _ = kick.watch(Interest::default());
            }
        }
    }

    /// The engine has ended something.
    pub(crate) fn engine_ready(&mut self) {
        self.backend_pending = true;
    }

    /// One bounded piece of each work that waits.
    pub(crate) fn go_on(&mut self) {
        for index in 0..self.rings.len() {
            if std::mem::take(&mut self.rings[index].pending) && self.live[index].is_some() {
                let progress = self.work(|device, queues| device.process(index as u16, queues));
                self.rings[index].pending |= progress == Progress::More;
            }
        }
        if std::mem::take(&mut self.backend_pending) {
            self.backend_ready();
        }
    }

    fn backend_ready(&mut self) {
        let progress = self.work(|device, queues| device.backend_ready(queues));
        self.backend_pending |= progress == Progress::More;
    }

    /// Whether there is work without waiting.
    pub(crate) fn has_more(&self) -> bool {
        let waits = |(ring, live): (&Ring, &Option<Virtqueue>)| ring.pending && live.is_some();
        self.backend_pending || self.rings.iter().zip(&self.live).any(waits)
    }

    /// When held completions must be delivered (`CLOCK_MONOTONIC`, ns).
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.device.deadline_ns()
    }

    /// That time has come.
    pub(crate) fn deadline_passed(&mut self) {
        let _nothing_left = self.work(|device, queues| {
            device.deadline_passed(queues)?;
            Ok(Progress::Done)
        });
    }

    /// The front-end went: everything in flight is ended, then nothing of it
    /// is left.
    pub(crate) fn forget_frontend(&mut self) {
        self.quiesce();
        self.belief = Belief::Unknown;
        self.stop_device();
        if self.memory_is_gone() {
            self.counters.memory_lost.increment();
        }
        self.memory_went = false;
        for (ring, signal) in self.rings.iter_mut().zip(&mut self.signals) {
            let _ = signal.bind(None);
            *ring = Ring::default();
        }
        self.features = 0;
        (self.offered_channel, self.channel) = (None, None);
        self.read_bytes = None;
        self.log = None;
        self.regions = Regions::default();
        self.memory = None;
        self.backend_pending = false;
    }

    /// Queue work: a bounded piece by the device, then the interrupts that it
    /// is worth.
    fn work(
        &mut self,
        piece: impl FnOnce(&mut Blk, &mut Queues<'_>) -> Result<Progress, QueueError>,
    ) -> Progress {
        let Some(memory) = &self.memory else {
            return Progress::Done;
        };
        let mut queues = Queues::new(memory, &mut self.live);
        let outcome = piece(&mut self.device, &mut queues)
            .and_then(|progress| self.interrupt().map(|()| progress));
        outcome.unwrap_or_else(|error| {
            self.break_down(&error);
            Progress::Done
        })
    }

    fn interrupt(&mut self) -> Result<(), QueueError> {
        let Some(memory) = &self.memory else {
            return Ok(());
        };
        let calls = self.rings.iter_mut().zip(&mut self.signals);
        for (queue, (ring, signal)) in self.live.iter_mut().zip(calls) {
            let Some(queue) = queue else { continue };
            match queue.decide(memory)? {
                InterruptDecision::Nothing => {}
                InterruptDecision::Suppress => self.counters.interrupts_suppressed.increment(),
                InterruptDecision::Hold => self.counters.interrupts_held.increment(),
                InterruptDecision::Interrupt => match &ring.call {
                    Some(call) => {
                        self.counters.interrupts.increment();
                        signal.send(call);
                    }
                    // The next one that comes is signalled at once.
                    None => ring.owes_interrupt = true,
                },
            }
        }
        Ok(())
    }

    /// Waits until everything in flight is answered, and interrupts the driver.
    fn quiesce(&mut self) {
        self.end_in_flight();
        if self.device.deadline_ns().is_some() {
            // Delivers what is held. No queue goes on before the caller is done: what it took would
            // be in the memory that goes, and in the log of a successor.
            let settings = self.device.coalescing();
            self.device.set_coalescing(settings);
            self.end_in_flight();
        }
        self.backend_pending = true;
    }

    fn end_in_flight(&mut self) {
        let _nothing_left = self.work(|device, queues| {
            device.quiesce(queues)?;
            Ok(Progress::Done)
        });
    }

    /// A queue is broken: nothing more happens until the front-end starts the
    /// queues anew, as the driver's reset makes it do.
    fn break_down(&mut self, error: &QueueError) {
        self.counters.malformed.increment();
        self.complaint = Some(format!("a queue of the guest's is broken: {error}"));
        // For `GET_VRING_BASE`, as if it had stopped them.
        for (ring, live) in self.rings.iter_mut().zip(&self.live) {
            if let Some(queue) = live.as_ref().or(ring.parked.as_ref()) {
                ring.base = queue.next_available();
            }
        }
        self.stop_device();
        for (ring, signal) in self.rings.iter_mut().zip(&mut self.signals) {
            ring.kick = None;
            ring.parked = None;
            if let Some(error) = &ring.error
                && signal.bind(Some(error)).is_ok()
            {
                signal.send(error);
                // It was an eventfd when it came.
                let _ = signal.bind(ring.call.as_ref());
            }
        }
    }

    /// The device's reset takes the cache mode back; the front-end's knowledge of
    /// it stays.
    fn stop_device(&mut self) {
        self.live.fill_with(|| None);
        self.device.stop();
        self.device.reset();
        if let Err(error) = self.apply_cache_mode() {
            self.complaint = Some(format!("the disk does not become write-through: {error}"));
        }
    }

    /// What the driver believes of the cache mode, from now on.
    fn believe(&mut self, belief: Belief) -> std::io::Result<()> {
        self.belief = belief;
        if let Some(log) = &self.log {
            log.note_cache_mode(belief.entry(self.offered_cache));
        }
        self.apply_cache_mode()
    }

    fn apply_cache_mode(&mut self) -> std::io::Result<()> {
        let driver = match self.features & 1 << VIRTIO_BLK_F_CONFIG_WCE {
            0 => Driver::MayNot,
            _ => Driver::MayChoose,
        };
        let cache = self.belief.in_force(self.offered_cache, driver);
        self.device.set_cache(cache)
    }

    /// Brings a queue to life that the front-end has set up.
    fn start(&mut self, index: usize) -> Result<(), StartError> {
        let ring = &self.rings[index];
        let base = ring.base;
        let queue = self.build(index, base)?;
        let resumes = queue.next_available() != 0 || queue.unanswered() > 0;
        // QEMU leaves what comes before it has started the device unread, and one that comes
        // back to a daemon does not read the configuration again by itself.
        if !self.is_started() && self.read_bytes != Some(self.device.bytes()) {
            self.config_changed();
        }
        self.counters.queue_starts.increment();
        self.counters.resubmitted.add(queue.unanswered() as u64);
        let ring = &mut self.rings[index];
        ring.parked = Some(queue);
        ring.owes_interrupt = resumes;
        self.pay_interrupt(index);
        if self.rings[index].enabled {
            self.enable(index)
        } else {
            Ok(())
        }
    }

    fn build(&self, index: usize, base: u16) -> Result<Virtqueue, StartError> {
        let ring = &self.rings[index];
        let place = ring.settings(&self.regions).zip(self.memory.as_ref());
        let (settings, memory) = place.ok_or(StartError::Nowhere(index))?;
        let log = match &self.log {
            Some(area) => {
                let log = area.log(index, ring.size);
                Some(log.ok_or(StartError::NoLog(index))?)
            }
            None => None,
        };
        let event_idx = match self.features & 1 << VIRTIO_RING_F_EVENT_IDX {
            0 => EventIdx::Absent,
            _ => EventIdx::Negotiated,
        };
        Virtqueue::resume(&settings, event_idx, base, QUEUE_SIZE, log, memory)
            .map_err(|source| StartError::Queue { index, source })
    }

    /// A started queue may work: what came meanwhile is done first.
    fn enable(&mut self, index: usize) -> Result<(), StartError> {
        let ring = &mut self.rings[index];
        ring.enabled = true;
        let Some(queue) = ring.parked.take() else {
            return Ok(());
        };
        self.live[index] = Some(queue);
        ring.pending = true;
        match &mut ring.kick {
            Some(kick) => kick.watch(Interest::READ),
            None => Ok(()),
        }
        .map_err(|source| StartError::Watch { index, source })
    }

    fn disable(&mut self, index: usize) {
        self.rings[index].enabled = false;
        if self.live[index].is_some() {
            self.quiesce();
            let ring = &mut self.rings[index];
            ring.parked = self.live[index].take();
            if let Some(kick) = &mut ring.kick {
                let _ = kick.watch(Interest::default());
            }
        }
    }

    /// Ends a queue; the result is where it would go on.
    fn stop(&mut self, index: usize) -> u16 {
        self.quiesce();
        let queue = self.live[index].take().or(self.rings[index].parked.take());
        let ring = &mut self.rings[index];
        ring.kick = None;
        ring.pending = false;
        if let Some(queue) = queue {
            ring.base = queue.next_available();
        }
        let base = ring.base;
        if !self.is_started() {
            self.stop_device();
        }
        base
    }

    fn is_started(&self) -> bool {
        self.live.iter().any(Option::is_some) || self.rings.iter().any(|it| it.parked.is_some())
    }

    /// Other memory below the same queues.
    fn change_memory(&mut self, regions: Regions) -> Result<(), StartError> {
        self.quiesce();
        self.memory_went = self.memory_is_gone();
        self.regions = regions;
        self.memory = self.regions.memory();
        for index in 0..self.rings.len() {
            let live = self.live[index].take();
            let (parked, place) = match live {
                Some(queue) => (queue, Life::Live),
                None => match self.rings[index].parked.take() {
                    Some(queue) => (queue, Life::Parked),
                    None => continue,
                },
            };
            let queue = self.build(index, parked.next_available())?;
            match place {
                Life::Live => self.live[index] = Some(queue),
                Life::Parked => self.rings[index].parked = Some(queue),
            }
            // What was offered while the memory changed.
            self.rings[index].pending = true;
        }
        Ok(())
    }

    /// The process before may have been killed between an answer and its
    /// interrupt.
    fn pay_interrupt(&mut self, index: usize) {
        let ring = &mut self.rings[index];
        if ring.owes_interrupt
            && let Some(call) = &ring.call
        {
            ring.owes_interrupt = false;
            self.counters.interrupts.increment();
            self.signals[index].send(call);
        }
    }
}

enum Life {
    Live,
    Parked,
}
