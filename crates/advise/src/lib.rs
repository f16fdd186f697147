//! What to change about how an application runs, with the evidence for it.
//!
//! [`Facts`] state what runs where and what was measured; [`rules::advise`]
//! applies every rule and gives [`Advice`], each with the source or the kept run that
//! supports it, the expected gain, and the command; and for a rule that does not apply
//! here the reason ([`NotApplicable`]). Pure: the caller reads the figures of kept runs
//! ([`Runs`]).

#![forbid(unsafe_code)]

mod advice;
mod facts;
pub mod rules;
mod runs;
mod workload;

pub use advice::{Advice, Change, Gain, NotApplicable, Report};
pub use facts::{Disk, Facts, Halting, Layout, Platform, Quota, Resources, class_name};
pub use runs::{Figure, Runs};
pub use workload::{Workload, workload, workloads};
