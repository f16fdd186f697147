//! A thread of the program as the others see it, and waiting.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use tare_libos::sync::SpinLock;
use tare_libos::thread::{self, Thread as Waiter};
use tare_libos::time::Instant;

use crate::errno::{Errno, Result};
use crate::files::{File, Open};
use crate::process::Process;
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

/// What a system call works with.
pub(crate) struct Context<'a> {
    pub(crate) process: &'a Arc<Process>,
    pub(crate) thread: &'a Arc<Thread>,
    pub(crate) registers: &'a mut Registers,
    /// Vector registers for the thread that this call starts.
    pub(crate) vectors: Vec<u8>,
    /// Bytes on their way; kept, so that a call need not allocate them.
    pub(crate) buffer: Vec<u8>,
}

impl Context<'_> {
    /// Calls `act` with another signal mask for the time of the call, if there is one. A
    /// handler that interrupts it runs with that mask; behind it the old one comes back.
    pub(crate) fn with_mask<R>(
        &self,
        mask: Option<Mask>,
        act: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        let Some(mask) = mask else {
            return act();
        };
        let blocked = &self.thread.blocked;
        let before = blocked.swap(mask.blockable().0, Ordering::Relaxed);
        let result = act();
        if matches!(result, Err(Errno::EINTR)) {
            *self.thread.saved_mask.lock() = Some(before);
        } else {
            blocked.store(before, Ordering::Relaxed);
        }
        result
    }

    /// Tries `act` until it is something else than EAGAIN, the deadline has passed
    /// (then EAGAIN), or a signal comes (EINTR). Looks again when a file may have
    /// changed.
    pub(crate) fn wait<R>(
        &self,
        files: &[&dyn File],
        deadline: Option<Instant>,
        mut act: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        let waiter = thread::current();
        let result = loop {
            files.iter().for_each(|file| file.watch(&waiter));
            let looked_ns = Instant::now().as_nanos();
            let result = act();
            if result.as_ref().err() != Some(&Errno::EAGAIN) {
                break result;
            }
            if self.process.has_signal(self.thread) {
                break Err(Errno::EINTR);
            }
            // What had passed before changes nothing any more: `act` has seen it.
            let times = files.iter().filter_map(|file| file.deadline_ns(looked_ns));
            let own = deadline.map(|deadline| deadline.as_nanos());
            match times.chain(own).min() {
                None => thread::park(),
                Some(_) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    break result;
                }
                Some(ns) => thread::park_until(Instant::from_nanos(ns)),
            }
        };
        files.iter().for_each(|file| file.unwatch(&waiter));
        result
    }

    /// An attempt on an open file, which waits, until the deadline, if it may.
    pub(crate) fn attempt<R>(
        &self,
        open: &Open,
        may_wait: bool,
        deadline: Option<Instant>,
        mut act: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        let first = act();
        if first.as_ref().err() != Some(&Errno::EAGAIN) || !may_wait {
            return first;
        }
        self.wait(&[open.file.as_ref()], deadline, act)
    }
}
