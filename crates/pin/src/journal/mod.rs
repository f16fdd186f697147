//! What was changed, written down before it is changed.
//!
//! One file for each placement, `TIME-PID.jsonl` in `placements/` of the state
//! directory; a line for each thing, appended and synced before the kernel call.
//! The file is locked (flock) as long as its maker works; a file whose lock is free
//! is either `kept`, a placement that shall last, or what a process that was killed
//! left behind. It is removed when all has been put back.

mod entry;
mod store;
mod undo;

pub(crate) use entry::{Begin, Entry};
pub(crate) use store::Journal;
pub use store::{Recovered, Store, StoreError, state_directory};
pub use undo::Undone;
pub(crate) use undo::write_cpusets;
