//! Waiting for a thread's end and taking its result.

use alloc::sync::Arc;

use tare_hal::lock::SpinLock;

use super::Thread;
use crate::sync::Event;

/// The right to wait for a thread and take its result. Dropping it lets the
/// thread run on by itself.
pub struct JoinHandle<T> {
    thread: Thread,
    packet: Arc<Packet<T>>,
}

impl<T> JoinHandle<T> {
    pub(super) fn new(thread: Thread, packet: Arc<Packet<T>>) -> Self {
        Self { thread, packet }
    }

    /// Waits until the thread has returned and gives its result. Unlike std's
    /// there is no error: a thread that panics ends the image.
    pub fn join(self) -> T {
        loop {
            if let Some(result) = self.packet.result.lock().take() {
                return result;
            }
            self.packet.done.wait();
        }
    }

    /// Whether the thread has returned.
    pub fn is_finished(&self) -> bool {
        self.packet.result.lock().is_some()
    }

    /// The thread.
    pub fn thread(&self) -> &Thread {
        &self.thread
    }
}

/// Where a thread leaves its result.
pub(super) struct Packet<T> {
    result: SpinLock<Option<T>>,
    done: Event,
}

impl<T> Packet<T> {
    pub(super) const fn new() -> Self {
        Self {
            result: SpinLock::new(None),
            done: Event::new(),
        }
    }

    pub(super) fn complete(&self, result: T) {
        *self.result.lock() = Some(result);
        self.done.set();
    }
}
