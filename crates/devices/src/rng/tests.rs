//! Entropy for a guest.

use std::io;

use super::{BATCH, Entropy, OsEntropy, Rng};
use crate::virtio::Progress;
use crate::virtio::driver::{BUFFERS, Driver, MockMachine, WRITE, get};

/// A source without bytes.
struct Dry;

impl Entropy for Dry {
    fn fill(&mut self, _buffer: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

#[test]
fn a_guest_gets_bytes_that_differ() {
    let machine = MockMachine::new(Rng::new(OsEntropy));
    let mut rings = Driver::new(&machine).start(1 << 32, 8);
    rings[0].offer(&[(BUFFERS, 32, WRITE), (BUFFERS + 32, 32, WRITE)]);
    let _ = machine.io(|device| device.notified(0));
    assert_eq!(rings[0].take_used(), Some((0, 64)));
    let (first, second) = (
        get(&machine.memory, BUFFERS, 32),
        get(&machine.memory, BUFFERS + 32, 32),
    );
    assert_ne!(first, second);
    assert_eq!(machine.counter("bytes"), 64);
    assert_eq!(machine.counter("requests"), 1);
}

#[test]
fn a_flood_of_requests_is_answered_in_batches() {
    let machine = MockMachine::new(Rng::new(OsEntropy));
    let mut rings = Driver::new(&machine).start(1 << 32, 64);
    for _ in 0..BATCH + 1 {
        rings[0].offer(&[(BUFFERS, 1, WRITE)]);
    }
    assert_eq!(machine.io(|device| device.notified(0)), Progress::More);
    assert_eq!(usize::from(rings[0].used_index()), BATCH);
    assert_eq!(machine.io(|device| device.notified(0)), Progress::Done);
    assert_eq!(usize::from(rings[0].used_index()), BATCH + 1);
}

#[test]
fn a_dry_source_gives_empty_answers() {
    let machine = MockMachine::new(Rng::new(Dry));
    let mut rings = Driver::new(&machine).start(1 << 32, 8);
    rings[0].offer(&[(BUFFERS, 16, WRITE)]);
    let _ = machine.io(|device| device.notified(0));
    assert_eq!(rings[0].take_used(), Some((0, 0)));
    assert_eq!(machine.counter("source_errors"), 1);
}
