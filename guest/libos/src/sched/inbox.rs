//! How other cores and interrupt handlers make a core's threads ready.
//!
//! No wake-up is lost between a core's last look and its halt: the core sets
//! its flag, then looks into the inbox with interrupts off, then halts; a waker
//! fills the inbox, then looks at the flag. One of the two sees the other, since
//! both put a full fence between their store and their load. A waker on the
//! core itself can only be an interrupt handler, which ends the halt anyway.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use tare_hal::clock;
use tare_hal::cpu;
use tare_hal::lock::IrqLock;

use super::stats::Counter;

/// Where threads for one core arrive: handles of type `T`.
pub(crate) struct Inbox<T> {
    threads: IrqLock<Vec<T>>,
    /// Not empty, readable without the lock.
    filled: AtomicBool,
    /// The core has announced that it halts.
    halted: AtomicBool,
    /// Counter when somebody found the core halted and undertook to wake it; 0
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
            filled: AtomicBool::new(false),
            halted: AtomicBool::new(false),
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
            self.filled.store(true, Ordering::Relaxed);
        }
        if core == cpu::index() {
            return Left::Awake;
        }
        fence(Ordering::SeqCst);
        if self.halted.load(Ordering::Relaxed) && self.halted.swap(false, Ordering::Relaxed) {
            self.rung.store(clock::ticks(), Ordering::Relaxed);
            return Left::Halted;
        }
        own.ipis_skipped.add(1);
        Left::Awake
    }

    /// Whether threads have arrived.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Moves what has arrived into `ready`. The inbox keeps its memory: who fills it is often an
    /// interrupt handler, which then need not allocate.
    pub(crate) fn take_into(&self, ready: &mut VecDeque<T>) {
        let mut threads = self.threads.lock();
        self.filled.store(false, Ordering::Relaxed);
        self.delivered.add(threads.len() as u64);
        for thread in threads.drain(..) {
            ready.push_back(thread);
        }
    }

    /// Announces a halt; what arrives from now on comes with an interrupt.
    #[inline]
    pub(crate) fn announce_halt(&self) {
        self.halted.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The halt is over, or was not begun; how long ago another core undertook
    /// to end it, if one did.
    #[inline]
    pub(crate) fn end_halt(&self) -> Option<u64> {
        self.halted.store(false, Ordering::Relaxed);
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
