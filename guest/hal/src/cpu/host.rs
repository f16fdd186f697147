//! The CPU of tests on the host.

/// Index of this CPU, from 0.
pub fn index() -> usize {
    0
}

/// How many CPUs there are.
pub fn count() -> usize {
    1
}

/// Has nothing to fault with on the host.
pub fn fault(_address: usize) -> u8 {
    0
}
