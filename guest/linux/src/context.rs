//! What a system call works with, and waiting.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::Ordering;

use linux_raw_sys::general::SIGPIPE;
use tare_abi::expiries::TIMERFD_SETTIME;
use tare_libos::time::Instant;
use tare_libos::{net, thread};

use crate::errno::{Errno, Result};
use crate::expiries;
use crate::files::{File, Open};
use crate::pending::{Info, SI_USER};
use crate::process::{PID, Process};
use crate::signals::Mask;
use crate::thread::{NewThread, Registers, Thread};

/// What a system call works with.
pub(crate) struct Context<'a> {
    pub(crate) process: &'a Arc<Process>,
    pub(crate) thread: &'a Arc<Thread>,
    pub(crate) registers: &'a mut Registers,
    /// Vector registers for the thread that this call starts.
    pub(crate) vectors: Vec<u8>,
    /// Bytes on their way; kept, so that a call need not allocate them.
    pub(crate) buffer: Vec<u8>,
    /// The call has waited for a limited time: a signal ends it, whatever its handler asks for
    /// (`signal(7)`).
    pub(crate) has_limit: Cell<bool>,
    /// A signal's handler runs, and then the call is made again, whatever the handler asks for.
    pub(crate) goes_on: Cell<bool>,
    /// Starts a thread that continues where this one does; gives its number. The loop that
    /// serves the calls is above them, so that it hands its own start down.
    pub(crate) start_thread: fn(&mut Context<'_>, &NewThread) -> Result,
    /// Another program is in place of the one that called, and begins with these registers.
    pub(crate) replaced: Option<Registers>,
}

impl Context<'_> {
    /// What a thread gets that writes to what has no reader any more.
    pub(crate) fn break_pipe(&self) {
        // One that waits already is enough.
        let info = Info::sent(SI_USER, PID);
        self.process.send(Some(self.thread), SIGPIPE, info).ok();
    }

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
        // What waits to be sent may be what this waits for.
        net::send_written();
        if deadline.is_some() {
            self.has_limit.set(true);
        }
        let waiter = thread::current();
        let mut has_waited = false;
        let result = loop {
            files.iter().for_each(|file| file.watch(&waiter));
            let looked_ns = Instant::now().as_nanos();
            let result = act();
            if result.as_ref().err() != Some(&Errno::EAGAIN) {
                break result;
            }
            if self.process.claim_signal(self.thread) {
                break Err(Errno::EINTR);
            }
            // What had passed before changes nothing any more: `act` has seen it.
            let times = files.iter().filter_map(|file| file.deadline_ns(looked_ns));
            let timer = times.min();
            let own = deadline.map(|deadline| deadline.as_nanos());
            match timer.into_iter().chain(own).min() {
                None => self.thread.wait(thread::park),
                Some(_) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    // One that does not wait looks once, and no time has run out.
                    if has_waited {
                        expiries::count(self.registers.rax as u32, self.thread);
                    }
                    break result;
                }
                Some(ns) => {
                    let until = Instant::from_nanos(ns);
                    self.thread.wait(|| thread::park_until(until));
                    if timer == Some(ns) && Instant::now() >= until {
                        expiries::count(TIMERFD_SETTIME, self.thread);
                    }
                }
            }
            has_waited = true;
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
