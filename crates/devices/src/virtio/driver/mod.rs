//! The driver's side, for tests and fuzzing: a machine with one device, and a driver that reaches
//! it as a guest does, through configuration space, BAR and rings in guest memory.

mod guest;
mod machine;
mod ring;

use vm_memory::{Bytes, GuestAddress};

use crate::GuestRam;

pub(crate) use guest::Driver;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use machine::MEMORY_LEN;
pub(crate) use machine::MockMachine;
#[cfg(test)]
pub(crate) use machine::take;
pub(crate) use ring::{BUFFERS, Ring, WRITE};
#[cfg(test)]
pub(crate) use ring::{INDIRECT, NEXT, write_descriptor};

/// Writes guest memory.
#[allow(clippy::unwrap_used)]
pub(crate) fn put(memory: &GuestRam, address: u64, bytes: &[u8]) {
    memory.write_slice(bytes, GuestAddress(address)).unwrap();
}

/// Reads guest memory.
#[allow(clippy::unwrap_used)]
pub(crate) fn get(memory: &GuestRam, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory
        .read_slice(&mut bytes, GuestAddress(address))
        .unwrap();
    bytes
}
