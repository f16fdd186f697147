//! The device: what it offers, and the path of a request from its queue to the engine. The path
//! back is in `finish`.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use tare_policy::coalesce::{Coalescer, Decision, RequestKind, Settings};
use tare_policy::limit::{Buckets, DiskLimits};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES, VIRTIO_BLK_S_OK,
};
use vm_memory::GuestAddress;

use super::counters::{AllCounters, CoalesceView};
use super::disk::Direct;
use super::in_flight::{InFlight, InFlightRequest, Reply};
use super::io_engine::{Durability, Operation};
use super::request::{HEADER_BYTES, Unmap};
use super::slow::Slow;
use super::{
    BATCH, BlkCounters, Cache, Clock, Disk, IoEngine, MAX_IN_FLIGHT, MAX_QUEUES, QUEUE_SIZE,
    Refusal, Request, RequestLimits, SECTOR_BYTES, SERIAL_BYTES, Shape, config, parse,
};
use crate::virtio::{
    Chain, DeviceKind, Interest, Progress, QueueError, Queues, VirtioDevice, Virtqueue,
};
use crate::{CounterSource, GuestRam};

/// How a disk looks to the guest.
#[derive(Clone, Copy, Debug)]
pub struct BlkSettings {
    /// Serial number; zeros fill it up.
    pub serial: [u8; SERIAL_BYTES],
    /// Queues, 1 to [`MAX_QUEUES`]; more are not made.
    pub queues: u16,
    /// Cache mode until the driver changes it.
    pub cache: Cache,
    /// Which completions interrupt the guest.
    pub coalesce: Settings,
    /// Requests and bytes a second.
    pub limits: DiskLimits,
}

/// A block device.
pub struct Blk {
    settings: BlkSettings,
    queue_sizes: Vec<u16>,
    pub(super) features: u64,
    pub(super) cache: Cache,
    pub(super) disk: Disk,
    pub(super) engine: Box<dyn IoEngine>,
    pub(super) clock: Box<dyn Clock>,
    /// The time, read once in each iteration of the I/O loop.
    pub(super) now_ns: u64,
    pub(super) queue_states: Vec<QueueState>,
    buckets: Buckets,
    pub(super) in_flight: InFlight,
    pub(super) slow: Slow,
    pub(super) counters: Arc<BlkCounters>,
    pub(super) view: Arc<CoalesceView>,
    pub(super) chain: Chain,
    /// The driver does not know the new size yet.
    resized: bool,
}

/// What belongs to one queue.
pub(super) struct QueueState {
    pub(super) coalescer: Coalescer,
    /// The driver gets an interrupt at the end of this call.
    pub(super) delivers: bool,
    /// The coalescer has counted something since it was published.
    pub(super) counted: bool,
    /// Requests wait in the queue for others to complete.
    pub(super) blocked: bool,
    /// Requests wait in the queue for the limits.
    limited: bool,
}

impl Blk {
    /// A device over `disk`, whose requests `engine` executes.
    pub fn new(
        settings: BlkSettings,
        disk: Disk,
        engine: Box<dyn IoEngine>,
        clock: Box<dyn Clock>,
    ) -> Self {
        let queues = settings.queues.clamp(1, MAX_QUEUES);
        let state = |_| QueueState {
            coalescer: Coalescer::new(settings.coalesce),
            delivers: false,
            counted: false,
            blocked: false,
            limited: false,
        };
        Self {
            settings,
            queue_sizes: vec![QUEUE_SIZE; queues.into()],
            features: 0,
            cache: settings.cache,
            disk,
            engine,
            clock,
            now_ns: 0,
            queue_states: (0..queues).map(state).collect(),
            buckets: settings.limits.buckets(),
            in_flight: InFlight::default(),
            slow: Slow::default(),
            counters: Arc::default(),
            view: Arc::default(),
            chain: Chain::default(),
            resized: false,
        }
    }

