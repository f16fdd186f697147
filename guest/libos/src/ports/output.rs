//! The transmit queue of a port: buffers that the host has not taken yet.

#![allow(unsafe_code)] // the queue's `add`

use alloc::boxed::Box;
use alloc::vec::Vec;

use tare_hal::virtio::Queue;

use super::readiness::{ATOMIC, CAPACITY};

/// Most bytes of one buffer.
const CHUNK: usize = 32 * 1024;

/// A queue of output.
pub(super) struct Output {
    queue: Queue,
    /// Buffers that the device has, by token.
    held: Vec<Option<Box<[u8]>>>,
    held_bytes: usize,
}

impl Output {
    /// Completions are looked for when there is no room.
    pub(super) fn new(mut queue: Queue) -> Self {
        queue.set_interrupts(false);
        Self {
            held: (0..queue.size()).map(|_| None).collect(),
            held_bytes: 0,
            queue,
        }
    }

    /// Gives the device as much of `from` as there is room for; how much, and whether the device
    /// wants a notification. With 0 an interrupt follows when there is room.
    pub(super) fn write(&mut self, from: &[u8]) -> (usize, bool) {
        let room = self.room_or_interrupt(from.len());
        if room == 0 {
            return (0, false);
        }
        let buffer: Box<[u8]> = from[..room].into();
        // SAFETY: the buffer is kept in `held`, untouched, until the queue has given its token
        // back.
        let token = unsafe { self.queue.add(&[&buffer], &mut []) };
        let Some(token) = token else {
            return (0, false);
        };
        self.held[usize::from(token)] = Some(buffer);
        self.held_bytes += room;
        (room, self.queue.should_notify())
    }

    /// Whether [`ATOMIC`] bytes have room. If not, an interrupt follows when they have.
    pub(super) fn has_room(&mut self) -> bool {
        self.room_or_interrupt(ATOMIC) != 0
    }

    /// The device says that it has taken something: it need not say so again.
    pub(super) fn interrupted(&mut self) {
        self.queue.set_interrupts(false);
    }

    fn room_or_interrupt(&mut self, wanted: usize) -> usize {
        self.reclaim();
        let room = self.room(wanted);
        if room != 0 {
            return room;
        }
        self.queue.set_interrupts(true);
        // What was taken before the device saw that comes without an interrupt.
        self.queue.barrier();
        self.reclaim();
        self.room(wanted)
    }

    fn room(&self, wanted: usize) -> usize {
        let free = CAPACITY - self.held_bytes;
        if !self.queue.has_room(1) || free < wanted.min(ATOMIC) {
            return 0;
        }
        wanted.min(free).min(CHUNK)
    }

    /// Frees what the device has taken.
    fn reclaim(&mut self) {
        while let Some(token) = self.queue.peek() {
            if self.queue.take(token).is_none() {
                return;
            }
            let held = self.held.get_mut(usize::from(token));
            if let Some(buffer) = held.and_then(Option::take) {
                self.held_bytes -= buffer.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tare_hal::virtio::{QueueOptions, Registers, Transport};

    use super::*;

    fn output(descriptors: u32) -> Output {
        let (registers, _) = Registers::new(3, 1, descriptors).leak();
        let mut transport = Transport::in_memory(registers).expect("a device");
        let options = QueueOptions {
            longest: 64,
            indirect: false,
            event_idx: false,
        };
        let queue = Queue::new(&mut transport, 1, options).expect("a queue");
        Output::new(queue)
    }

    #[test]
    fn no_more_than_a_pipe_holds_is_on_its_way() {
        let mut output = output(64);
        let bytes = vec![7; CAPACITY + 1];
        assert_eq!(output.write(&bytes), (CHUNK, true));
        assert_eq!(output.write(&bytes[CHUNK..]), (CHUNK, true));
        assert_eq!(output.queue.device_side().published(), 2);
        assert_eq!(output.write(&bytes[2 * CHUNK..]), (0, false));
        assert!(!output.has_room());
    }

    #[test]
    fn short_writes_are_not_divided_and_need_a_descriptor_each() {
        let mut output = output(4);
        assert_eq!(output.write(&[1; CHUNK]).0, CHUNK);
        assert_eq!(output.write(&[1; CHUNK - 10]).0, CHUNK - 10);
        assert_eq!(output.write(&[1; 11]).0, 0, "only 10 have room");
        assert_eq!(output.write(&[1; 10]).0, 10);
        assert_eq!(output.queue.device_side().published(), 3);
        let mut output = self::output(4);
        for _ in 0..4 {
            assert_eq!(output.write(b"x").0, 1);
        }
        assert_eq!(output.write(b"x").0, 0);
    }
}
