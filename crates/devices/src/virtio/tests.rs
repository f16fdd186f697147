//! Transport and queues, driven through configuration space, BAR and guest
//! memory. The device behind is virtio-rng: one queue that the device writes to.

use proptest::prelude::*;

use super::driver::{
    BUFFERS, Driver, INDIRECT, MEMORY_LEN, MockMachine, NEXT, Ring, WRITE, get, take,
    write_descriptor,
};
use super::negotiation::{DRIVER_OK, FAILED, FEATURES_OK, NEEDS_RESET};
use super::{NO_VECTOR, Progress};
use crate::rng::{Entropy, REQUEST_LEN, Rng};

mod chains;
mod interrupts;
mod registers;

const VERSION_1: u64 = 1 << 32;
const EVENT_IDX: u64 = 1 << 29;
const INDIRECT_DESC: u64 = 1 << 28;
const STARTED: u8 = 0x0f;

/// Always the same byte.
struct Constant;

impl Entropy for Constant {
    fn fill(&mut self, buffer: &mut [u8]) -> std::io::Result<()> {
        buffer.fill(0x77);
        Ok(())
    }
}

type TestMachine = MockMachine<Rng<Constant>>;

fn machine() -> TestMachine {
    MockMachine::new(Rng::new(Constant))
}

/// The I/O thread's answer to a notification of the only queue.
fn notified(machine: &TestMachine) -> Progress {
    machine.io(|device| device.notified(0))
}

/// Whether a well-formed request is answered.
fn answers(machine: &TestMachine, ring: &mut Ring<'_>) -> bool {
    ring.offer(&[(BUFFERS, 16, WRITE)]);
    let _ = notified(machine);
    ring.take_used().is_some_and(|(_, written)| written == 16)
}
