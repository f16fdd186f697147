//! A thread of the program as the others see it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general::{SS_DISABLE, SS_ONSTACK};
use tare_libos::sync::SpinLock;
use tare_libos::thread::{self, Thread as Waiter};
use tare_libos::time::Instant;

use crate::credentials::Credentials;
use crate::pending::Pending;
use crate::signals::Mask;
use crate::timers::NOW;

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

impl SignalStack {
    /// Whether a thread with this stack pointer is on it, also where it is empty
    /// (kernel `include/linux/sched/signal.h`, `on_sig_stack`).
    pub(crate) const fn holds(&self, rsp: u64) -> bool {
        rsp.wrapping_sub(self.base).wrapping_sub(1) < self.bytes
    }

    /// `ss_flags` for a thread with this stack pointer.
    pub(crate) const fn flags(&self, rsp: u64) -> u32 {
        if self.bytes == 0 {
            SS_DISABLE
        } else if self.holds(rsp) {
            SS_ONSTACK
        } else {
            0
        }
    }
}

/// How a program wants a thread to be scheduled (`sched(7)`): kept and told, without an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scheduling {
    /// With `SCHED_RESET_ON_FORK`.
    pub(crate) policy: u32,
    pub(crate) priority: u32,
}

/// The CPU time of a thread: of its library OS thread too, and of interrupts meanwhile.
#[derive(Debug, Default)]
pub(crate) struct CpuTime {
    ran_ns: AtomicU64,
    /// Since when it has run; 0 while it waits.
    since_ns: AtomicU64,
}

impl CpuTime {
    /// Begins or goes on. A timer that is set from then on interrupts it (`looks`).
    pub(crate) fn run(&self, now_ns: u64) {
        self.since_ns.store(now_ns, Ordering::SeqCst);
    }

    /// Whether it has begun and does not wait.
    pub(crate) fn runs(&self) -> bool {
        self.since_ns.load(Ordering::SeqCst) != 0
    }

    /// Stops for a while.
    pub(crate) fn pause(&self, now_ns: u64) {
        let since_ns = self.since_ns.swap(0, Ordering::AcqRel);
        self.ran_ns
            .fetch_add(now_ns.saturating_sub(since_ns), Ordering::AcqRel);
    }

    /// Nanoseconds so far. Another thread that looks meanwhile may get less, never more.
    pub(crate) fn ns(&self, now_ns: u64) -> u64 {
        let ran_ns = self.ran_ns.load(Ordering::Acquire);
        match self.since_ns.load(Ordering::Acquire) {
            0 => ran_ns,
            since_ns => ran_ns + now_ns.saturating_sub(since_ns),
        }
    }
}

/// What a program sets by `prctl(2)` for a thread, without an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Dumpable,
    NoNewPrivs,
    ParentSignal,
}

/// What a thread is to the others.
pub(crate) struct Thread {
    pub(crate) number: u32,
    /// The thread of the library OS that runs it.
    waiter: SpinLock<Option<Waiter>>,
    /// Where 0 goes when it ends.
    pub(crate) clear_at_end: AtomicU64,
    /// Where its list of robust futexes is.
    pub(crate) robust_list: AtomicU64,
    /// Signals that wait for this thread, and those that it does not take now.
    pub(crate) pending: Pending,
    pub(crate) blocked: AtomicU64,
    /// What is blocked again after the next handler, while `sigsuspend` waits.
    pub(crate) saved_mask: SpinLock<Option<u64>>,
    pub(crate) signal_stack: SpinLock<SignalStack>,
    pub(crate) scheduling: SpinLock<Scheduling>,
    /// Its nice value and its cores, a bit each: kept and read back, as that.
    pub(crate) nice: AtomicI32,
    pub(crate) cpus: AtomicU64,
    /// By [`Kept`].
    pub(crate) kept: [AtomicU32; 3],
    pub(crate) cpu_time: CpuTime,
    /// When it looks at timers that count this time.
    pub(crate) cpu_look_ns: AtomicU64,
    pub(crate) credentials: SpinLock<Credentials>,
    /// Its name, with zeros behind it.
    pub(crate) name: SpinLock<[u8; 16]>,
}

