//! A Linux kernel cut to one application: from profile to configuration, build
//! and proof.
//!
//! From nothing upward (`allnoconfig` and what is listed): [`choose`] turns a
//! profile into configuration symbols, each with the reasons why, by the
//! [`mapping`], which is data. [`kconfig`] has the kernel's own scripts solve
//! the dependencies, and holds what was granted against what was asked.
//! [`build`] makes the image and [`lock`] says what it was made of.

#![forbid(unsafe_code)]

pub mod build;
pub mod choose;
pub mod cut;
pub mod kconfig;
pub mod lock;
pub mod mapping;
pub mod source;
