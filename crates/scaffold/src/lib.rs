//! Appliances outside the workspace (`docs/adr/0053-appliances-outside-the-workspace.md`).
//!
//! [`create`] writes a crate from the files in `template/`, with the library OS taken from
//! [`Sources`]. [`Appliance`] is such a crate, read from its directory, and
//! [`Appliance::build`] builds its image with cargo.
//!
//! Neighbours: `tare new`, `tare build` and `tare run` print the results; `tare-toolchain`
//! knows how code for the guest's target is compiled.
//!
//! Limits: one program for each crate; this crate downloads nothing, but cargo fetches
//! dependencies from its registry.

mod appliance;
mod create;
mod image;
mod name;
mod sources;

pub use appliance::{Appliance, ManifestError};
pub use create::{CreateError, create};
pub use image::{BuildError, Image};
pub use name::{CrateName, NameError};
pub use sources::{Sources, SourcesError};
