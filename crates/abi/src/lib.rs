//! The host-guest contract: what Tare's monitor promises a guest and what a
//! guest may rely on. Host crates and guest crates share this crate and
//! `tare-policy`, nothing else.
//!
//! Everything here is also true, as far as it can be, of other monitors: the
//! same image boots on QEMU, Firecracker and Cloud Hypervisor. A guest finds
//! out where it runs ([`cpuid`]) and what there is (ACPI, the command line).

#![no_std]
#![forbid(unsafe_code)]

pub mod cmdline;
pub mod cpuid;
pub mod entry;
pub mod exit;
pub mod expiries;
pub mod layout;
pub mod msi;
pub mod options;
pub mod ports;
pub mod rings;
pub mod streams;
