//! `tare run`: parse (`args`), plan, launch.
//!
//! ```text
//! plan ── linux (kernel, root, command line), image, image_check, machine_size, cmdline, ports, tap, disk, engine, rootfs::walk
//! launch ── run_dir, passt, rootfs::cpio, then one of
//!     monitor   tare becomes tare-monitor, or starts it in the background
//!     qemu      tare starts QEMU and waits for it
//! ```

mod arp;
mod background;
mod cmdline;
pub(crate) mod disk;
pub(crate) mod disk_choice;
pub(crate) mod engine;
mod frame_rules;
pub(crate) mod image;
mod image_check;
pub(crate) mod launch;
pub(crate) mod limits;
pub(crate) mod linux;
mod mac;
pub(crate) mod machine_size;
pub(crate) mod memory_size;
mod monitor;
pub(crate) mod net_choice;
mod own_cpus;
mod passt;
pub(crate) mod plan;
mod ports;
mod program;
pub(crate) mod publish;
pub(crate) mod qemu;
pub(crate) mod relay;
pub(crate) mod run_dir_guard;
mod tap;
pub(crate) mod user;

use crate::args::RunArgs;
use crate::failure::RunOutcome;

/// Runs a machine to its end, or until it is in the background.
pub(crate) fn run(args: RunArgs) -> RunOutcome {
    launch::launch(plan::plan(args)?)
}
