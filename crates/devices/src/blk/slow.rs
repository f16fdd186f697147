//! Requests that go through the device's own memory in parts: buffers that O_DIRECT cannot take,
//! and zeros for a file system that cannot make them.
//!
//! Parts go through the engine like every request, so the I/O thread does not wait for a disk.
//! [`MOST_PARTS`] parts of [`PART_BYTES`] bound the memory and the bytes that one iteration of the
//! I/O loop copies. Requests take turns: one that had a part waits behind those that had none.

use std::collections::{BTreeMap, VecDeque};

use super::aligned::Aligned;
use super::device::operation;
use super::in_flight::InFlightRequest;
use super::request::HEADER_BYTES;
use super::{Blk, Buffers, Operation, Request};
use crate::GuestRam;
use crate::virtio::{QueueError, Queues, Span, copy_from, copy_to};

/// Bytes of a part: a multiple of every block size.
pub(super) const PART_BYTES: usize = 256 << 10;
/// Parts in the engine at a time.
pub(super) const MOST_PARTS: usize = 8;

/// Aligned memory, made when it is first needed, and the requests that wait for it.
#[derive(Default)]
pub(super) struct Slow {
    idle: Vec<Aligned>,
    made: usize,
    waiting: VecDeque<(usize, Buffers)>,
    /// Where a request's data is in guest memory, by token.
    places: BTreeMap<usize, Remainder>,
}

/// The bytes from `skip` on of `spans`.
struct Remainder {
    spans: Vec<Span>,
    skip: usize,
}

impl Slow {
    /// Queues the request for its next part, when there is memory.
    pub(super) fn wait(&mut self, token: usize, buffers: Buffers) {
        self.waiting.push_back((token, buffers));
    }

    /// Whether a part can begin.
    pub(super) fn can_begin(&self) -> bool {
        !self.waiting.is_empty() && (!self.idle.is_empty() || self.made < MOST_PARTS)
    }

    /// The request is answered.
    pub(super) fn end(&mut self, token: usize) {
        self.places.remove(&token);
    }

    /// Keeps the memory of a part that the engine has completed.
    pub(super) fn keep(&mut self, own: Aligned) {
        self.idle.push(own);
    }

    /// Forgets all requests: the engine has none of them any more.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.places.clear();
        self.made = self.idle.len();
    }

    fn next(&mut self) -> Option<(usize, Buffers, Aligned)> {
        if !self.can_begin() {
            return None;
        }
        let own = self.idle.pop().unwrap_or_else(|| {
            self.made += 1;
            Aligned::zeroed(PART_BYTES)
        });
        let (token, buffers) = self.waiting.pop_front()?;
        Some((token, buffers, own))
    }
}

impl Blk {
    /// Copies the data of the current request.
    pub(super) fn copy_in_parts(
        &mut self,
        token: usize,
        mut pending: InFlightRequest,
        mut buffers: Buffers,
    ) {
        self.counters.bounced.increment();
        let (spans, skip) = match pending.request {
            Request::Write { .. } => (self.chain.readable(), HEADER_BYTES),
            _ => (self.chain.writable(), 0),
        };
        let spans = spans.to_vec();
        pending.copied = true;
        buffers.clear();
        self.in_flight.submit(token, pending);
        self.slow.places.insert(token, Remainder { spans, skip });
        self.slow.wait(token, buffers);
    }

    /// Submits as many parts to the engine as there is memory for. Drops a request whose part
    /// cannot begin.
    pub(super) fn start_parts(&mut self, queues: &mut Queues<'_>) -> Result<(), QueueError> {
        while let Some((token, mut buffers, mut own)) = self.slow.next() {
            match self.prepare(token, queues, &mut own) {
                Ok(Some((part, operation))) => {
                    buffers.put_own(own, part);
                    self.engine.start(token, operation, buffers);
                }
                nothing => {
                    self.slow.keep(own);
                    if self.in_flight.complete(token).is_some() {
                        self.release(token, buffers);
                    }
                    nothing?;
                }
            }
        }
        Ok(())
    }

    /// Prepares the next part of a request in `own`; `None` if its queue is gone.
    fn prepare(
        &self,
        token: usize,
        queues: &mut Queues<'_>,
        own: &mut Aligned,
    ) -> Result<Option<(usize, Operation)>, QueueError> {
        let Some(pending) = self.in_flight.get(token) else {
            return Ok(None);
        };
        let Some((_, memory)) = queues.get(pending.reply.queue) else {
            return Ok(None);
        };
        let part = self.fill(token, pending, memory, own)?;
        Ok(Some((part, operation(pending))))
    }

