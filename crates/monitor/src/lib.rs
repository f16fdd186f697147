//! `tare-monitor`: one virtual machine, its threads, its control socket, confined.
//!
//! ```text
//! main ── signals, end of the run, control socket (http, routes, observe)
//! vcpuN ─ KVM_RUN, port and memory accesses (vcpu, bus), console output
//! io ──── queues, links, standard streams (io, link, console)
//! ```
//!
//! `machine` assembles the crates below (`hv`, `boot`, `devices`); [`run()`] is the program. No
//! thread polls, and the only timer (`halt`) runs on the process's CPU time: an idle machine wakes
//! no thread.
//!
//! Limits: one machine for each process; x86-64 Linux hosts.

mod assembly;
pub mod bus;
mod complaint;
pub mod console;
mod disk;
mod drain;
mod ending;
pub mod exit_reason;
pub mod exits;
mod guest_files;
pub mod halt;
mod huge_pages;
pub mod inherit;
pub mod io;
pub mod link;
mod machine;
pub mod observe;
mod ports_process;
mod routes;
mod run;
mod settings;
mod signals;
mod start;
mod vcpu;
pub mod wiring;

pub use ports_process::from_args as ports_from_args;
pub use run::run;
pub(crate) use tare_daemon::{confine, heap, http, poll};
