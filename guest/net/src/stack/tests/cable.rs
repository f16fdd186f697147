//! A cable between two stacks, which can lose, double, reorder and damage.

use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::frame::{Checksums, Medium};
use crate::link::{Link, Properties, Received, SendChecksums};
use crate::waiters::Wake;

/// Frames lost, doubled, moved back or damaged, of 1,000.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) lost: u32,
    pub(super) doubled: u32,
    pub(super) reordered: u32,
    pub(super) damaged: u32,
}

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of a cable.
pub(super) struct End {
    mac: [u8; 6],
    incoming: Queue,
    outgoing: Queue,
    pub(super) faults: Faults,
    random: u64,
    /// Frames that the link takes before it is full.
    pub(super) room: usize,
    /// Frames that it takes when it is empty.
    pub(super) ring: usize,
    pub(super) sent: u64,
}

pub(super) fn cable(seed: u64) -> (End, End) {
    let (left, right) = (Queue::default(), Queue::default());
    let end = |mac, incoming: &Queue, outgoing: &Queue| End {
        mac: [2, 0, 0, 0, 0, mac],
        incoming: Rc::clone(incoming),
        outgoing: Rc::clone(outgoing),
        faults: Faults::default(),
        random: seed.wrapping_add(u64::from(mac)) | 1,
        room: 64,
        ring: 64,
        sent: 0,
    };
    (end(1, &left, &right), end(2, &right, &left))
}

impl End {
    fn chance(&mut self, of_1000: u32) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1000 < u64::from(of_1000)
    }

    /// Puts a frame in front of this end as if the other had sent it.
    pub(super) fn inject(&mut self, frame: &[u8]) {
        self.incoming.borrow_mut().push_back(frame.to_vec());
    }

    /// Whether nothing waits to be taken by this end.
    pub(super) fn is_quiet(&self) -> bool {
        self.incoming.borrow().is_empty()
    }

    /// What this end has sent and the other not taken.
    pub(super) fn take_sent(&mut self) -> Vec<Vec<u8>> {
        self.outgoing.borrow_mut().drain(..).collect()
    }
}

impl Link for End {
    type Buffer = Vec<u8>;

    fn properties(&self) -> Properties {
        Properties {
            medium: Medium::Ethernet,
            mac: self.mac,
            mtu: 1500,
            checksums: SendChecksums::Software,
            together: 0,
        }
    }

    fn receive(&mut self) -> Option<Received<Vec<u8>>> {
        let buffer = self.incoming.borrow_mut().pop_front()?;
        Some(Received {
            buffer,
            checksums: Checksums::Unverified,
        })
    }

    fn recycle(&mut self, _buffer: Vec<u8>) {}

    fn send_ready(&mut self) -> bool {
        self.outgoing.borrow().len() < self.room
    }

    fn send_room(&mut self) -> usize {
        self.room.saturating_sub(self.outgoing.borrow().len())
    }

    fn send_room_max(&self) -> usize {
        self.ring
    }

    fn send<R>(&mut self, len: usize, _cut: u16, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        self.sent += 1;
        let faults = self.faults;
        if self.chance(faults.damaged) {
            let at = self.random as usize % frame.len();
            frame[at] ^= 1 << (self.random >> 32 & 7);
        }
        if !self.chance(faults.lost) {
            let doubled = self.chance(faults.doubled).then(|| frame.clone());
            let reordered = self.chance(faults.reordered);
            let mut outgoing = self.outgoing.borrow_mut();
            match outgoing.len() {
                len if reordered && len > 0 => outgoing.insert(len - 1, frame),
                _ => outgoing.push_back(frame),
            }
            outgoing.extend(doubled);
        }
        result
    }

    fn flush(&mut self) {}
}

/// A thread that counts how often it was woken.
#[derive(Clone, Default)]
pub(super) struct Sleeper(pub(super) Rc<Cell<u32>>);

impl Wake for Sleeper {
    fn wake(self) {
        self.0.set(self.0.get() + 1);
    }

    fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}
