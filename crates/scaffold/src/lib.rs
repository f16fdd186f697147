//! Appliances outside the workspace (`docs/adr/0053-appliances-outside-the-workspace.md`).
//!
//! [`create`] writes a crate from the files in `template/`, with the library OS taken from
//! [`Sources`]. [`Appliance`] is a crate that was read again, and [`Appliance::build`] makes
//! its image by cargo. [`CoreLibrary`] says how code for the guest's target is compiled
//! here; `cargo xtask guests` asks it too.
//!
//! Neighbours: `tare new`, `tare build` and `tare run` print what comes of it.
//!
//! Limits: one program for each crate; nothing is downloaded here, but cargo fetches what
//! its registry has.

mod appliance;
mod create;
mod image;
mod name;
mod sources;
mod toolchain;

pub use appliance::{Appliance, ManifestError};
pub use create::{CreateError, create};
pub use image::{BuildError, Image};
pub use name::{CrateName, NameError};
pub use sources::{Sources, SourcesError};
pub use toolchain::{CoreLibrary, GUEST_TARGET, ToolchainError};
