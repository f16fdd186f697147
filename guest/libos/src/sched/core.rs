//! One core's scheduler. Only the core's own threads touch it; cells are
//! borrowed for single steps, never across a switch.

use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};

use tare_hal::cpu;
use tare_hal::{PerCpu, clock, fiber};
use tare_policy::poller::Pollers;

use super::inbox::Inbox;
use super::stats::Counter;
use super::timers::Timers;
use super::{INBOXES, Thread};
use crate::idle::{Idle, Work};

/// One core's scheduler.
pub(crate) struct Core {
    ready: RefCell<VecDeque<Thread>>,
    pub(super) timers: RefCell<Timers<Thread>>,
    current: RefCell<Option<Thread>>,
    pub(super) pollers: RefCell<Pollers>,
    /// Polling threads in `ready`, which do not keep the core from halting.
    pub(super) polling: Cell<usize>,
    /// When the program that is about to run is to be interrupted.
    pub(super) program_deadline_ns: Cell<Option<u64>>,
    pub(crate) idle: Idle,
}

static CORES: PerCpu<Core> = PerCpu::new([const { Core::new() }; cpu::MAX]);

/// Counters of all cores, outside their schedulers so that all may read them.
pub(super) static SWITCHES: [Counter; cpu::MAX] = [const { Counter::new() }; cpu::MAX];

/// This core's scheduler.
#[inline]
pub(crate) fn local() -> &'static Core {
    CORES.get()
}

impl Core {
    const fn new() -> Self {
        Self {
            ready: RefCell::new(VecDeque::new()),
            timers: RefCell::new(Timers::new()),
            current: RefCell::new(None),
            pollers: RefCell::new(Pollers::new()),
            polling: Cell::new(0),
            program_deadline_ns: Cell::new(None),
            idle: Idle::new(),
        }
    }

    /// The running thread.
    ///
    /// # Panics
    /// Before the core has adopted one.
    #[inline]
    pub(super) fn current(&self) -> Thread {
        match &*self.current.borrow() {
            Some(thread) => thread.clone(),
            None => panic!("this core runs no thread yet"),
        }
    }

    /// The running thread, if the cell is free to look at.
    pub(super) fn try_current(&self) -> Option<Thread> {
        self.current.try_borrow().ok()?.clone()
    }

    #[inline]
    pub(super) fn set_current(&self, thread: Thread) {
        let previous = self.current.replace(Some(thread));
        drop(previous);
    }

    #[inline]
    pub(super) fn push_ready(&self, thread: Thread) {
        self.ready.borrow_mut().push_back(thread);
    }

    /// Ready threads that are not merely polling.
    #[inline]
    pub(super) fn ready_to_work(&self) -> usize {
        self.ready.borrow().len().saturating_sub(self.polling.get())
    }

    /// Runs other threads until one of them, or an interrupt, has made this
    /// one ready. The thread must be where it will be found: parked, in the
    /// queue of the ready, or finished.
    pub(super) fn block(&self) {
        loop {
            self.collect();
            let next = self.ready.borrow_mut().pop_front();
            match next {
                Some(next) => return self.switch_to(next),
                None => self.idle.wait(self),
            }
        }
    }

    /// Makes ready what other cores, interrupts and time have made ready.
    #[inline]
    pub(crate) fn collect(&self) {
        let inbox = self.inbox();
        if inbox.is_filled() {
            inbox.take_into(&mut self.ready.borrow_mut());
        }
        if self.next_deadline_ns().is_some() {
            self.expire(clock::now_ns());
        }
    }

    #[inline]
    pub(crate) fn inbox(&self) -> &'static Inbox<Thread> {
        &INBOXES[cpu::index()]
    }

    fn expire(&self, now_ns: u64) {
        loop {
            let due = self.timers.borrow_mut().pop_due(now_ns);
            match due {
                Some(thread) => thread.timed_out(),
                None => return,
            }
        }
    }

    /// Continues `next`. Nothing on this stack may hold a handle across the
    /// switch: if this thread has finished, it would never be dropped.
    fn switch_to(&self, next: Thread) {
        let is_current = match &*self.current.borrow() {
            Some(current) => current.is(&next),
            None => false,
        };
        if is_current {
            return;
        }
        SWITCHES[cpu::index()].add(1);
        let fiber = next.fiber().clone();
        self.set_current(next);
        fiber::switch(fiber);
    }
}

impl Work for Core {
    #[inline]
    fn has_work(&self) -> bool {
        self.inbox().is_filled()
            || self.ready_to_work() != 0
            || self
                .next_deadline_ns()
                .is_some_and(|deadline_ns| deadline_ns <= clock::now_ns())
    }

    #[inline]
    fn next_deadline_ns(&self) -> Option<u64> {
        self.timers.borrow().next_ns()
    }

    #[inline]
    fn announce_halt(&self) {
        self.inbox().announce_halt();
    }

    #[inline]
    fn end_halt(&self) -> Option<u64> {
        self.inbox().end_halt()
    }
}
