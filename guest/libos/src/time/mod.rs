//! Time: a monotonic [`Instant`] and the wall clock, [`SystemTime`]. Reading
//! either causes no exit.

mod instant;
mod system;

pub use core::time::Duration;

pub use instant::Instant;
pub use system::{SystemTime, UNIX_EPOCH};
