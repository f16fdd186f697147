//! The receive queue of a port: buffers that the device fills, and what is left of those that it
//! has filled.

#![allow(unsafe_code)] // the queue's `add`

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use tare_hal::virtio::Queue;

/// Buffers that the device gets, and bytes of each.
const BUFFERS: usize = 4;
const BYTES: usize = 16 * 1024;

/// A buffer that has bytes.
struct Filled {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// A queue of input.
pub(super) struct Input {
    queue: Queue,
    /// Buffers that the device has, by token.
    held: Vec<Option<Box<[u8]>>>,
    filled: VecDeque<Filled>,
    is_started: bool,
    arrived: u64,
}

impl Input {
    pub(super) fn new(mut queue: Queue) -> Self {
        queue.set_interrupts(false);
        Self {
            held: (0..queue.size()).map(|_| None).collect(),
            queue,
            filled: VecDeque::new(),
            is_started: false,
            arrived: 0,
        }
    }

    /// Reads what there is; how much, and whether the device wants a notification. With 0 an
    /// interrupt follows when there is something.
    pub(super) fn read(&mut self, to: &mut [u8]) -> (usize, bool) {
        let starts = self.look();
        let mut done = 0;
        let mut given = 0;
        while let Some(first) = self.filled.front_mut() {
            let part = (first.end - first.start).min(to.len() - done);
            to[done..done + part].copy_from_slice(&first.buffer[first.start..first.start + part]);
            done += part;
            first.start += part;
            if first.start < first.end {
                break;
            }
            if let Some(filled) = self.filled.pop_front() {
                self.give(filled.buffer);
                given += 1;
            }
        }
        (done, starts || given > 0 && self.queue.should_notify())
    }

    /// Bytes that can be read, those that have ever come, and whether the device wants a
    /// notification. Without any an interrupt follows when there are some.
    pub(super) fn readable(&mut self) -> (usize, u64, bool) {
        let notify = self.look();
        let lengths = self.filled.iter().map(|filled| filled.end - filled.start);
        (lengths.sum(), self.arrived, notify)
    }

    /// The device says that something has come: it need not say so again.
    pub(super) fn interrupted(&mut self) {
        self.queue.set_interrupts(false);
    }

    /// Gives the device its buffers with the first look, and takes what has come; whether the
    /// device wants a notification.
    fn look(&mut self) -> bool {
        let starts = !core::mem::replace(&mut self.is_started, true);
        if starts {
            (0..BUFFERS).for_each(|_| self.give(vec![0; BYTES].into()));
        }
        self.take();
        if self.filled.is_empty() {
            self.queue.set_interrupts(true);
            // What came before the device saw that comes without an interrupt.
            self.queue.barrier();
            self.take();
        }
        starts && self.queue.should_notify()
    }

    fn take(&mut self) {
        while let Some(token) = self.queue.peek() {
            let Some(len) = self.queue.take(token) else {
                return;
            };
            let held = self.held.get_mut(usize::from(token));
            let Some(buffer) = held.and_then(Option::take) else {
                continue;
            };
            let end = (len as usize).min(buffer.len());
            self.arrived += end as u64;
            if end == 0 {
                self.give(buffer);
            } else {
                self.filled.push_back(Filled {
                    buffer,
                    start: 0,
                    end,
                });
            }
        }
    }

    fn give(&mut self, mut buffer: Box<[u8]>) {
        // SAFETY: the buffer is kept in `held`, untouched, until the queue has given its token
        // back.
        let token = unsafe { self.queue.add(&[], &mut [&mut buffer]) };
        if let Some(token) = token {
            self.held[usize::from(token)] = Some(buffer);
        }
    }
}
