//! How passt is started: at once, or when the guest needs it.
//!
//! [`Invocation`] is passt's command line. It goes into the background by itself once it is
//! ready, so its exit status says whether it started. Then no process of Tare has to collect it (no
//! zombie), it has its own session (no Ctrl-C), and ends when the machine's end of its socket closes.
//!
//! [`framing`] is how frames are on its socket.
//!
//! [`waiter`] is a process that holds passt's end of the socket until the first frame is in it, and
//! starts passt then (`docs/adr/0078-passt-when-it-is-needed.md`).
//!
//! Neighbours: `tare_launch` makes command lines and starts either; `tare-monitor` is the waiter's program
//! too; `tare_monitor::link` decides which frame needs passt. It and the relay of `tare_launch` send
//! frames.

pub mod framing;
mod invocation;
pub mod waiter;

pub use invocation::{Invocation, PasstError, Starting};
