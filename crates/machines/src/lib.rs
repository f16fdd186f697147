//! Machines under test: how an experiment starts one, what it says, and what it costs.
//!
//! | module | what |
//! |---|---|
//! | [`appliance`] | machines under test behind a trait; `tare run` as a process |
//! | [`linux`] | Linux guests with example applications, their instructions counted |
//! | [`observe`] | CPU time, memory and counters, from outside |
//! | [`versions`] | which programs were run |
//! | [`by_hand`] | example applications from a terminal: what `tare-appliance` does |
//!
//! Neighbours: `tare-lab` above, whose records and reports know these by their traits;
//! `tare-load` (load generators), `tare-rootfs`, `tare-tailor` and `tare-qemu` below.
//! Machines are processes here.

#![forbid(unsafe_code)]

pub mod appliance;
pub mod linux;
pub mod observe;
pub mod versions;

/// Example applications by hand: what `tare-appliance` does.
pub mod by_hand {
    pub use crate::linux::by_hand::{ByHandError, answers, check, load, root, words};
}
