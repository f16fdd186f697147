//! The path of a request from the engine back to its queue: its result, its status byte, and
//! whether it causes an interrupt.

use std::io;

use tare_policy::coalesce::Decision;
use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK};
use vm_memory::Bytes;

use super::device::operation;
use super::in_flight::{InFlightRequest, Reply};
use super::io_engine::{Durability, Finished};
use super::{Blk, Buffers, Request};
use crate::GuestRam;
use crate::virtio::{Progress, QueueError, Queues, Virtqueue};

impl Blk {
    /// Submits what was started, answers what has ended, and tells the coalescers which completions
    /// the driver will see.
    pub(super) fn submit_and_complete(
        &mut self,
        queues: &mut Queues<'_>,
    ) -> Result<Progress, QueueError> {
        let mut progress = Progress::Done;
        self.start_parts(queues)?;
        if self.engine.submit().is_err() {
            // The kernel is short of memory: what was started waits for the next call.
            progress = Progress::More;
        }
        while let Some(finished) = self.engine.finished() {
            progress = progress.or(self.complete(finished, queues)?);
        }
        if self.slow.can_begin() {
            progress = Progress::More;
        }
        let now_ns = self.now_ns;
        for (index, state) in self.queue_states.iter_mut().enumerate() {
            let delivers = std::mem::take(&mut state.delivers);
            if delivers && let Some((queue, _)) = queues.get(index) {
                queue.advise(Decision::Deliver);
                state.coalescer.caught_up(now_ns);
            }
            if std::mem::take(&mut state.counted) || delivers {
                self.view.publish(index, &state.coalescer);
            }
        }
        Ok(progress)
    }

    fn complete(
        &mut self,
        finished: Finished,
        queues: &mut Queues<'_>,
    ) -> Result<Progress, QueueError> {
        let Some(mut pending) = self.in_flight.complete(finished.token) else {
            return Ok(Progress::Done);
        };
        let mut buffers = finished.buffers;
        let Some((queue, memory)) = queues.get(pending.reply.queue) else {
            if let Some(own) = buffers.take_own() {
                self.slow.keep(own);
            }
            self.release(finished.token, buffers);
            return Ok(Progress::Done);
        };
        if let Some(own) = buffers.take_own() {
            let read = finished.result.as_ref().ok();
            let copied = self.part_ended(finished.token, &pending, memory, own, read);
            if let Err(error) = copied {
                self.release(finished.token, buffers);
                return Err(error);
            }
        }
        let state = self.judge(&mut pending, finished.result);
        if let RequestState::Partial(done) = state {
            self.in_flight.submit(finished.token, pending);
            if pending.copied && !pending.flushes {
                self.slow.wait(finished.token, buffers);
            } else {
                self.counters.resumed.increment();
                buffers.advance(done);
                let rest = operation(&pending);
                self.engine.start(finished.token, rest, buffers);
            }
            return Ok(Progress::More);
        }
        self.release(finished.token, buffers);
        match state {
            RequestState::Failed(error) => self.fail(&pending, &error, queue, memory)?,
            _ => self.succeed(&pending, queue, memory)?,
        }
        Ok(Progress::Done)
    }

    pub(super) fn release(&mut self, token: usize, buffers: Buffers) {
        self.slow.end(token);
        self.in_flight.release(token, buffers);
    }

