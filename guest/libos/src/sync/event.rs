//! A signal that wakes one waiting thread.

use core::sync::atomic::{AtomicBool, Ordering};

use tare_hal::lock::IrqLock;

use crate::thread::{self, Thread};
use crate::time::Instant;

/// An auto-reset signal with one waiter at a time: what an interrupt handler
/// or another core sets, and one thread waits for. Signals before the wait
/// are not lost; several of them count as one.
///
/// ```
/// use std::sync::Arc;
/// use tare_libos::{sync::Event, thread};
/// let event = Arc::new(Event::new());
/// let setter = Arc::clone(&event);
/// thread::spawn(move || setter.set());
/// event.wait();
/// ```
#[derive(Debug, Default)]
pub struct Event {
    set: AtomicBool,
    waiter: IrqLock<Option<Thread>>,
}

impl Event {
    /// An event that is not set.
    pub const fn new() -> Self {
        Self {
            set: AtomicBool::new(false),
            waiter: IrqLock::new(None),
        }
    }

    /// Sets the event and wakes its waiter. Cheap when it is set already.
    pub fn set(&self) {
        if self.set.swap(true, Ordering::SeqCst) {
            return;
        }
        let waiter = self.waiter.lock().take();
        if let Some(thread) = waiter {
            thread.unpark();
        }
    }

    /// Resets the event; says whether it was set.
    pub fn take(&self) -> bool {
        self.set.load(Ordering::Relaxed) && self.set.swap(false, Ordering::SeqCst)
    }

    /// Waits until the event is set, and resets it.
    pub fn wait(&self) {
        while !self.prepare() {
            thread::park();
        }
    }

    /// Waits until the event is set or the deadline has passed; says whether
    /// it was set, and resets it.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        loop {
            if self.prepare() {
                return true;
            }
            if Instant::now() >= deadline {
                *self.waiter.lock() = None;
                return self.take();
            }
            thread::park_until(deadline);
        }
    }

    /// Takes the signal, or leaves this thread as the one to be woken.
    fn prepare(&self) -> bool {
        if self.take() {
            return true;
        }
        *self.waiter.lock() = Some(thread::current());
        // A signal between the first look and the registration woke no thread.
        if self.set.swap(false, Ordering::SeqCst) {
            *self.waiter.lock() = None;
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use core::time::Duration;

    use super::*;

    #[test]
    fn signals_before_the_wait_count_once() {
        let event = Event::new();
        event.set();
        event.set();
        event.wait();
        assert!(!event.take());
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let event = Event::new();
        let start = Instant::now();
        assert!(!event.wait_until(start + Duration::from_millis(5)));
        assert!(start.elapsed() >= Duration::from_millis(5));
    }

    #[test]
    fn no_signal_of_a_busy_setter_is_lost() {
        let (ping, pong) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let (their_ping, their_pong) = (Arc::clone(&ping), Arc::clone(&pong));
        let partner = crate::thread::spawn(move || {
            for _ in 0..2_000 {
                their_ping.wait();
                their_pong.set();
            }
        });
        for _ in 0..2_000 {
            ping.set();
            pong.wait();
        }
        partner.join();
    }
}
