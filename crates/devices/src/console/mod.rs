//! virtio-console with several ports (virtio 1.2, 5.3): byte streams with names, each in
//! one direction, the driver's and the host's end of each opened and closed apart.
//!
//! A port of the host's input fills the driver's buffers while the driver has the port
//! open, and says that the host's end is closed behind the last byte. A port of the host's
//! output is emptied as fast as the host takes it: what it does not take stays in the queue.
//!
//! Limits: `VIRTIO_CONSOLE_F_MULTIPORT` is required; no size, no emergency write, no port
//! is a console (`VIRTIO_CONSOLE_CONSOLE_PORT`); at most [`CHUNK`] bytes move at a time and
//! [`BATCH`] chunks before other work gets its turn.

mod backend;
mod control;
mod counters;
mod device;
mod port;
#[cfg(test)]
mod tests;

pub use backend::{Backend, Moved};
pub use counters::ConsoleCounters;
pub use device::Console;
pub use port::{Direction, PortSettings};

/// Most bytes that move at a time.
pub const CHUNK: usize = 64 << 10;
/// Chunks and messages before other work gets its turn.
pub const BATCH: usize = 16;
/// Entries of a port's queues.
pub const QUEUE_SIZE: u16 = 64;
/// Entries of the control queues.
pub const CONTROL_QUEUE_SIZE: u16 = 32;
/// `VIRTIO_CONSOLE_F_MULTIPORT` (5.3.3).
pub(crate) const MULTIPORT: u64 = 1 << 1;
