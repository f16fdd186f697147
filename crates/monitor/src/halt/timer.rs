//! Timers that send a signal (`timer_create(2)`).
//!
//! One on the CPU time of this process (`CLOCK_PROCESS_CPUTIME_ID`) expires when all threads
//! together have run for that long, and costs nothing while none runs. The kernel looks at such
//! timers when its tick meets a running thread, so it comes late by some ticks, the later the less
//! the process runs; and on a CPU that is free of ticks (`nohz_full`) an armed one brings the tick
//! back.
//!
//! One by the clock (`CLOCK_MONOTONIC`) is on time, and wakes the process whatever it does.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::mem;
use std::ptr;
use std::sync::OnceLock;

use rustix::thread::gettid;
use vmm_sys_util::eventfd::EventFd;
use vmm_sys_util::signal::register_signal_handler;

/// The signal that it sends to the thread that made it.
const SIGNAL: libc::c_int = libc::SIGVTALRM;
static EVENT: OnceLock<EventFd> = OnceLock::new();

/// Makes the signal set [`event`]; called once, before the first timer.
pub(super) fn install() -> io::Result<()> {
    if EVENT.get().is_none() {
        let _ = EVENT.set(EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?);
        register_signal_handler(SIGNAL, note)
            .map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
    }
    Ok(())
}

/// Readable when a timer has expired.
pub(super) fn event() -> Option<&'static EventFd> {
    EVENT.get()
}

/// What a timer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// CPU time of all threads of this process.
    Cpu,
    /// Time that passes.
    Clock,
}

/// A timer, not armed at first.
#[derive(Debug)]
pub(super) struct Timer {
    id: libc::timer_t,
    armed: Cell<bool>,
}

impl Timer {
    /// A timer that signals the calling thread.
    pub(super) fn new(time: Time) -> io::Result<Self> {
        install()?;
        // SAFETY: a sigevent is plain data, for which zeros are valid.
        let mut tell: libc::sigevent = unsafe { mem::zeroed() };
        tell.sigev_notify = libc::SIGEV_THREAD_ID;
        tell.sigev_signo = SIGNAL;
        tell.sigev_notify_thread_id = gettid().as_raw_nonzero().get();
        let mut id = ptr::null_mut();
        let clock = match time {
            Time::Cpu => libc::CLOCK_PROCESS_CPUTIME_ID,
            Time::Clock => libc::CLOCK_MONOTONIC,
        };
        // SAFETY: both pointers are to live values of the types that the call wants.
        let made = unsafe { libc::timer_create(clock, &raw mut tell, &raw mut id) };
        match made {
            0 => Ok(Self {
                id,
                armed: Cell::new(false),
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Arms it to expire once, after `after_ns` of its kind of time.
    pub(super) fn arm(&self, after_ns: u64) {
        // Zero would disarm it.
        self.set(after_ns.max(1));
        self.armed.set(true);
    }

    /// Disarms it.
    pub(super) fn disarm(&self) {
        if self.armed.replace(false) {
            self.set(0);
        }
    }

    fn set(&self, after_ns: u64) {
        let once = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: i64::try_from(after_ns / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: (after_ns % 1_000_000_000) as i64,
            },
        };
        // SAFETY: the timer lives as long as `self`, and the time is a live value
        // that the kernel only reads.
        let _ = unsafe { libc::timer_settime(self.id, 0, &raw const once, ptr::null_mut()) };
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer was made by `new` and is deleted once.
        let _ = unsafe { libc::timer_delete(self.id) };
    }
}

/// Async-signal-safe: a write.
extern "C" fn note(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if let Some(event) = EVENT.get() {
        let _ = event.write(1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn they_expire_after_their_own_time() {
        let timer = Timer::new(Time::Cpu).unwrap();
        let clock = Timer::new(Time::Clock).unwrap();
        let event = event().unwrap();
        // Other tests of this process run at the same time, so the limit is long.
        timer.arm(20_000_000_000);
        clock.arm(1_000_000);
        clock.disarm();
        std::thread::sleep(Duration::from_millis(50));
        assert!(event.read().is_err());
        // While no thread of this test runs.
        clock.arm(1_000_000);
        let began = Instant::now();
        while event.read().is_err() {
            assert!(began.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(1));
        }
        timer.arm(5_000_000);
        let began = Instant::now();
        while event.read().is_err() {
            assert!(began.elapsed() < Duration::from_secs(10));
        }
    }
}
