//! A program's view of itself: its threads' CPU time and its memory, gathered only when a client
//! requests them; all statistics as Prometheus text.
//!
//! The files of /proc are opened before the program confines itself.

mod memory;
pub(crate) mod prometheus;
mod threads;

pub use memory::MemoryObserver;
pub use threads::ThreadObserver;
