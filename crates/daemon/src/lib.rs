//! The parts that Tare's long-running programs (`tare-monitor`, `tare blk`) share: the main
//! thread's loop over signals, control socket and events ([`main_loop`]), the other threads from
//! gate to join ([`threads`]), confinement, and statistics about the program itself. Each program
//! adds what it serves.

mod complaint;
pub mod disk;
pub mod heap;
pub mod http;
pub mod interface;
pub mod jail;
pub mod main_loop;
pub mod observe;
pub mod poll;
pub mod rules;
mod set_up;
pub mod signals;
pub mod threads;

/// Confinement of each thread.
pub use tare_confine as confine;

pub use complaint::complain;
pub use set_up::{SetUpError, failed_to};
