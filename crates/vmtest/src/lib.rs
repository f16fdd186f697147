//! Runs guest images in QEMU and gives what they printed: the outer ring of
//! tests. Images are found where `cargo xtask guests` leaves them
//! (`target/x86_64-unknown-none/guest/`, or `TARE_GUESTS`).
//!
//! A test that lacks QEMU, an image or `/dev/kvm` prints `SKIP: reason`; with
//! `TARE_REQUIRE_KVM=1` in the environment a skip is a failure.

#![forbid(unsafe_code)]

mod image;
mod run;

pub use image::{ImageError, image};
pub use run::{Accelerator, Machine, Model, Outcome, RunError};

/// What the test would have needed, if `value` is an error: prints why the
/// test is skipped.
///
/// # Panics
/// With `TARE_REQUIRE_KVM=1`, when skipping is not allowed.
pub fn or_skip<T, E: std::fmt::Display>(value: Result<T, E>) -> Option<T> {
    match value {
        Ok(value) => Some(value),
        Err(reason) => {
            println!("SKIP: {reason}");
            let required = std::env::var_os("TARE_REQUIRE_KVM").is_some_and(|v| v == "1");
            assert!(!required, "a skip is not allowed: {reason}");
            None
        }
    }
}
