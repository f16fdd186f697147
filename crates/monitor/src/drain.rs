//! After a guest has ended by itself, the machine waits until the host has all output of the
//! guest's standard streams. The main thread requests that from the I/O thread and goes on serving:
//! a reader that does not read cannot delay a signal or a stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tare_devices::console::{Backend, Console};
use tare_devices::virtio::{Progress, VirtioPci};
use vmm_sys_util::eventfd::EventFd;

use crate::io::QueueWork;
use crate::poll::Interest;
use crate::wiring::{WiringError, eventfd};

/// The main thread's side, and what both threads share.
#[derive(Clone)]
pub(crate) struct Drain {
    wanted: Arc<AtomicBool>,
    done: Arc<EventFd>,
    /// Wakes the I/O thread.
    queue: Option<Arc<EventFd>>,
}

impl Drain {
    pub(crate) fn new() -> Result<Self, WiringError> {
        Ok(Self {
            wanted: Arc::default(),
            done: Arc::new(eventfd()?),
            queue: None,
        })
    }

    /// Sends the request through the first of the device's queues.
    pub(crate) fn through(self, queues: Vec<Arc<EventFd>>) -> Self {
        Self {
            queue: queues.into_iter().next(),
            ..self
        }
    }

    /// Requests the output written so far; [`Self::done`] follows.
    pub(crate) fn ask(&self) {
        self.wanted.store(true, Ordering::Release);
        if let Some(queue) = &self.queue {
            let _ = queue.write(1);
        }
    }

    /// Signalled when the host has it.
    pub(crate) fn done(&self) -> &EventFd {
        &self.done
    }
}

/// The device, served by the I/O thread.
pub(crate) struct Drained<B> {
    device: Arc<Mutex<VirtioPci<Console<B>>>>,
    drain: Drain,
    progress: Mutex<Draining>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draining {
    NotAsked,
    Begun,
    Done,
}

impl<B: Backend> Drained<B> {
    pub(crate) fn new(device: Arc<Mutex<VirtioPci<Console<B>>>>, drain: Drain) -> Self {
        Self {
            device,
            drain,
            progress: Mutex::new(Draining::NotAsked),
        }
    }

    /// Checks all output once the main thread wants it, and signals when the host has it.
    fn look(&self, progress: Progress) -> Progress {
        if !self.drain.wanted.load(Ordering::Acquire) {
            return progress;
        }
        let mut draining = lock(&self.progress);
        let mut device = lock(&self.device);
        let mut progress = progress;
        if *draining == Draining::NotAsked {
            *draining = Draining::Begun;
            device.device_mut().start_drain();
        }
        if *draining == Draining::Begun {
            // A port that waits for its reader does nothing.
            for queue in device.device().output_queues() {
                progress = progress.or(device.notified(queue));
            }
            if device.device().is_drained() {
                *draining = Draining::Done;
                let _ = self.drain.done.write(1);
            }
        }
        progress
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B: Backend> QueueWork for Drained<B> {
    fn notified(&self, queue: u16) -> Progress {
        let progress = self.device.notified(queue);
        self.look(progress)
    }

    fn backend_ready(&self) -> Progress {
        let progress = self.device.backend_ready();
        self.look(progress)
    }

    fn interest(&self) -> Interest {
        self.device.interest()
    }
}
