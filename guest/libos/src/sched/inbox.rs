//! How other cores and interrupt handlers make a core's threads ready.
//!
//! No wake-up is lost between a core's last look and its halt: the core sets
//! its flag, then looks into the inbox with interrupts off, then halts; a waker
//! fills the inbox, then looks at the flag. One of the two sees the other, since
//! both put a full fence between their store and their load. A waker on the
//! core itself can only be an interrupt handler, which ends the halt anyway.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering, fence};

use tare_hal::cpu;
use tare_hal::ipi;
use tare_hal::lock::IrqLock;

use super::Thread;
use super::stats::Counter;

/// Where threads for one core arrive.
pub(crate) struct Mailbox {
    threads: IrqLock<Vec<Thread>>,
    /// Not empty, readable without the lock.
    filled: AtomicBool,
    /// The core has announced that it halts.
    halted: AtomicBool,
    delivered: Counter,
    pub(crate) ipis_sent: Counter,
    pub(crate) ipis_skipped: Counter,
}

/// One for each core.
pub(crate) static MAILBOXES: [Mailbox; cpu::MAX] = [const { Mailbox::new() }; cpu::MAX];

impl Mailbox {
    const fn new() -> Self {
        Self {
            threads: IrqLock::new(Vec::new()),
            filled: AtomicBool::new(false),
            halted: AtomicBool::new(false),
            delivered: Counter::new(),
            ipis_sent: Counter::new(),
            ipis_skipped: Counter::new(),
        }
    }

    /// Leaves `thread` for its core, and wakes the core if it halts.
    pub(crate) fn deliver(&self, thread: Thread) {
        let core = thread.core();
        {
            let mut threads = self.threads.lock();
            threads.push(thread);
            self.filled.store(true, Ordering::Relaxed);
        }
        if core == cpu::index() {
            return;
        }
        fence(Ordering::SeqCst);
        let own = &MAILBOXES[cpu::index()];
        if self.halted.load(Ordering::Relaxed) && self.halted.swap(false, Ordering::Relaxed) {
            own.ipis_sent.add(1);
            ipi::wake(core);
        } else {
            own.ipis_skipped.add(1);
        }
    }

    /// Whether threads have arrived.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Takes what has arrived.
    pub(crate) fn take(&self) -> Vec<Thread> {
        let mut threads = self.threads.lock();
        self.filled.store(false, Ordering::Relaxed);
        let taken = ::core::mem::take(&mut *threads);
        self.delivered.add(taken.len() as u64);
        taken
    }

    /// Announces a halt; what arrives from now on comes with an interrupt.
    #[inline]
    pub(crate) fn announce_halt(&self) {
        self.halted.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The halt is over, or was not begun.
    #[inline]
    pub(crate) fn end_halt(&self) {
        self.halted.store(false, Ordering::Relaxed);
    }

    /// Threads taken so far.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.get()
    }
}