impl Thread {
    /// As the first thread of a program is.
    pub(crate) fn first(number: u32, name: [u8; 16]) -> Arc<Self> {
        Self::with(number, 0, name, Scheduling::default(), Credentials::new())
    }

    /// As one that this thread starts.
    pub(crate) fn start(&self, number: u32) -> Arc<Self> {
        let (name, scheduling) = (*self.name.lock(), *self.scheduling.lock());
        let credentials = self.credentials.lock().clone();
        let new = Self::with(number, self.mask().0, name, scheduling, credentials);
        new.nice
            .store(self.nice.load(Ordering::Relaxed), Ordering::Relaxed);
        new.cpus
            .store(self.cpus.load(Ordering::Relaxed), Ordering::Relaxed);
        for (to, from) in new.kept.iter().zip(&self.kept) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        new
    }

    fn with(
        number: u32,
        blocked: u64,
        name: [u8; 16],
        scheduling: Scheduling,
        credentials: Credentials,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            waiter: SpinLock::new(None),
            clear_at_end: AtomicU64::new(0),
            robust_list: AtomicU64::new(0),
            pending: Pending::new(),
            blocked: AtomicU64::new(blocked),
            saved_mask: SpinLock::new(None),
            signal_stack: SpinLock::new(SignalStack::default()),
            scheduling: SpinLock::new(scheduling),
            nice: AtomicI32::new(0),
            cpus: AtomicU64::new(u64::MAX),
            kept: [1, 0, 0].map(AtomicU32::new),
            cpu_time: CpuTime::default(),
            // There may be timers.
            cpu_look_ns: AtomicU64::new(NOW),
            credentials: SpinLock::new(credentials),
            name: SpinLock::new(name),
        })
    }

    /// Called by the thread that runs it.
    pub(crate) fn begin(&self) {
        *self.waiter.lock() = Some(thread::current());
        self.cpu_time.run(Instant::now().as_nanos());
    }

    /// Whether this thread of the library OS runs it.
    pub(crate) fn is_run_by(&self, waiter: &Waiter) -> bool {
        let own = self.waiter.lock();
        own.as_ref().is_some_and(|own| own.id() == waiter.id())
    }

    /// Waits by `act`, which takes no CPU time of this thread.
    pub(crate) fn wait<R>(&self, act: impl FnOnce() -> R) -> R {
        self.cpu_time.pause(Instant::now().as_nanos());
        let result = act();
        self.cpu_time.run(Instant::now().as_nanos());
        result
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

    /// Takes back the mask of a call that a signal interrupted which does nothing any more.
    pub(crate) fn restore_mask(&self) {
        if let Some(mask) = self.saved_mask.lock().take() {
            self.blocked.store(mask, Ordering::Relaxed);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_takes_no_cpu_time() {
        let time = CpuTime::default();
        assert_eq!((time.ns(7), time.runs()), (0, false));
        time.run(10);
        assert_eq!((time.ns(15), time.runs()), (5, true));
        time.pause(20);
        assert!(!time.runs());
        assert_eq!(time.ns(90), 10);
        time.run(100);
        assert_eq!(time.ns(101), 11);
    }

    #[test]
    fn the_flags_of_a_signal_stack_say_whether_the_thread_is_on_it() {
        let none = SignalStack::default();
        assert_eq!((none.flags(0), none.flags(5)), (SS_DISABLE, SS_DISABLE));
        let stack = SignalStack {
            base: 4096,
            bytes: 4096,
        };
        assert_eq!(
            (stack.flags(4097), stack.flags(8192)),
            (SS_ONSTACK, SS_ONSTACK)
        );
        assert_eq!((stack.flags(4096), stack.flags(8193)), (0, 0));
    }
}
