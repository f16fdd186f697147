//! A thread of the program as the others see it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use tare_libos::sync::SpinLock;
use tare_libos::thread::{self, Thread as Waiter};

use crate::signals::Mask;

#[cfg(target_os = "none")]
pub(crate) use tare_hal::user::Registers;

/// The registers of tests.
#[cfg(not(target_os = "none"))]
#[derive(Clone, Copy, Debug, Default)]
#[rustfmt::skip]
pub(crate) struct Registers {
    pub(crate) rax: u64, pub(crate) rbx: u64, pub(crate) rcx: u64, pub(crate) rdx: u64,
    pub(crate) rsi: u64, pub(crate) rdi: u64, pub(crate) rbp: u64, pub(crate) rsp: u64,
    pub(crate) r8: u64, pub(crate) r9: u64, pub(crate) r10: u64, pub(crate) r11: u64,
    pub(crate) r12: u64, pub(crate) r13: u64, pub(crate) r14: u64, pub(crate) r15: u64,
    pub(crate) rip: u64, pub(crate) rflags: u64, pub(crate) fs_base: u64,
}

/// A stack for signal handlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SignalStack {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
}

/// What a thread is to the others.
pub(crate) struct Thread {
    pub(crate) number: u32,
    /// The thread of the library OS that runs it.
    waiter: SpinLock<Option<Waiter>>,
    /// Where 0 goes when it ends.
    pub(crate) clear_at_end: AtomicU64,
    /// Signals that wait for this thread, and those that it does not take now.
    pub(crate) pending: AtomicU64,
    pub(crate) blocked: AtomicU64,
    /// What is blocked again after the next handler, while `sigsuspend` waits.
    pub(crate) saved_mask: SpinLock<Option<u64>>,
    pub(crate) signal_stack: SpinLock<SignalStack>,
    /// Its name, with zeros behind it.
    pub(crate) name: SpinLock<[u8; 16]>,
}

impl Thread {
    pub(crate) fn new(number: u32, blocked: u64, name: [u8; 16]) -> Arc<Self> {
        Arc::new(Self {
            number,
            waiter: SpinLock::new(None),
            clear_at_end: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            blocked: AtomicU64::new(blocked),
            saved_mask: SpinLock::new(None),
            signal_stack: SpinLock::new(SignalStack::default()),
            name: SpinLock::new(name),
        })
    }

    /// Called by the thread that runs it.
    pub(crate) fn begin(&self) {
        *self.waiter.lock() = Some(thread::current());
    }

    /// Makes it look for signals: ends its wait, or its run on another core.
    pub(crate) fn interrupt(&self) {
        let waiter = self.waiter.lock().clone();
        if let Some(waiter) = waiter {
            waiter.unpark();
            #[cfg(target_os = "none")]
            if waiter.core() != tare_hal::cpu::index() {
                tare_hal::ipi::wake(waiter.core());
            }
        }
    }

    /// Takes back the mask of a call that a signal interrupted which another thread took;
    /// says whether the call had one.
    pub(crate) fn restore_mask(&self) -> bool {
        let saved = self.saved_mask.lock().take();
        if let Some(mask) = saved {
            self.blocked.store(mask, Ordering::Relaxed);
        }
        saved.is_some()
    }

    pub(crate) fn mask(&self) -> Mask {
        Mask(self.blocked.load(Ordering::Relaxed))
    }
}

/// What a new thread begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewThread {
    pub(crate) stack: u64,
    pub(crate) tls: Option<u64>,
    pub(crate) parent_number: Option<u64>,
    pub(crate) child_number: Option<u64>,
    pub(crate) clear_at_end: u64,
}
