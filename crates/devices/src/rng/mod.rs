//! virtio-rng (virtio 1.2, 5.4): fills the guest's buffers with random bytes.
//!
//! Limits: at most `REQUEST_LEN` bytes for a request, whatever its buffer
//! holds (the device may use any part of it, 5.4.6.1), and [`BATCH`] requests
//! before other work gets its turn.

mod counters;
mod device;
mod entropy;
#[cfg(test)]
mod tests;

pub use counters::RngCounters;
pub use device::Rng;
pub use entropy::{Entropy, OsEntropy};

/// Most bytes that one request gets.
pub(crate) const REQUEST_LEN: usize = 1024;
/// Requests answered before other work gets its turn.
pub const BATCH: usize = 16;
/// Entries of the queue.
pub const QUEUE_SIZE: u16 = 64;
