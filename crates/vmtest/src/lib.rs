//! The test kit: what a test needs of the computer ([`kvm`], [`image`], [`installed`]), what it
//! does where that is missing ([`skip`], [`lacks`]), waiting ([`eventually`]), and machines in
//! QEMU whose output is read ([`TestMachine`]). A test dependency only.
//!
//! Images are found where `cargo xtask guests` leaves them
//! (`target/x86_64-unknown-none/guest/`), or in `TARE_IMAGES`.
//!
//! A test that lacks an image or `/dev/kvm` prints `SKIP: reason`; with
//! `TARE_REQUIRE_KVM=1` in the environment such a skip is a failure, and with `TARE_REQUIRE_LINUX`
//! one for lack of a downloaded Linux ([`linux_or_skip`]). A test that lacks a program or a right
//! which set-up cannot give prints the same and never fails.

#![forbid(unsafe_code)]

mod files;
mod image;
mod needs;
mod run;
mod wait;

pub use files::files_below;
pub use image::{ImageError, built_image, image};
pub use needs::{free_port, installed, kvm, lacks, linux_or_skip, or_lacks, or_skip, skip};
pub use run::{RunError, RunOutput, TestMachine};
pub use tare_qemu::{Accelerator, MachineType};
pub use wait::{IO_TIMEOUT, TIMEOUT, eventually, is_listening, is_locked};
