//! Guest hardware: boot, paging, traps, APIC, clocks, ports, PCI, DMA and the
//! context switch; all of the guest's unsafe code. `libos` is the only user.
//!
//! The crate also compiles for the host, where parsing and locks have their
//! tests; what touches the machine exists only for `target_os = "none"`.

#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

pub mod boot;
pub mod clock;
pub mod cpu;
pub mod lock;
pub mod once;
pub mod virtio;
