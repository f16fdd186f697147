//! A disk with its own latency: each operation takes at least that long, as on
//! slower storage.
//!
//! For weighing what happens at depths that a file in the host's cache never
//! shows, and for trying applications on slow storage. Operations do not wait for
//! each other: with N in flight, N end in each latency. It has no timer: the
//! I/O loop's timeout is [`IoEngine::due_ns`].

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::io_engine::{Finished, IoEngine, Operation};
use super::{Buffers, Clock, MAX_IN_FLIGHT};

/// Wraps `engine` so that its operations take at least `latency`; returns it unchanged if `latency`
/// is zero.
pub fn paced(
    engine: Box<dyn IoEngine>,
    latency: Duration,
    clock: Box<dyn Clock>,
) -> Box<dyn IoEngine> {
    let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
    match latency_ns {
        0 => engine,
        latency_ns => Box::new(Paced::new(engine, latency_ns, clock)),
    }
}

/// An I/O engine whose operations take at least the latency.
struct Paced {
    engine: Box<dyn IoEngine>,
    clock: Box<dyn Clock>,
    latency_ns: u64,
    /// When the operation of each token is due.
    due_ns: Vec<u64>,
    /// Operations that have ended and are not due yet, by due time.
    waiting: VecDeque<(u64, Finished)>,
}

impl Paced {
    fn new(engine: Box<dyn IoEngine>, latency_ns: u64, clock: Box<dyn Clock>) -> Self {
        Self {
            engine,
            clock,
            latency_ns,
            due_ns: vec![0; MAX_IN_FLIGHT],
            waiting: VecDeque::new(),
        }
    }

    /// Collects what has ended, until its time.
    fn gather(&mut self) {
        while let Some(finished) = self.engine.finished() {
            let due_ns = self.due_ns.get(finished.token).copied().unwrap_or(0);
            let place = self.waiting.partition_point(|(other, _)| *other <= due_ns);
            self.waiting.insert(place, (due_ns, finished));
        }
    }
}

impl IoEngine for Paced {
    fn start(&mut self, token: usize, operation: Operation, buffers: Buffers) {
        if let Some(due_ns) = self.due_ns.get_mut(token) {
            *due_ns = self.clock.now_ns().saturating_add(self.latency_ns);
        }
        self.engine.start(token, operation, buffers);
    }

    fn submit(&mut self) -> io::Result<()> {
        self.engine.submit()
    }

    fn finished(&mut self) -> Option<Finished> {
        self.gather();
        let due_ns = self.due_ns()?;
        if due_ns > self.clock.now_ns() {
            return None;
        }
        self.waiting.pop_front().map(|(_, finished)| finished)
    }

    /// The caller is about to stop using the disk: without latency from here on.
    fn wait(&mut self) {
        self.gather();
        if self.waiting.is_empty() {
            self.engine.wait();
            self.gather();
        }
        for (due_ns, _) in &mut self.waiting {
            *due_ns = 0;
        }
    }

    fn drain(&mut self) {
        self.engine.drain();
        self.waiting.clear();
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.engine.event()
    }

    fn acknowledge(&mut self) {
        self.engine.acknowledge();
    }

    fn due_ns(&self) -> Option<u64> {
        self.waiting.front().map(|(due_ns, _)| *due_ns)
    }
}
