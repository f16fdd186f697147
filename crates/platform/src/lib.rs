//! Workloads as files, one root file system for all platforms, and what runs a
//! workload on each of them.
//!
//! ```text
//! workload   a file: install, prepare, run, check, metric
//! root       one tree (and a disk of it), with every workload installed
//! place      where a run happens: platform, pinned or not, how many CPUs
//! bare, container, machine, appliance
//!            start a step there: chroot, runc, a virtual machine (crun in it), or a chroot
//!            from which the step starts its program alone in a machine
//! step       what a step says while it runs: begin, end, verdict
//! program    installing and preparing, within a limit, by root
//! autogroup  one rule of sharing CPUs on all of them
//! journal    what was changed on this host, undone at the end or at the next start
//! ```
//!
//! Neighbours: `rootfs` (kernels, initramfs) below, `lab` (what to run, when, and
//! what it means) above. Machines are processes here, as they are to the lab.
//! Limits: needs root; Debian trees by mmdebstrap.

#![forbid(unsafe_code)]

pub mod appliance;
pub mod autogroup;
pub mod bare;
pub mod cgroup;
mod cgroup_end;
pub mod container;
pub mod container_engine;
pub mod journal;
pub mod machine;
mod output;
pub mod pin;
pub mod place;
pub mod processes;
mod program;
pub mod root;
pub mod step;
pub mod workload;

pub use journal::Journal;
pub use output::{Report, Watch};
pub use place::{Limit, Mode, Place, Platform};
pub use program::{ProgramError, Timeout};
pub use root::Root;
pub use step::{Step, StepError, Validity};
pub use workload::Workload;
