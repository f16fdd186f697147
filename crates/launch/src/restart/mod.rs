//! `--restart`: starts machines again when they fail (ADR 54).
//!
//! A keeper (the process of `tare run`, or with `--detach` one in its own session) holds the lock
//! of the run directory and makes one attempt after the other: it starts `tare` with the same
//! arguments, which takes the directory over and then becomes the monitor, or waits for QEMU. The
//! end that the monitor records in the directory says whether the machine failed. A machine ends
//! with its keeper, even if that is killed.

mod attempt_end;
mod backoff;
mod keeper;
mod policy;
mod signals;

pub use keeper::{keep, keeper_from_args};
pub use policy::{Restart, RestartError};
