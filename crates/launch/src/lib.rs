//! From a user's request to a running machine.
//!
//! [`plan()`] checks a [`Request`] against this host, opens files and changes nothing.
//! [`launch()`] makes the run directory, takes its lock, starts passt or what waits for its need, and then becomes
//! `tare-monitor`, starts it in the background, or starts QEMU and waits for it.
//!
//! ```text
//! plan ── linux (kernel, root, command line), image, image_check, machine_size, cmdline, ports, tap, disk, engine, rootfs::walk
//! launch ── run_dir, link (passt), rootfs::cpio, then one of
//!     monitor   this process becomes tare-monitor, or starts it in the background
//!     qemu      this process starts QEMU and waits for it
//! ```
//!
//! Neighbours: `tare` reads the command line and prints; `tare_control` has the
//! monitor's configuration, run directories and exit codes. Errors are typed by module and
//! say exit code and hint ([`Explain`]); [`Failure`] is any of them.
//!
//! [`keep()`] launches again what fails (`restart`). [`jailed_guest`] starts QEMU in the same jail for
//! guests that are not machines: proofs and observations. [`building`] starts what a kernel's
//! sources execute. [`reload`] gives a machine that runs another root.
//!
//! The calling program starts itself again to supervise QEMU, to confine it and to keep a machine,
//! so its `main` calls [`confined::become_program`], [`supervise::from_args`],
//! [`keeper_from_args`] and [`attempt_from_args`] before it reads its arguments.

mod arp;
mod attempt;
mod background;
pub mod building;
mod cmdline;
pub mod confined;
mod dedicated_cpus;
pub mod disk;
pub mod disk_choice;
pub mod ending;
pub mod engine;
mod environment;
pub mod failure;
mod forward;
mod frame_rules;
pub mod guest_signals;
mod hold;
pub mod image;
mod image_check;
mod initrd;
mod interruption;
mod io_devices;
pub mod jailed_guest;
mod launch;
pub mod limits;
mod link;
pub mod linux;
pub mod log_bound;
mod mac;
mod machine;
pub mod machine_size;
pub mod memory_choice;
pub mod memory_size;
mod monitor;
pub mod net_choice;
mod packed_files;
mod passt;
mod plan;
mod ports;
mod ports_process;
pub mod program;
pub mod publish;
mod qemu;
pub mod rates;
pub mod record;
pub mod reload;
mod request;
mod restart;
mod root_errors;
mod run_dir_guard;
pub mod site;
pub mod supervise;
mod tap;
pub mod user;
mod virtiofsd;
pub mod volume;
mod volume_watch;

pub use attempt::{Attempt, Output, attempt_from_args};
pub use failure::{Explain, Failure, RunResult};
pub use interruption::Interrupted;
pub use launch::launch;
pub use machine::{Launched, RunFileError};
pub use plan::{Plan, plan};
pub use request::{JobMode, Request};
pub use restart::{Restart, RestartError, keep, keeper_from_args};
pub use run_dir_guard::{Name, RunDirGuard};

/// Where messages of a run go: the user's terminal.
pub trait Terminal {
    /// Prints one line that the user should know, not an error.
    fn warn(&self, text: &str);
    /// Prints the end of the console's log of a machine that did not start, as the guest and its
    /// engine wrote it.
    fn console(&self, log: &[u8]);
}
