//! [`Ring`]: a queue and the requests that are in it.

#![allow(unsafe_code)] // the queue's `add`

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use tare_hal::virtio::{Queue, QueueOptions, Transport};

use super::header::{self, LEN};
use super::setup::OpenError;
use crate::block::BlockError;
use crate::thread::Thread;

/// Descriptors of a request that has data.
const DESCRIPTORS: usize = 3;
/// Most descriptors of a queue.
const LONGEST: u16 = 256;

/// The data of a request: which way it goes, and where it is.
#[derive(Clone, Copy)]
pub(super) enum Data {
    /// The device reads these bytes.
    Out(NonNull<[u8]>),
    /// The device writes these bytes.
    In(NonNull<[u8]>),
    /// There are none.
    None,
}

/// Where a thread finds the result of its request: on its stack while it waits.
pub(super) struct Completion {
    pub(super) done: AtomicBool,
    pub(super) result: core::cell::Cell<Result<(), BlockError>>,
}

/// What the device gets to see of a request besides its data.
#[repr(C, align(32))]
struct Frame {
    header: [u8; LEN],
    status: u8,
}

struct InFlightRequest {
    frame: Box<Frame>,
    completion: NonNull<Completion>,
    thread: Thread,
}

/// A queue. Its lock keeps interrupts off: the handler takes completions.
pub(super) struct Ring {
    queue: Queue,
    /// By the token of their first descriptor.
    in_flight: Vec<Option<InFlightRequest>>,
    #[allow(clippy::vec_box)] // the device gets their addresses
    spare: Vec<Box<Frame>>,
    /// Threads that found no room, first come first.
    pub(super) waiting: VecDeque<Thread>,
    pub(super) broken: bool,
    pub(super) completions: u64,
    pub(super) errors: u64,
    pub(super) notifications: u64,
    pub(super) waits_for_room: u64,
}

// SAFETY: the pointers are to memory of threads that wait until the request
// has left the ring, and only what holds the ring exclusively follows them.
unsafe impl Send for Ring {}

/// A request that found its place.
pub(super) enum Added {
    /// The device wants a notification.
    Notify,
    /// The device looks by itself.
    Quiet,
}

/// A request that did not.
pub(super) enum NotAdded {
    /// The queue is full.
    Full,
    /// The queue cannot be used any more.
    Broken,
}

impl Ring {
    pub(super) fn new(
        transport: &mut Transport,
        index: u16,
        indirect: bool,
        event_idx: bool,
    ) -> Result<Self, OpenError> {
        let options = QueueOptions {
            longest: LONGEST,
            indirect,
            event_idx,
        };
        let queue = Queue::new(transport, index, options).map_err(OpenError::Setup)?;
        let size = queue.size();
        if !queue.has_room(DESCRIPTORS) {
            let descriptors = size;
            return Err(OpenError::ShortQueue { index, descriptors });
        }
        Ok(Self {
            queue,
            in_flight: (0..size).map(|_| None).collect(),
            spare: Vec::with_capacity(size),
            waiting: VecDeque::new(),
            broken: false,
            completions: 0,
            errors: 0,
            notifications: 0,
            waits_for_room: 0,
        })
    }

    /// Most requests in flight.
    pub(super) fn depth(&self, indirect: bool) -> usize {
        let size = self.queue.size();
        if indirect { size } else { size / DESCRIPTORS }
    }