    /// The descriptor that the I/O loop watches for reading while the device is started; `None` if
    /// the engine completes its work within each call.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.engine.event()
    }

    /// Changes the coalescing of every queue, at run time. Notify a queue
    /// afterwards: that delivers what was held. The settings in force change nothing: what they
    /// have learned stays.
    pub fn set_coalescing(&mut self, settings: Settings) {
        if self.settings.coalesce == settings {
            return;
        }
        self.settings.coalesce = settings;
        let now_ns = self.clock.now_ns();
        for state in &mut self.queue_states {
            state.delivers |= state.coalescer.configure(now_ns, settings) == Decision::Deliver;
        }
    }

    /// Changes the limits of requests and bytes at run time. Notify a queue afterwards, so that
    /// waiting requests continue.
    pub fn set_limits(&mut self, limits: DiskLimits) {
        if self.settings.limits == limits {
            return;
        }
        self.settings.limits = limits;
        let now_ns = self.clock.now_ns();
        self.buckets.set(now_ns, limits.iops, limits.bytes_per_s);
    }

    /// Sets the length of the disk, as its [`Growth`](super::Growth) reported it. The driver learns
    /// it with the next queue work.
    pub fn set_bytes(&mut self, bytes: u64) {
        if bytes != self.disk.bytes() {
            self.disk.set_bytes(bytes);
            self.counters.resizes.increment();
            self.resized = true;
        }
    }

    /// Length of the disk in bytes.
    pub fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    /// The limits in force.
    pub fn limits(&self) -> DiskLimits {
        self.settings.limits
    }

    /// The coalescing in force.
    pub fn coalescing(&self) -> Settings {
        self.settings.coalesce
    }

    /// Waits until everything in flight is answered. Afterwards queues may go away, and memory may
    /// change. Takes no new requests.
    pub fn quiesce(&mut self, queues: &mut Queues<'_>) -> Result<(), QueueError> {
        self.now_ns = self.clock.now_ns();
        let _ = self.submit_and_complete(queues)?;
        while self.in_flight.any() {
            self.engine.wait();
            let _ = self.submit_and_complete(queues)?;
        }
        // The next request uses the memory that is there then.
        self.in_flight.forget();
        Ok(())
    }

    /// Takes a bounded number of requests from a queue.
    fn take_requests(
        &mut self,
        index: usize,
        queues: &mut Queues<'_>,
    ) -> Result<Progress, QueueError> {
        let Some((queue, memory)) = queues.get(index) else {
            return Ok(Progress::Done);
        };
        queue.disable_notification(memory)?;
        self.queue_states[index].limited = false;
        for _ in 0..BATCH {
            if self.in_flight.are_full() {
                self.queue_states[index].blocked = true;
                self.counters.backpressure.increment();
                return Ok(Progress::Done);
            }
            let ready = self.buckets.is_ready(self.now_ns);
            if !ready && queue.has_waiting(memory)? {
                self.queue_states[index].limited = true;
                self.counters.limited.increment();
                return Ok(Progress::Done);
            }
            if ready && queue.pop(memory, &mut self.chain)? {
                self.begin(index, queue, memory)?;
            } else if queue.enable_notification(memory)? {
                queue.disable_notification(memory)?;
            } else {
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }

    /// Lets queues continue that waited for the limits, if these allow requests again. True if such
    /// queues remain.
    fn resume_limited(&mut self, now_ns: u64) -> bool {
        let mut resumes = false;
        if self.buckets.is_ready(now_ns) {
            for state in &mut self.queue_states {
                let limited = std::mem::take(&mut state.limited);
                state.blocked |= limited;
                resumes |= limited;
            }
        }
        resumes
    }

    pub(super) fn chain_head(&self) -> u16 {
        self.chain.head()
    }

    /// Sends the current request to the engine, or answers it at once.
    fn begin(
        &mut self,
        index: usize,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<(), QueueError> {
        let Some(status_at) = status_address(&self.chain) else {
            self.counters.malformed_requests.increment();
            return self.give_up(index, queue, memory);
        };
        let request = parse(&self.shape(memory)?, self.request_limits())
            .and_then(|request| self.negotiated(request));
        let bytes = request.map_or(0, Request::transferred);
        self.buckets.take(self.now_ns, bytes);
        let durability = self.durability();
        let reply = Reply {
            queue: index,
            head: self.chain.head(),
            status_at,
            kind: request.map_or(RequestKind::Control, |request| kind(request, durability)),
            submitted_ns: self.now_ns,
        };
        self.queue_states[index].coalescer.submitted(reply.kind);
        if matches!(reply.kind, RequestKind::Flush | RequestKind::WriteThrough) {
            self.flushed(index);
        }
        match request {
            Err(refusal) => self.refuse(refusal, reply, queue, memory),
            Ok(Request::GetId) => {
                self.chain.write(memory, 0, &self.settings.serial)?;
                self.counters.get_ids.increment();
                let written = SERIAL_BYTES as u32 + 1;
                self.answer(reply, VIRTIO_BLK_S_OK as u8, written, queue, memory)
            }
            Ok(request) => {
                let pending = InFlightRequest {
                    reply,
                    request,
                    durability,
                    done: 0,
                    flushes: false,
                    copied: false,
                };
                self.submit(pending, memory)
            }
        }
    }

    /// The driver flushes on queue `index`: its writes on the other queues are probably what it
    /// waits for next.
    fn flushed(&mut self, index: usize) {
        for (other, state) in self.queue_states.iter_mut().enumerate() {
            if other != index {
                state.coalescer.flushed_elsewhere();
            }
        }
    }

    /// Sends a request to the engine, or through copies if O_DIRECT cannot take its buffers.
    fn submit(&mut self, pending: InFlightRequest, memory: &GuestRam) -> Result<(), QueueError> {
        let Some((token, mut buffers)) = self.in_flight.reserve(memory) else {
            // `take_requests` saw a free one.
            return Err(QueueError::Broken);
        };
        let gathered = match pending.request {
            Request::Read { len, .. } => buffers.gather(self.chain.writable(), 0, len as usize),
            Request::Write { len, .. } => {
                buffers.gather(self.chain.readable(), HEADER_BYTES, len as usize)
            }
            _ => Ok(()),
        };
        if let Err(error) = gathered {
            self.in_flight.release(token, buffers);
            return Err(error);
        }
        let fits = match self.disk.direct() {
            Direct::Aligned(align) => buffers.are_aligned(align),
            Direct::No => true,
        };
        if !fits {
            self.copy_in_parts(token, pending, buffers);
            return Ok(());
        }
        self.in_flight.submit(token, pending);
        self.engine.start(token, operation(&pending), buffers);
        Ok(())
    }

    fn refuse(
        &mut self,
        refusal: Refusal,
        reply: Reply,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<(), QueueError> {
        match refusal {
            Refusal::NoStatus | Refusal::Malformed => self.counters.malformed_requests.increment(),
            Refusal::Unsupported => self.counters.unsupported.increment(),
            Refusal::OutOfRange => self.counters.out_of_range.increment(),
            Refusal::ReadOnly => self.counters.read_only_violations.increment(),
        }
        self.answer(reply, refusal.status(), 1, queue, memory)
    }

    fn shape(&self, memory: &GuestRam) -> Result<Shape, QueueError> {
        let mut start = [0; 32];
        let readable = self.chain.readable_len();
        let known = readable.min(start.len());
        self.chain.read(memory, 0, &mut start[..known])?;
        Ok(Shape {
            readable,
            writable: self.chain.writable_len(),
            start,
        })
    }

    fn request_limits(&self) -> RequestLimits {
        RequestLimits {
            sectors: self.disk.sectors(),
            writable: self.disk.is_writable(),
            block_sectors: self.disk.block().bytes() / SECTOR_BYTES,
        }
    }

    /// Refuses a request of a type that the driver did not negotiate.
    fn negotiated(&self, request: Request) -> Result<Request, Refusal> {
        let feature = match request {
            Request::Discard { .. } => VIRTIO_BLK_F_DISCARD,
            Request::WriteZeroes { .. } => VIRTIO_BLK_F_WRITE_ZEROES,
            _ => return Ok(request),
        };
        if config::has(self.features, feature) {
            Ok(request)
        } else {
            Err(Refusal::Unsupported)
        }
    }
}

/// The last byte that the device writes.
fn status_address(chain: &Chain) -> Option<GuestAddress> {
    let last = chain.writable().last()?;
    // Cannot overflow: the span lies in guest memory and is not empty.
    Some(GuestAddress(
        last.address.0.wrapping_add(last.len as u64 - 1),
    ))
}

fn kind(request: Request, durability: Durability) -> RequestKind {
    match (request, durability) {
        (Request::Read { .. }, _) => RequestKind::Read,
        (Request::Write { .. }, Durability::Cached) => RequestKind::Write,
        (Request::Write { .. }, Durability::Durable) => RequestKind::WriteThrough,
        (Request::Flush, _) => RequestKind::Flush,
        _ => RequestKind::Control,
    }
}

/// What is left to do of a request.
pub(super) fn operation(pending: &InFlightRequest) -> Operation {
    let keep = FallocateFlags::KEEP_SIZE;
    match pending.request {
        _ if pending.flushes => Operation::Flush,
        Request::WriteZeroes { offset, .. } if pending.copied => Operation::Write {
            offset: offset + pending.done,
            durability: pending.durability,
        },
        Request::Read { offset, .. } => Operation::Read {
            offset: offset + pending.done,
        },
        Request::Write { offset, .. } => Operation::Write {
            offset: offset + pending.done,
            durability: pending.durability,
        },
        Request::Discard { offset, len }
        | Request::WriteZeroes {
            offset,
            len,
            unmap: Unmap::Allowed,
        } => Operation::Allocate {
            offset,
            len,
            mode: keep | FallocateFlags::PUNCH_HOLE,
        },
        Request::WriteZeroes { offset, len, .. } => Operation::Allocate {
            offset,
            len,
            mode: keep | FallocateFlags::ZERO_RANGE,
        },
        Request::Flush | Request::GetId => Operation::Flush,
    }
}

impl VirtioDevice for Blk {
    fn kind(&self) -> DeviceKind {
        DeviceKind {
            id: 2,
            class: 0x01_8000,
        }
    }

    fn queue_sizes(&self) -> &[u16] {
        &self.queue_sizes
    }

    fn features(&self) -> u64 {
        config::features(&self.disk, self.queue_sizes.len() as u16)
    }

    fn read_config(&self, offset: usize, data: &mut [u8]) {
        let space = config::space(&self.disk, self.queue_sizes.len() as u16, self.cache);
        for (byte, value) in data.iter_mut().zip(space.iter().skip(offset)) {
            *byte = *value;
        }
    }

    fn write_config(&mut self, offset: usize, data: &[u8]) -> bool {
        let Some(cache) = self.cache_written(offset, data) else {
            return false;
        };
        let changed = self.set_cache(cache);
        if changed.is_err() {
            self.counters.io_errors.increment();
        }
        changed.is_ok()
    }

    fn start(&mut self, features: u64) {
        self.features = features;
    }

    fn stop(&mut self) {
        if self.in_flight.any() {
            self.counters.drained.increment();
        }
        self.engine.drain();
        self.in_flight.forget();
        self.slow.forget();
        let now_ns = self.clock.now_ns();
        for state in &mut self.queue_states {
            state.coalescer.reset(now_ns);
            (state.blocked, state.limited, state.delivers) = (false, false, false);
        }
    }

    fn reset(&mut self) {
        self.cache = self.settings.cache;
    }

    fn process(&mut self, index: u16, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        self.now_ns = self.clock.now_ns();
        let taken = self.take_requests(index.into(), queues)?;
        let settled = self.submit_and_complete(queues)?;
        Ok(taken.or(settled))
    }

    fn backend_ready(&mut self, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        self.now_ns = self.clock.now_ns();
        self.engine.acknowledge();
        let mut progress = self.submit_and_complete(queues)?;
        let mut resumed = false;
        for index in 0..self.queue_states.len() {
            if std::mem::take(&mut self.queue_states[index].blocked) {
                let taken = self.take_requests(index, queues)?;
                // The next call continues with what the budget cut off.
                self.queue_states[index].blocked |= taken == Progress::More;
                progress = progress.or(taken);
                resumed = true;
            }
        }
        if resumed {
            progress = progress.or(self.submit_and_complete(queues)?);
        }
        Ok(progress)
    }

    fn interest(&self) -> Interest {
        Interest {
            readable: self.engine.event().is_some(),
            writable: false,
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        let deadlines = self
            .queue_states
            .iter()
            .filter_map(|it| it.coalescer.deadline());
        let limited = self.queue_states.iter().any(|it| it.limited);
        let allowed = limited.then(|| self.buckets.ready_at_ns());
        // An engine without an event does not call back, so what this iteration leaves is due at
        // once.
        let parts = self.slow.can_begin().then_some(0);
        let all = deadlines.chain(self.engine.due_ns()).chain(allowed);
        all.chain(parts).min()
    }

    fn deadline_passed(&mut self, queues: &mut Queues<'_>) -> Result<(), QueueError> {
        let now_ns = self.clock.now_ns();
        let resumes = self.resume_limited(now_ns);
        let is_due = self.engine.due_ns().is_some_and(|due_ns| due_ns <= now_ns);
        if resumes || is_due || self.slow.can_begin() {
            // Work that the budget cut off is done here too, and bounded: no more requests than the
            // queues have entries.
            for _ in 0..MAX_IN_FLIGHT / BATCH {
                if self.backend_ready(queues)? == Progress::Done {
                    break;
                }
            }
            if resumes && !self.in_flight.are_full() {
                // The rest comes with the next call, at once.
                for state in &mut self.queue_states {
                    state.limited |= state.blocked;
                }
            }
        }
        for (index, state) in self.queue_states.iter_mut().enumerate() {
            if state.coalescer.expired(now_ns) == Decision::Deliver
                && let Some((queue, _)) = queues.get(index)
            {
                queue.advise(Decision::Deliver);
                self.view.publish(index, &state.coalescer);
            }
        }
        Ok(())
    }

    fn take_config_change(&mut self) -> bool {
        std::mem::take(&mut self.resized)
    }

    fn counters(&self) -> Arc<dyn CounterSource> {
        Arc::new(AllCounters {
            device: Arc::clone(&self.counters),
            coalesce: Arc::clone(&self.view),
        })
    }
}
