//! A program seen from inside: its threads' time and its memory, gathered when
//! a client requests them and never otherwise; all statistics as Prometheus text.
//!
//! The files of /proc are opened before the program confines itself.

mod memory;
pub(crate) mod prometheus;
mod threads;

pub use memory::MemoryObserver;
pub use threads::ThreadObserver;