    /// Puts a request into the queue; `thread` is woken when it has completed.
    ///
    /// # Safety
    /// `data` and `completion` stay where they are, and nothing else uses the
    /// data, until `completion.done` is set.
    pub(super) unsafe fn add(
        &mut self,
        request: [u8; LEN],
        data: Data,
        completion: NonNull<Completion>,
        thread: &Thread,
    ) -> Result<Added, NotAdded> {
        if self.broken {
            return Err(NotAdded::Broken);
        }
        if !self.queue.has_room(DESCRIPTORS) {
            return Err(NotAdded::Full);
        }
        let frame = Frame {
            header: request,
            status: header::UNWRITTEN,
        };
        let mut frame = match self.spare.pop() {
            Some(mut spare) => {
                *spare = frame;
                spare
            }
            None => Box::new(frame),
        };
        let Frame { header, status } = &mut *frame;
        let status = core::slice::from_mut(status);
        let token = match data {
            Data::Out(data) => {
                // SAFETY: the caller keeps the data until the request has completed.
                let data = unsafe { data.as_ref() };
                // SAFETY: and the flight keeps the frame until the queue has given its
                // token back.
                unsafe { self.queue.add(&[header, data], &mut [status]) }
            }
            Data::In(mut data) => {
                // SAFETY: the caller keeps the data, and nothing else uses it, until the
                // request has completed.
                let data = unsafe { data.as_mut() };
                // SAFETY: as for `Out`.
                unsafe { self.queue.add(&[header], &mut [data, status]) }
            }
            // SAFETY: as for `Out`, without data.
            Data::None => unsafe { self.queue.add(&[header], &mut [status]) },
        };
        let Some(token) = token else {
            return Err(NotAdded::Full);
        };
        self.in_flight[usize::from(token)] = Some(InFlightRequest {
            frame,
            completion,
            thread: thread.clone(),
        });
        if !self.queue.should_notify() {
            return Ok(Added::Quiet);
        }
        self.notifications += 1;
        Ok(Added::Notify)
    }

    /// Takes all completions and wakes their threads.
    pub(super) fn reap(&mut self) {
        loop {
            while let Some(token) = self.queue.peek() {
                if self.broken || !self.complete(token) {
                    return self.give_up();
                }
            }
            // What asks the device for the next interrupt must be seen before
            // the last look, or both sides wait (virtio 1.2, 2.7.7.2).
            self.queue.barrier();
            if !self.queue.can_take() {
                return;
            }
        }
    }

    /// Whether `token` was one of ours.
    fn complete(&mut self, token: u16) -> bool {
        let Some(slot) = self.in_flight.get_mut(usize::from(token)) else {
            return false;
        };
        let Some(flight) = slot.take() else {
            return false;
        };
        let taken = self.queue.take(token);
        let result = match taken {
            Some(_) => header::judge(flight.frame.status),
            None => Err(BlockError::Broken),
        };
        self.completions += 1;
        self.errors += u64::from(result.is_err());
        let InFlightRequest {
            frame,
            completion,
            thread,
            ..
        } = flight;
        self.spare.push(frame);
        wake(completion, thread, result);
        // All of them, when half is free: one may have found room by a wake-up for its request,
        // and one wake-up for a thread that waits no more would be lost.
        if self.queue.has_room(self.queue.size() / 2) {
            self.wake_waiting();
        }
        taken.is_some()
    }

    /// The device answered what it was not asked: nothing it has can be trusted
    /// to come back, so frames stay where they are, and callers get an error.
    fn give_up(&mut self) {
        if !core::mem::replace(&mut self.broken, true) {
            log::error!("block: invalid used ring, the device is disabled");
        }
        for slot in &mut self.in_flight {
            if let Some(flight) = slot.take() {
                self.errors += 1;
                Box::leak(flight.frame);
                wake(flight.completion, flight.thread, Err(BlockError::Broken));
            }
        }
        self.wake_waiting();
    }

    /// Lets those that found no room look again.
    fn wake_waiting(&mut self) {
        while let Some(next) = self.waiting.pop_front() {
            next.unpark();
        }
    }
}

/// Tells a thread how its request went. It may leave as soon as `done` is set.
fn wake(completion: NonNull<Completion>, thread: Thread, result: Result<(), BlockError>) {
    // SAFETY: the thread keeps it until `done` is set, and reads the result
    // only then.
    let completion = unsafe { completion.as_ref() };
    completion.result.set(result);
    completion.done.store(true, Ordering::Release);
    thread.unpark();
}
