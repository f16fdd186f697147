//! The device: one queue of buffers to fill.

use std::sync::Arc;

use super::{BATCH, Entropy, QUEUE_SIZE, REQUEST_LEN, RngCounters};
use crate::virtio::{Chain, DeviceKind, Progress, QueueError, Queues, VirtioDevice, Virtqueue};
use crate::{CounterSource, GuestRam};

/// An entropy device over a source.
pub struct Rng<E> {
    source: E,
    counters: Arc<RngCounters>,
    chain: Chain,
    bytes: [u8; REQUEST_LEN],
}

impl<E: Entropy> Rng<E> {
    /// A device over `source`.
    pub fn new(source: E) -> Self {
        Self {
            source,
            counters: Arc::default(),
            chain: Chain::default(),
            bytes: [0; REQUEST_LEN],
        }
    }

    /// Answers the current chain; returns the number of bytes written.
    fn answer(&mut self, memory: &GuestRam) -> Result<u32, QueueError> {
        let len = self.chain.writable_len().min(REQUEST_LEN);
        if len == 0 || self.chain.readable_len() != 0 {
            return Err(QueueError::Direction);
        }
        let bytes = &mut self.bytes[..len];
        if self.source.fill(bytes).is_err() {
            self.counters.source_errors.increment();
            return Ok(0);
        }
        self.chain.write(memory, 0, bytes)?;
        bytes.fill(0);
        self.counters.requests.increment();
        self.counters.bytes.add(len as u64);
        Ok(len as u32)
    }

    fn answer_batch(
        &mut self,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<Progress, QueueError> {
        queue.disable_notification(memory)?;
        for _ in 0..BATCH {
            if queue.pop(memory, &mut self.chain)? {
                let len = self.answer(memory)?;
                queue.complete(memory, self.chain.head(), len)?;
            } else if queue.enable_notification(memory)? {
                queue.disable_notification(memory)?;
            } else {
                return Ok(Progress::Done);
            }
        }
        Ok(Progress::More)
    }
}

impl<E: Entropy> VirtioDevice for Rng<E> {
    fn kind(&self) -> DeviceKind {
        DeviceKind {
            id: 4,
            class: 0x00_ff00,
        }
    }

    fn queue_sizes(&self) -> &[u16] {
        &[QUEUE_SIZE]
    }

    fn features(&self) -> u64 {
        0
    }

    fn start(&mut self, _features: u64) {}

    fn stop(&mut self) {}

    fn process(&mut self, index: u16, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        match queues.get(index.into()) {
            Some((queue, memory)) => self.answer_batch(queue, memory),
            None => Ok(Progress::Done),
        }
    }

    fn counters(&self) -> Arc<dyn CounterSource> {
        Arc::clone(&self.counters) as Arc<dyn CounterSource>
    }
}
