//! How other cores and interrupt handlers make a core's threads ready.
//!
//! No wake-up is lost between a core's last look and its halt: see [`Doorbell`]. A waker on the
//! core itself can only be an interrupt handler, which ends the halt anyway.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tare_hal::clock;
use tare_hal::cpu::{self, Doorbell};
use tare_hal::lock::IrqLock;

use super::stats::Counter;

/// Where threads for one core arrive: handles of type `T`.
pub(crate) struct Inbox<T> {
    threads: IrqLock<Vec<T>>,
    /// Whether there are some, readable without the lock, and whether the core halts.
    bell: Doorbell,
    /// Counter when a waker found the core halted and undertook to wake it; 0
    /// once the core has seen it.
    rung: AtomicU64,
    delivered: Counter,
    pub(crate) ipis_sent: Counter,
    pub(crate) ipis_skipped: Counter,
    pub(crate) ipis_shared: Counter,
}

/// What a thread was left for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// A core that will find it by itself.
    Awake,
    /// A core that must be sent an interrupt.
    Halted,
}

impl<T> Inbox<T> {
    pub(super) const fn new() -> Self {
        Self {
            threads: IrqLock::new(Vec::new()),
            bell: Doorbell::new(AtomicBool::new(false), AtomicBool::new(false)),
            rung: AtomicU64::new(0),
            delivered: Counter::new(),
            ipis_sent: Counter::new(),
            ipis_skipped: Counter::new(),
            ipis_shared: Counter::new(),
        }
    }

    /// Leaves `thread` for `core`, whose inbox this is; whoever finds that the core halts
    /// is the one to wake it. `own` is the inbox of the core that runs this, which counts.
    pub(super) fn leave(&self, thread: T, core: usize, own: &Self) -> Left {
        {
            let mut threads = self.threads.lock();
            threads.push(thread);
            self.bell.fill();
        }
        if core == cpu::index() {
            return Left::Awake;
        }
        if self.bell.ring() {
            self.rung.store(clock::ticks(), Ordering::Relaxed);
            return Left::Halted;
        }
        own.ipis_skipped.add(1);
        Left::Awake
    }

    /// Whether threads have arrived.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.bell.is_filled()
    }

    /// Moves what has arrived into `ready`. The inbox keeps its memory: who fills it is often an
    /// interrupt handler, which then need not allocate.
    pub(crate) fn take_into(&self, ready: &mut VecDeque<T>) {
        let mut threads = self.threads.lock();
        self.bell.empty();
        self.delivered.add(threads.len() as u64);
        for thread in threads.drain(..) {
            ready.push_back(thread);
        }
    }

    /// Announces a halt or a program's run, with interrupts off; what arrives from now on comes with an interrupt.
    #[inline]
    pub(crate) fn announce_halt(&self) {
        self.bell.announce_halt();
    }

    /// The halt is over, or was not begun; how long ago another core undertook
    /// to end it, if one did.
    #[inline]
    pub(crate) fn end_halt(&self) -> Option<u64> {
        self.bell.end_halt();
        match self.rung.load(Ordering::Relaxed) {
            0 => None,
            rung => {
                self.rung.store(0, Ordering::Relaxed);
                Some(clock::since_ns(rung))
            }
        }
    }

    /// Threads taken so far.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.get()
    }
}
