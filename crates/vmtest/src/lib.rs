//! Runs guest images in QEMU and gives what they printed: the outer ring of
//! tests. Images are found where `cargo xtask guests` leaves them
//! (`target/x86_64-unknown-none/guest/`, or `TARE_GUESTS`).
//!
//! A test that lacks QEMU, an image or `/dev/kvm` prints `SKIP: reason`; with
//! `TARE_REQUIRE_KVM=1` in the environment a skip is a failure.

#![forbid(unsafe_code)]

mod image;
mod needs;
mod run;

pub use image::{ImageError, image};
pub use needs::{kvm, or_skip, skip};
pub use run::{Machine, Outcome, RunError};
pub use tare_qemu::{Accelerator, MachineType};
