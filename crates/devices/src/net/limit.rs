//! Frames and bytes a second, in each direction. Without limits no clock is read.

use tare_policy::limit::{Buckets, NetLimits};

use super::{Link, Net};
use crate::clock::Clock;
use crate::virtio::{Progress, QueueError, Queues};

/// The limits in force, and what waits for them.
pub(super) struct Limiter {
    limits: NetLimits,
    clock: Box<dyn Clock>,
    /// The time, read once for each batch of frames.
    now_ns: u64,
    pub(super) rx: Direction,
    pub(super) tx: Direction,
}

/// One direction.
#[derive(Default)]
pub(super) struct Direction {
    buckets: Buckets,
    /// Frames wait for the limit.
    pub(super) waits: bool,
}

impl Limiter {
    pub(super) fn new(limits: NetLimits, clock: Box<dyn Clock>) -> Self {
        let direction = || Direction {
            buckets: limits.buckets(),
            waits: false,
        };
        Self {
            limits,
            clock,
            now_ns: 0,
            rx: direction(),
            tx: direction(),
        }
    }

    /// Before a batch.
    pub(super) fn look(&mut self) -> u64 {
        if self.limits.any() {
            self.now_ns = self.clock.now_ns();
        }
        self.now_ns
    }

    /// The driver is gone, and with it who waits.
    pub(super) fn forget(&mut self) {
        self.rx.waits = false;
        self.tx.waits = false;
    }

    fn set(&mut self, limits: NetLimits) {
        let now_ns = self.clock.now_ns();
        self.limits = limits;
        for direction in [&mut self.rx, &mut self.tx] {
            let buckets = &mut direction.buckets;
            buckets.set(now_ns, limits.frames_per_s, limits.bytes_per_s);
        }
    }

    fn deadline_ns(&self) -> Option<u64> {
        let waiting = [&self.rx, &self.tx].into_iter().filter(|it| it.waits);
        waiting.map(|it| it.buckets.ready_at_ns()).min()
    }
}

impl Direction {
    /// Whether a frame may begin.
    pub(super) fn is_ready(&self, now_ns: u64) -> bool {
        self.buckets.is_ready(now_ns)
    }

    /// A frame of `bytes` bytes begins.
    pub(super) fn take(&mut self, now_ns: u64, bytes: usize) {
        self.buckets.take(now_ns, bytes as u64);
    }

    fn resumes(&self, now_ns: u64) -> bool {
        self.waits && self.buckets.is_ready(now_ns)
    }
}

impl<L: Link> Net<L> {
    /// Changes the limits, at run time. Notify a queue afterwards: what waits goes on at
    /// the deadline, which may have passed.
    pub fn set_limits(&mut self, limits: NetLimits) {
        self.limiter.set(limits);
    }

    /// The limits in force.
    pub fn limits(&self) -> NetLimits {
        self.limiter.limits
    }

    /// When a frame that waits may go on, if one waits.
    pub(super) fn allowed_at_ns(&self) -> Option<u64> {
        self.limiter.deadline_ns()
    }

    /// That time may have come.
    pub(super) fn resume_limited(&mut self, queues: &mut Queues<'_>) -> Result<(), QueueError> {
        let now_ns = self.limiter.clock.now_ns();
        if self.limiter.tx.resumes(now_ns) {
            let sent = self.transmit(queues)?;
            // What is left of a batch comes with the next call, at once.
            self.limiter.tx.waits |= sent == Progress::More;
        }
        if self.limiter.rx.resumes(now_ns) {
            let received = self.receive(queues)?;
            self.limiter.rx.waits |= received == Progress::More;
        }
        Ok(())
    }
}