    /// Turns a result of the engine into the state of the request.
    fn judge(&mut self, pending: &mut InFlightRequest, result: io::Result<usize>) -> RequestState {
        let transfers = transfers(pending);
        match (pending.request, result) {
            (_, Err(error)) if may_be_repeated(&error) => RequestState::Partial(0),
            (_, Ok(_)) if pending.flushes => RequestState::Done,
            (_, Err(error)) if pending.flushes => RequestState::Failed(error),
            (_, Ok(done)) if transfers.is_some() => {
                let len = transfers.unwrap_or_default();
                pending.done += done as u64;
                match done {
                    _ if pending.done >= len && self.owes_flush(pending) => {
                        RequestState::Partial(done)
                    }
                    _ if pending.done >= len => RequestState::Done,
                    0 => RequestState::Failed(io::ErrorKind::UnexpectedEof.into()),
                    done => RequestState::Partial(done),
                }
            }
            (_, Ok(_)) if self.owes_flush(pending) => RequestState::Partial(0),
            (_, Ok(_)) => RequestState::Done,
            // A hint that the file system does not understand.
            (Request::Discard { .. }, Err(error)) if is_unsupported(&error) => RequestState::Done,
            // Writes zeros instead.
            (Request::WriteZeroes { .. }, Err(error))
                if is_unsupported(&error) && !pending.copied =>
            {
                pending.copied = true;
                RequestState::Partial(0)
            }
            (_, Err(error)) => RequestState::Failed(error),
        }
    }

    pub(super) fn succeed(
        &mut self,
        pending: &InFlightRequest,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<(), QueueError> {
        let counters = &self.counters;
        let mut written = 1;
        let writes = matches!(
            pending.request,
            Request::Write { .. } | Request::WriteZeroes { .. }
        );
        if writes && pending.durability == Durability::Durable {
            counters.durable_writes.increment();
        }
        match pending.request {
            Request::Read { len, .. } => {
                counters.reads.increment();
                counters.read_bytes.add(len);
                written += len as u32;
            }
            Request::Write { len, .. } => {
                counters.writes.increment();
                counters.write_bytes.add(len);
            }
            Request::Flush => counters.flushes.increment(),
            Request::Discard { .. } => counters.discards.increment(),
            Request::WriteZeroes { .. } => counters.write_zeroes.increment(),
            Request::GetId => {}
        }
        self.answer(pending.reply, VIRTIO_BLK_S_OK as u8, written, queue, memory)
    }

    pub(super) fn fail(
        &mut self,
        pending: &InFlightRequest,
        error: &io::Error,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<(), QueueError> {
        self.counters.io_errors.increment();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                self.counters.no_space.increment();
            }
            io::ErrorKind::UnexpectedEof => self.counters.truncated.increment(),
            _ => {}
        }
        self.answer(pending.reply, VIRTIO_BLK_S_IOERR as u8, 1, queue, memory)
    }

    /// Writes the status, gives the chain back, and decides whether to interrupt the
    /// driver now.
    pub(super) fn answer(
        &mut self,
        reply: Reply,
        status: u8,
        written: u32,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<(), QueueError> {
        memory.write_obj(status, reply.status_at)?;
        queue.complete(memory, reply.head, written)?;
        let now_ns = self.now_ns;
        let state = &mut self.queue_states[reply.queue];
        self.counters.in_flight_sum.add(state.coalescer.in_flight());
        state.counted = true;
        let latency_ns = now_ns.saturating_sub(reply.submitted_ns);
        let decision = state.coalescer.completed(now_ns, reply.kind, latency_ns);
        state.delivers |= decision == Decision::Deliver;
        queue.advise(decision);
        Ok(())
    }

    /// Gives back a chain without room for a status, at once.
    pub(super) fn give_up(
        &mut self,
        index: usize,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<(), QueueError> {
        let head = self.chain_head();
        queue.complete(memory, head, 0)?;
        self.queue_states[index].delivers = true;
        Ok(())
    }
}

enum RequestState {
    Done,
    /// This many further bytes are done.
    Partial(usize),
    Failed(io::Error),
}

/// Bytes that a request moves by reads or writes of the file.
fn transfers(pending: &InFlightRequest) -> Option<u64> {
    match pending.request {
        Request::Read { len, .. } | Request::Write { len, .. } => Some(len),
        Request::WriteZeroes { len, .. } if pending.copied => Some(len),
        _ => None,
    }
}

fn may_be_repeated(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported
}
