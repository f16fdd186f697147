//! What to change about how an application runs, with the evidence for it.
//!
//! [`Facts`] say what runs where and what was measured of it; [`rules::advise`]
//! applies every rule and gives [`Advice`], each with the slide or the run that
//! supports it, the gain that is expected, and the command; and says of what it
//! cannot tell why not ([`Untold`]). Pure: [`Runs`] are figures of the lab's runs,
//! which others read.

#![forbid(unsafe_code)]

mod advice;
mod facts;
pub mod rules;
mod runs;
mod workload;

pub use advice::{Advice, Change, Gain, Report, Untold};
pub use facts::{Disk, Facts, Halting, Layout, Platform, Resources, words};
pub use runs::{Figure, Runs};
pub use workload::{Workload, workload, workloads};
