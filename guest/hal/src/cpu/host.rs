//! The CPU of tests on the host.

/// Index of this CPU, from 0.
pub fn index() -> usize {
    0
}

/// How many CPUs there are.
pub fn count() -> usize {
    1
}

/// Does nothing on the host, which has no fault handler to test.
pub fn fault(_address: usize) -> u8 {
    0
}
