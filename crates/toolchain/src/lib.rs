//! How programs and guest images are compiled.
//!
//! [`CoreLibrary`] is how code for the guest's target is compiled on this host. [`build`] has
//! the cargo commands that compile Tare's own programs and images, and [`command`] runs them.
//!
//! Neighbours: `tare-scaffold` builds appliances outside the workspace; `cargo xtask` builds
//! everything; `build-run`, the program of this crate, is the build of `make run`.
//!
//! Limits: no dependencies, so that `make run` does not wait for those of `cargo xtask`.

pub mod build;
pub mod command;
mod core_library;

pub use core_library::{CoreLibrary, GUEST_TARGET, ToolchainError};