    /// Prepares the next part of a request; its length.
    fn fill(
        &self,
        token: usize,
        pending: &InFlightRequest,
        memory: &GuestRam,
        own: &mut Aligned,
    ) -> Result<usize, QueueError> {
        let (Request::Read { len, .. }
        | Request::Write { len, .. }
        | Request::WriteZeroes { len, .. }) = pending.request
        else {
            return Ok(0);
        };
        let part = len.saturating_sub(pending.done).min(PART_BYTES as u64) as usize;
        let bytes = &mut own.as_mut_slice()[..part];
        match pending.request {
            Request::Read { .. } => {}
            Request::Write { .. } => {
                let place = self.slow.places.get(&token).ok_or(QueueError::Broken)?;
                let offset = place.skip + pending.done as usize;
                copy_from(&place.spans, memory, offset, bytes)?;
            }
            _ => bytes.fill(0),
        }
        Ok(part)
    }

    /// The engine has completed a part, and has read `read` bytes.
    pub(super) fn part_ended(
        &mut self,
        token: usize,
        pending: &InFlightRequest,
        memory: &GuestRam,
        own: Aligned,
        read: Option<&usize>,
    ) -> Result<(), QueueError> {
        let copied = match (pending.request, read) {
            (Request::Read { .. }, Some(read)) => {
                let place = self.slow.places.get(&token).ok_or(QueueError::Broken)?;
                let bytes = own.as_slice().get(..*read).unwrap_or_default();
                copy_to(&place.spans, memory, pending.done as usize, bytes)
            }
            _ => Ok(()),
        };
        self.slow.keep(own);
        copied
    }
}

#[cfg(test)]
mod tests {
    use tare_policy::coalesce::{RequestKind, Settings};
    use vm_memory::GuestAddress;

    use super::*;
    use crate::blk::in_flight::Reply;
    use crate::blk::{
        Access, BlkSettings, Cache, Disk, Durability, MonotonicClock, QUEUE_SIZE, SERIAL_BYTES,
        SyncIoEngine,
    };
    use crate::virtio::{EventIdx, NO_VECTOR, QueueSettings, Virtqueue};

    fn device() -> Blk {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let settings = BlkSettings {
            serial: [0; SERIAL_BYTES],
            queues: 1,
            cache: Cache::Writeback,
            coalesce: Settings::default(),
            limits: Default::default(),
        };
        let engine = SyncIoEngine::new(file.try_clone().unwrap());
        let disk = Disk::from_file(file, "test", Access::ReadWrite).unwrap();
        Blk::new(settings, disk, Box::new(engine), Box::new(MonotonicClock))
    }

    fn queue(memory: &GuestRam) -> Virtqueue {
        let settings = QueueSettings {
            max_size: QUEUE_SIZE,
            size: 16,
            vector: NO_VECTOR,
            enabled: true,
            descriptors: 0x1000,
            available: 0x2000,
            used: 0x3000,
        };
        Virtqueue::resume(&settings, EventIdx::Absent, 0, QUEUE_SIZE, None, memory).unwrap()
    }

    /// A write that is copied; where its data is, is not known.
    fn offer(device: &mut Blk, memory: &GuestRam) {
        let write = Request::Write {
            offset: 0,
            len: 512,
        };
        offer_copied(device, memory, RequestKind::Write, write);
    }

    fn offer_copied(device: &mut Blk, memory: &GuestRam, kind: RequestKind, request: Request) {
        let (token, buffers) = device.in_flight.reserve(memory).unwrap();
        let pending = InFlightRequest {
            reply: Reply {
                queue: 0,
                head: 0,
                status_at: GuestAddress(0),
                kind,
                submitted_ns: 0,
            },
            request,
            durability: Durability::Cached,
            done: 0,
            flushes: false,
            copied: true,
        };
        device.in_flight.submit(token, pending);
        device.slow.wait(token, buffers);
    }

    #[test]
    fn a_part_that_cannot_begin_leaves_nothing_in_flight() {
        let memory = GuestRam::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        let mut device = device();
        for _ in 0..2 * MOST_PARTS {
            offer(&mut device, &memory);
            let mut live = [Some(queue(&memory))];
            let started = device.start_parts(&mut Queues::new(&memory, &mut live));
            assert!(matches!(started, Err(QueueError::Broken)));
            assert!(!device.in_flight.any());
            offer(&mut device, &memory);
            let gone = device.start_parts(&mut Queues::new(&memory, &mut []));
            assert!(gone.is_ok() && !device.in_flight.any());
        }
        assert_eq!((device.slow.made, device.slow.idle.len()), (1, 1));
    }

    #[test]
    fn what_ends_when_its_queue_is_gone_leaves_nothing_in_flight() {
        let memory = GuestRam::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
        let mut device = device();
        for _ in 0..2 * MOST_PARTS {
            let read = Request::Read {
                offset: 0,
                len: 512,
            };
            offer_copied(&mut device, &memory, RequestKind::Read, read);
            let mut live = [Some(queue(&memory))];
            device
                .start_parts(&mut Queues::new(&memory, &mut live))
                .unwrap();
            assert!(device.in_flight.any(), "the engine has it");
            let gone = device.submit_and_complete(&mut Queues::new(&memory, &mut []));
            assert!(gone.is_ok() && !device.in_flight.any());
        }
        assert_eq!((device.slow.made, device.slow.idle.len()), (1, 1));
    }
}
