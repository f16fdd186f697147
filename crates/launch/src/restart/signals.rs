//! Signals to a keeper: they stop further attempts, and reach the present one too.

use std::io;
use std::process::Child;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::iterator::{Handle, Signals};
use tare_host::process::{ProcessHandle, start_time};
use tare_host::signals::requests_to_end;

/// The received signal, and the attempt that gets it.
#[derive(Debug, Default)]
struct Shared {
    /// The first signal, or 0.
    received: AtomicI32,
    attempt: Mutex<Option<ProcessHandle>>,
}

impl Shared {
    fn attempt(&self) -> std::sync::MutexGuard<'_, Option<ProcessHandle>> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Catches the signals of this process as long as it lives.
#[derive(Debug)]
pub(super) struct KeeperSignals {
    shared: Arc<Shared>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl KeeperSignals {
    /// Catches the signals from now on; they wake the calling thread.
    pub(super) fn take() -> io::Result<Self> {
        let signals = Signals::new(requests_to_end())?;
        let (handle, shared) = (signals.handle(), Arc::new(Shared::default()));
        let (theirs, keeper) = (Arc::clone(&shared), thread::current());
        let thread = thread::spawn(move || pass_on(signals, &theirs, &keeper));
        Ok(Self {
            shared,
            handle,
            thread: Some(thread),
        })
    }

    /// The first signal that came.
    pub(super) fn received(&self) -> Option<i32> {
        Some(self.shared.received.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }

    /// Passes signals on to this attempt, also one that has already come.
    pub(super) fn pass_to(&self, child: &Child) {
        let pid = child.id();
        let attempt = start_time(pid).and_then(|at| ProcessHandle::open(pid, at));
        let mut slot = self.shared.attempt();
        *slot = attempt;
        if let (Some(attempt), Some(signal)) = (&*slot, self.received()) {
            pass(attempt, signal);
        }
    }

    /// The attempt has ended: nothing to pass signals to.
    pub(super) fn pass_to_none(&self) {
        *self.shared.attempt() = None;
    }

    /// Waits for `delay`, or until a signal comes or has come.
    pub(super) fn wait(&self, delay: Duration) {
        let begin = Instant::now();
        while self.received().is_none() {
            match delay.checked_sub(begin.elapsed()) {
                Some(rest) if !rest.is_zero() => thread::park_timeout(rest),
                _ => return,
            }
        }
    }
}

impl Drop for KeeperSignals {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn pass_on(mut signals: Signals, shared: &Shared, keeper: &Thread) {
    for signal in signals.forever() {
        let (order, received) = (Ordering::SeqCst, &shared.received);
        let _ = received.compare_exchange(0, signal, order, order);
        if let Some(attempt) = &*shared.attempt() {
            pass(attempt, signal);
        }
        keeper.unpark();
    }
}

/// From a terminal the attempt has received it already; a second one does no harm.
fn pass(attempt: &ProcessHandle, signal: i32) {
    let signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
    let _ = attempt.signal(signal);
}
