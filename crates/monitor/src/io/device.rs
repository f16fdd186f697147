//! One virtio device as the I/O thread sees it: queue events, a backend's descriptor, and
//! unfinished work.
//!
//! Events only mark work. [`IoDevice::go_on`] does one bounded piece of each marked kind in each
//! iteration of the loop, so that no device starves another.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tare_devices::virtio::{Look, Progress, VirtioDevice, VirtioPci};
use vmm_sys_util::eventfd::EventFd;

use crate::inherit::borrow;
use crate::poll::{Interest, Poll};

/// The interface of every device to the I/O thread.
pub trait QueueWork: Send {
    /// The queue was notified.
    fn notified(&self, queue: u16) -> Progress;
    /// The backend is ready.
    fn backend_ready(&self) -> Progress;
    /// The thread has no work, and looks for some; `More` if there was. After [`Look::Again`] it does not
    /// sleep without [`Look::Last`].
    fn look(&self, look: Look) -> Progress {
        let _ = look;
        Progress::Done
    }
    /// What to watch the backend's descriptor for.
    fn interest(&self) -> Interest;
    /// When held completions must be delivered (`CLOCK_MONOTONIC`, ns).
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
    /// That time has come.
    fn deadline_passed(&self) {}
}

impl<D: VirtioDevice> QueueWork for Arc<Mutex<VirtioPci<D>>> {
    fn notified(&self, queue: u16) -> Progress {
        lock(self).notified(queue)
    }

    fn backend_ready(&self) -> Progress {
        lock(self).backend_ready()
    }

    fn look(&self, look: Look) -> Progress {
        lock(self).look(look)
    }

    fn interest(&self) -> Interest {
        lock(self).interest()
    }

    fn deadline_ns(&self) -> Option<u64> {
        lock(self).deadline_ns()
    }

    fn deadline_passed(&self) {
        lock(self).deadline_passed();
    }
}

fn lock<T>(device: &Mutex<T>) -> MutexGuard<'_, T> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device with its events.
pub struct IoDevice {
    work: Box<dyn QueueWork>,
    queues: Vec<Queue>,
    backend: Option<Backend>,
    first_token: u64,
    deadline_ns: Option<u64>,
}

struct Queue {
    event: Arc<EventFd>,
    pending: bool,
}

struct Backend {
    fd: OwnedFd,
    watched: Interest,
    pending: bool,
}

impl IoDevice {
    /// A device with one event for each queue, and perhaps a backend.
    pub fn new(
        work: Box<dyn QueueWork>,
        queues: &[Arc<EventFd>],
        backend: Option<OwnedFd>,
    ) -> Self {
        let queue = |event: &Arc<EventFd>| Queue {
            event: Arc::clone(event),
            pending: false,
        };
        Self {
            work,
            queues: queues.iter().map(queue).collect(),
            backend: backend.map(|fd| Backend {
                fd,
                watched: Interest::default(),
                pending: false,
            }),
            first_token: 0,
            deadline_ns: None,
        }
    }

    /// Watches the queues' events, with tokens from `first_token` on; the
    /// backend's token comes after the queues'.
    pub(super) fn watch(&mut self, poll: &Poll, first_token: u64) -> io::Result<()> {
        self.first_token = first_token;
        for (token, queue) in (first_token..).zip(&self.queues) {
            poll.add_event(borrow(&queue.event), token)?;
        }
        Ok(())
    }

    /// Whether work remains that needs no event.
    pub(super) fn has_more(&self) -> bool {
        let backend = self.backend.as_ref().is_some_and(|b| b.pending);
        backend || self.queues.iter().any(|queue| queue.pending)
    }

