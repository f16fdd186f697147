//! A Linux kernel cut to one application: from profile to configuration, build
//! and proof.
//!
//! From nothing upward (`allnoconfig` and what is listed): [`choose`] turns a
//! profile into configuration symbols, each with the reasons why, by the
//! [`mapping`], which is data. [`kconfig`] has the kernel's own scripts solve
//! the dependencies, and holds what was granted against what was asked; [`starter`] starts them
//! in a jail.
//! [`build`] makes the image and [`lock`] says what it was made of; [`kernel`]
//! is all of that in one call. [`tailoring`] proves it, and where the proof fails finds
//! what is missing: [`missing`] by the guest's words, `refused` by its system calls,
//! [`search`] by trying; [`several`] does so for one kernel of several applications.
//! [`training`] counts what runs of an instrumented kernel, and by its [`counts`] it is optimized.
//! [`tuning`] then finds boot parameters and sysctls that make the application faster.
//!
//! Neighbours: `profile` (what is requested), `rootfs` (Debian's packages, roots of
//! guests) below; `lab` and `cli` above.
//! Limits: x86-64, Linux 6.1.

#![forbid(unsafe_code)]

pub mod build;
pub mod calls;
pub mod check;
pub mod choose;
pub mod code;
mod connection;
pub mod counter;
pub mod counts;
pub mod cut;
pub mod cves;
pub mod dialog;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz_entry;
pub mod kbuild;
pub mod kconfig;
pub mod kernel;
pub mod lock;
pub mod machine;
pub mod mapping;
pub mod missing;
mod objects;
mod output;
pub mod prove;
mod refused;
pub mod report;
pub mod root;
pub mod search;
pub mod several;
pub mod source;
pub mod spec;
pub mod starter;
pub mod tailoring;
pub mod target;
#[cfg(test)]
mod testing;
pub mod toolchain;
pub mod training;
pub mod tuning;
