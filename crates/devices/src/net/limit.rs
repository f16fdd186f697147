//! Frames and bytes a second, in each direction. Without limits no clock is read.

use tare_policy::limit::{Buckets, NetLimits};

use crate::clock::Clock;

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

    /// Before a batch: reads the clock if there is a limit.
    pub(super) fn look(&mut self) -> u64 {
        if self.limits.any() {
            self.now_ns = self.clock.now_ns();
        }
        self.now_ns
    }

    /// The driver is gone, and its waiting frames with it.
    pub(super) fn forget(&mut self) {
        self.rx.waits = false;
        self.tx.waits = false;
    }

    /// The limits in force.
    pub(super) fn limits(&self) -> NetLimits {
        self.limits
    }

    /// The time now.
    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Sets other limits.
    pub(super) fn set(&mut self, limits: NetLimits) {
        let now_ns = self.clock.now_ns();
        self.limits = limits;
        for direction in [&mut self.rx, &mut self.tx] {
            let buckets = &mut direction.buckets;
            buckets.set(now_ns, limits.frames_per_s, limits.bytes_per_s);
        }
    }

    /// When a frame that waits may go on, if one waits.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
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

    /// Whether what waits may go on.
    pub(super) fn resumes(&self, now_ns: u64) -> bool {
        self.waits && self.buckets.is_ready(now_ns)
    }
}