    /// When [`Self::deadline`] is to be called.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// Delivers what was held for long enough, if it is time.
    pub(super) fn deadline(&mut self, now_ns: u64, poll: &Poll) -> io::Result<()> {
        if self.deadline_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return Ok(());
        }
        self.work.deadline_passed();
        self.watch_backend(poll)
    }

    /// Watches the backend and the deadline as the device requests.
    fn watch_backend(&mut self, poll: &Poll) -> io::Result<()> {
        if let Some(backend) = &mut self.backend {
            let wanted = self.work.interest();
            let token = self.first_token + self.queues.len() as u64;
            poll.change(&backend.fd, token, backend.watched, wanted)?;
            backend.watched = wanted;
        }
        self.deadline_ns = self.work.deadline_ns();
        Ok(())
    }

    /// Marks the work of an event, counted from the device's first token.
    pub(super) fn event(&mut self, number: usize) {
        match (self.queues.get_mut(number), &mut self.backend) {
            (Some(queue), _) => queue.pending = true,
            (None, Some(backend)) => backend.pending = true,
            (None, None) => {}
        }
    }

    /// Looks for work of which no event told; whether there was any.
    pub(super) fn look(&mut self, look: Look, poll: &Poll) -> io::Result<bool> {
        let found = self.work.look(look) == Progress::More;
        if found {
            self.watch_backend(poll)?;
        }
        Ok(found)
    }

    /// Does one piece of each marked work, then watches the backend as the device requests.
    pub(super) fn go_on(&mut self, poll: &Poll) -> io::Result<()> {
        if !self.has_more() {
            return Ok(());
        }
        for (number, queue) in (0..).zip(&mut self.queues) {
            if queue.pending {
                queue.pending = self.work.notified(number) == Progress::More;
            }
        }
        if let Some(backend) = &mut self.backend
            && backend.pending
        {
            backend.pending = self.work.backend_ready() == Progress::More;
        }
        self.watch_backend(poll)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::poll::Wait;
    use crate::wiring::eventfd;

    #[derive(Default)]
    struct Script {
        notified: AtomicU32,
        ready: AtomicU32,
        more: AtomicU32,
    }

    impl QueueWork for Arc<Script> {
        fn notified(&self, _queue: u16) -> Progress {
            self.notified.fetch_add(1, Ordering::Relaxed);
            match self.more.load(Ordering::Relaxed) {
                0 => Progress::Done,
                left => {
                    self.more.store(left - 1, Ordering::Relaxed);
                    Progress::More
                }
            }
        }

        fn backend_ready(&self) -> Progress {
            self.ready.fetch_add(1, Ordering::Relaxed);
            Progress::Done
        }

        fn interest(&self) -> Interest {
            match self.ready.load(Ordering::Relaxed) {
                0 => Interest::READ,
                _ => Interest::default(),
            }
        }
    }

    fn turn(poll: &Poll, device: &mut IoDevice) -> usize {
        let mut ready = Vec::new();
        poll.wait(&mut ready, Wait::No).unwrap();
        for token in &ready {
            device.event((token - 100) as usize);
        }
        device.go_on(poll).unwrap();
        ready.len()
    }

    /// A device that holds a completion until its deadline.
    #[derive(Default)]
    struct Holding(AtomicU32);

    impl QueueWork for Arc<Holding> {
        fn notified(&self, _queue: u16) -> Progress {
            self.0.store(1, Ordering::Relaxed);
            Progress::Done
        }

        fn backend_ready(&self) -> Progress {
            Progress::Done
        }

        fn interest(&self) -> Interest {
            Interest::default()
        }

        fn deadline_ns(&self) -> Option<u64> {
            (self.0.load(Ordering::Relaxed) == 1).then_some(1_000)
        }

        fn deadline_passed(&self) {
            self.0.store(2, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_deadline_is_known_only_while_something_is_held() {
        let holding = Arc::new(Holding::default());
        let event = Arc::new(eventfd().unwrap());
        let queues = [Arc::clone(&event)];
        let mut device = IoDevice::new(Box::new(Arc::clone(&holding)), &queues, None);
        let poll = Poll::new().unwrap();
        device.watch(&poll, 100).unwrap();
        assert_eq!(device.deadline_ns(), None);
        event.write(1).unwrap();
        turn(&poll, &mut device);
        assert_eq!(device.deadline_ns(), Some(1_000));
        device.deadline(999, &poll).unwrap();
        assert_eq!(device.deadline_ns(), Some(1_000), "not yet");
        device.deadline(1_000, &poll).unwrap();
        assert_eq!(holding.0.load(Ordering::Relaxed), 2);
        assert_eq!(device.deadline_ns(), None);
    }

    #[test]
    fn unfinished_work_goes_on_without_a_new_event() {
        let script = Arc::new(Script::default());
        script.more.store(2, Ordering::Relaxed);
        let event = Arc::new(eventfd().unwrap());
        let queues = [Arc::clone(&event)];
        let mut device = IoDevice::new(Box::new(Arc::clone(&script)), &queues, None);
        let poll = Poll::new().unwrap();
        device.watch(&poll, 100).unwrap();
        event.write(1).unwrap();
        assert_eq!(turn(&poll, &mut device), 1);
        while device.has_more() {
            assert_eq!(turn(&poll, &mut device), 0);
        }
        assert_eq!(script.notified.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_backend_is_watched_only_as_the_device_wishes() {
        let script = Arc::new(Script::default());
        let event = Arc::new(eventfd().unwrap());
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let queues = [Arc::clone(&event)];
        let work = Box::new(Arc::clone(&script));
        let mut device = IoDevice::new(work, &queues, Some(ours.into()));
        let poll = Poll::new().unwrap();
        device.watch(&poll, 100).unwrap();
        assert_eq!(
            turn(&poll, &mut device),
            0,
            "not before the driver is ready"
        );
        event.write(1).unwrap();
        assert_eq!(turn(&poll, &mut device), 1);
        assert_eq!(turn(&poll, &mut device), 1, "the peer's end");
        assert_eq!(script.ready.load(Ordering::Relaxed), 1);
        assert_eq!(turn(&poll, &mut device), 0, "no spinning on a dead peer");
    }
}
