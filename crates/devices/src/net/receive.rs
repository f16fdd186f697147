//! From the link to the guest's receive queue (virtio 1.2, 5.1.6.3, 5.1.6.4).

use super::{BATCH, HEADER_LEN, Link, LinkError, Net, NetHeader, RX};
use crate::GuestRam;
use crate::virtio::{Chain, Progress, QueueError, Queues, Virtqueue};

/// What happened to the link's oldest frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    /// It is in the guest's buffers; its bytes.
    Placed(usize),
    /// The guest can never hold or parse it: dropped.
    Misfit(usize),
    /// The guest has no buffers now: the frame stays in the link.
    Starved,
    /// The link has none.
    Empty,
}

/// Chains that one frame goes into; reused from frame to frame.
#[derive(Default)]
pub(super) struct Buffers {
    first: Chain,
    further: Chain,
    /// Head and bytes written of each chain.
    filled: Vec<(u16, u32)>,
}

/// Whether a frame may go into several chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    OneBuffer,
    Merged,
}

/// Most frames that the guest sees at once. What a client writes together arrives at the link
/// together. A guest that saw only the beginning would answer in two parts, and the peer may hold
/// the second part back (Nagle's rule).
const TOGETHER: usize = 32;

impl<L: Link> Net<L> {
    /// Receives up to a batch.
    pub(super) fn receive(&mut self, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        let Some((queue, memory)) = queues.get(RX.into()) else {
            self.rx_starved = true;
            return Ok(Progress::Done);
        };
        self.rx_starved = false;
        queue.disable_notification(memory)?;
        let received = self.receive_batch(queue, memory);
        queue.publish(memory)?;
        received
    }

    fn receive_batch(
        &mut self,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<Progress, QueueError> {
        let now_ns = self.limiter.look();
        for frame in 1..=BATCH {
            let ready = self.limiter.rx.is_ready(now_ns);
            let waits = !ready && self.has_frame();
            self.limiter.rx.waits = waits;
            if waits {
                self.counters.rx_limited.increment();
                return Ok(Progress::Done);
            }
            if !ready {
                return Ok(Progress::Done);
            }
            match self.receive_next(queue, memory)? {
                Received::Placed(bytes) | Received::Misfit(bytes) => {
                    self.limiter.rx.take(now_ns, bytes);
                    self.link.consume();
                    if frame % TOGETHER == 0 {
                        queue.publish(memory)?;
                    }
                }
                Received::Empty => return Ok(Progress::Done),
                Received::Starved => {
                    self.rx_starved = true;
                    self.counters.rx_backpressure.increment();
                    return Ok(Progress::Done);
                }
            }
        }
        Ok(Progress::More)
    }

    fn receive_next(
        &mut self,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<Received, QueueError> {
        if self.link_is_down() {
            return Ok(Received::Empty);
        }
        let offload = self.link.features().offload;
        let frame = match self.link.peek() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(Received::Empty),
            Err(error) => return Ok(self.receive_failed(&error)),
        };
        let len = frame.bytes.len();
        let outcome = match self.negotiated.rx_header(frame.header, offload) {
            Some(header) => {
                let spread = if self.negotiated.merges_buffers() {
                    Spread::Merged
                } else {
                    Spread::OneBuffer
                };
                self.buffers
                    .place(queue, memory, header, frame.bytes, spread)?
            }
            None => Received::Misfit(len),
        };
        match outcome {
            Received::Placed(_) => {
                self.counters.rx_frames.increment();
                self.counters.rx_bytes.add(len as u64);
            }
            Received::Misfit(_) => self.counters.rx_dropped.increment(),
            Received::Starved | Received::Empty => {}
        }
        Ok(outcome)
    }

    /// Whether the link has a frame for the guest. A link that fails goes down here.
    fn has_frame(&mut self) -> bool {
        if self.link_is_down() {
            return false;
        }
        match self.link.peek().map(|frame| frame.is_some()) {
            Ok(some) => some,
            Err(error) => {
                self.link_failed(&error);
                false
            }
        }
    }

    fn receive_failed(&mut self, error: &LinkError) -> Received {
        self.link_failed(error);
        Received::Empty
    }
}

impl Buffers {
    /// Copies a frame into as many chains as it needs; the driver sees them all with the queue's
    /// next [`publish`](Virtqueue::publish). If they do not suffice, all stay where they were.
    fn place(
        &mut self,
        queue: &mut Virtqueue,
        memory: &GuestRam,
        header: NetHeader,
        frame: &[u8],
        spread: Spread,
    ) -> Result<Received, QueueError> {
        self.filled.clear();
        let mut rest = frame;
        loop {
            if self.filled.len() == usize::from(queue.size()) {
                return Ok(self.give_up(queue, Received::Misfit(frame.len())));
            }
            let (chain, offset) = match self.filled.len() {
                0 => (&mut self.first, HEADER_LEN),
                _ => (&mut self.further, 0),
            };
            if !next_buffer(queue, memory, chain)? {
                return Ok(self.give_up(queue, Received::Starved));
            }
            let room = chain.writable_len().checked_sub(offset);
            let part = room.ok_or(QueueError::TooShort)?.min(rest.len());
            chain.write(memory, offset, &rest[..part])?;
            self.filled.push((chain.head(), (offset + part) as u32));
            rest = &rest[part..];
            if rest.is_empty() {
                break;
            }
            if spread == Spread::OneBuffer {
                return Ok(self.give_up(queue, Received::Misfit(frame.len())));
            }
        }
        let header = NetHeader {
            num_buffers: self.filled.len() as u16,
            ..header
        };
        self.first.write(memory, 0, &header.to_bytes())?;
        queue.stage(memory, &self.filled)?;
        Ok(Received::Placed(frame.len()))
    }

    fn give_up(&self, queue: &mut Virtqueue, why: Received) -> Received {
        queue.unpop(self.filled.len() as u16);
        why
    }
}

/// Takes the next receive buffer; if there is none, requests a notification for the next one.
fn next_buffer(
    queue: &mut Virtqueue,
    memory: &GuestRam,
    chain: &mut Chain,
) -> Result<bool, QueueError> {
    let popped = queue.pop_or_ask(memory, chain)?;
    if popped && chain.readable_len() != 0 {
        return Err(QueueError::Direction);
    }
    Ok(popped)
}
