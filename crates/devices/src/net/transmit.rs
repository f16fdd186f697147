//! From the guest's transmit queue to the link (virtio 1.2, 5.1.6.2).

use super::{BATCH, HEADER_LEN, Link, LinkError, LinkOffload, Net, NetHeader, TX, checksum};
use crate::GuestRam;
use crate::virtio::{Progress, QueueError, Queues, Virtqueue};

/// What happened to the frame at the head of the queue.
enum Sent {
    /// It left the queue: sent or dropped.
    Taken,
    /// The link takes no more: the frame stays in the queue.
    Blocked,
    /// The queue is empty.
    Empty,
}

impl<L: Link> Net<L> {
    /// Sends up to a batch. Does nothing while the link is blocked.
    pub(super) fn transmit(&mut self, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        let Some((queue, memory)) = queues.get(TX.into()) else {
            return Ok(Progress::Done);
        };
        if self.tx_blocked {
            return Ok(Progress::Done);
        }
        let sent = self.send_batch(queue, memory);
        self.flush();
        self.tx_unfinished = matches!(sent, Ok(Progress::More));
        sent
    }

    /// Sends what is waiting: the link may take frames again, or the last call left some in the
    /// queue. Nothing else would send these, since the driver was not asked to notify.
    pub(super) fn resume_transmit(
        &mut self,
        queues: &mut Queues<'_>,
    ) -> Result<Progress, QueueError> {
        let was_blocked = std::mem::take(&mut self.tx_blocked);
        if was_blocked || self.tx_unfinished {
            self.flush();
            return self.transmit(queues);
        }
        if self.link.has_unsent() {
            self.flush();
        }
        Ok(Progress::Done)
    }

    fn send_batch(
        &mut self,
        queue: &mut Virtqueue,
        memory: &GuestRam,
    ) -> Result<Progress, QueueError> {
        queue.disable_notification(memory)?;
        let now_ns = self.limiter.look();
        for _ in 0..BATCH {
            let ready = self.limiter.tx.is_ready(now_ns);
            let waits = !ready && queue.has_waiting(memory)?;
            self.limiter.tx.waits = waits;
            if waits {
                self.counters.tx_limited.increment();
                return Ok(Progress::Done);
            }
            let sent = if ready {
                self.send_next(queue, memory)?
            } else {
                Sent::Empty
            };
            match sent {
                Sent::Taken => {
                    self.tx_taken = self.tx_taken.wrapping_add(1);
                    // Whatever happened to the frame, it took host time.
                    let bytes = self.chain.readable_len().saturating_sub(HEADER_LEN);
                    self.limiter.tx.take(now_ns, bytes);
                }
                Sent::Blocked => {
                    self.tx_blocked = true;
                    self.counters.tx_backpressure.increment();
                    return Ok(Progress::Done);
                }
                Sent::Empty if self.is_looked_at => return Ok(Progress::Done),
                Sent::Empty if queue.enable_notification(memory)? => {
                    queue.disable_notification(memory)?;
                }
                Sent::Empty => return Ok(Progress::Done),
            }
        }
        Ok(Progress::More)
    }

    fn send_next(&mut self, queue: &mut Virtqueue, memory: &GuestRam) -> Result<Sent, QueueError> {
        if !queue.pop(memory, &mut self.chain)? {
            return Ok(Sent::Empty);
        }
        if self.chain.writable_len() != 0 {
            return Err(QueueError::Direction);
        }
        let head = self.chain.head();
        match self.send_chain(memory) {
            Ok(true) => {}
            Ok(false) => {
                queue.unpop(1);
                return Ok(Sent::Blocked);
            }
            Err(Refused::Queue(error)) => return Err(error),
            Err(Refused::Link(error)) => {
                self.link_failed(&error);
                self.counters.tx_dropped.increment();
            }
            Err(Refused::Frame) => self.counters.tx_dropped.increment(),
        }
        queue.complete(memory, head, 0)?;
        Ok(Sent::Taken)
    }

    /// Sends the frame in the chain; `false` if the link is blocked.
    fn send_chain(&mut self, memory: &GuestRam) -> Result<bool, Refused> {
        let (header, len) = self.tx_frame(memory)?;
        if self.link_is_down() {
            return Err(Refused::Frame);
        }
        let plain = self.link.features().offload != LinkOffload::VnetHeader;
        let Some(room) = self.link.reserve(len)? else {
            return Ok(false);
        };
        let frame = room.get_mut(..len).ok_or(Refused::Frame)?;
        self.chain.read(memory, HEADER_LEN, frame)?;
        let carried = if plain {
            if header.needs_csum() && checksum::complete(&header, frame).is_some() {
                self.counters.checksums.increment();
            }
            NetHeader::default()
        } else {
            header
        };
        self.link.commit(&carried)?;
        self.counters.tx_frames.increment();
        self.counters.tx_bytes.add(len as u64);
        Ok(true)
    }

    /// Header and length of the frame in the chain, if they are valid.
    fn tx_frame(&self, memory: &GuestRam) -> Result<(NetHeader, usize), Refused> {
        let malformed = || {
            self.counters.malformed.increment();
            Refused::Frame
        };
        let len = self
            .chain
            .readable_len()
            .checked_sub(HEADER_LEN)
            .filter(|len| *len > 0)
            .ok_or_else(malformed)?;
        if len > self.link.features().max_frame {
            return Err(Refused::Frame);
        }
        let mut bytes = [0; HEADER_LEN];
        self.chain.read(memory, 0, &mut bytes)?;
        let header = NetHeader::from_bytes(&bytes);
        let header = self.negotiated.tx_header(header, len);
        Ok((header.ok_or_else(malformed)?, len))
    }

    fn flush(&mut self) {
        if self.link_is_down() {
            return;
        }
        if let Err(error) = self.link.flush() {
            self.link_failed(&error);
        }
    }
}

/// Why a frame did not reach the link.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("frame is not acceptable")]
    Frame,
}
