//! Linux's system calls for one static program on the library OS (ADR 36).
//!
//! `run` finds the program in the initramfs, loads it, and gives its exit status.
//! The program has one process with threads; each is a thread of the library OS.
//!
//! | module | what it is |
//! |---|---|
//! | `load` | the program's file into memory; its first stack |
//! | `vdso` | the object through which it reads clocks |
//! | `space` | areas of the address space; what a page fault means |
//! | `sites` | system calls that became jumps |
//! | `shared` | what was changed in mappings of a disk's files |
//! | `memory` | its pages, as the machine gives them |
//! | `user` | bytes and words at the program's pointers |
//! | `run` | a thread's loop: run, serve a call, deliver signals |
//! | `program` | a program's file, found and mapped |
//! | `thread`, `context` | a thread as the others see it; what a call works with |
//! | `calls` | the system calls, by number |
//! | `futex`, `owned` | threads that wait at an address, and for its owner |
//! | `expiries` | time limits and timers that ran out, counted for the host |
//! | `interfaces` | the network's interfaces, as netlink, `ioctl` and `/proc` show them |
//! | `kernel_files`, `machine_files` | what a program reads of the machine and of itself |
//! | `signals`, `pending`, `delivery`, `timers`, `ring`, `looks` | what interrupts a thread |
//! | `capabilities`, `credentials` | its capabilities, users and groups |
//! | `files` | descriptors, and what they refer to |
//! | [`volume`] | a file system on a disk, for the tree of files |
//!
//! Neighbours: libos below; `crates/program` reads the file's layout. Limits: no fork,
//! x86-64 only. A call that is unknown returns ENOSYS and is logged once.

#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]
// On the host only the tests use what is left of the machine's side.
#![cfg_attr(not(target_os = "none"), allow(dead_code, unused_imports))]

extern crate alloc;

mod calls;
mod capabilities;
mod context;
mod credentials;
mod delivery;
mod errno;
mod expiries;
mod files;
mod futex;
mod interfaces;
mod kernel_files;
mod load;
mod looks;
mod machine_files;
mod memory;
mod owned;
mod pending;
mod process;
#[cfg(target_os = "none")]
mod program;
mod ring;
#[cfg(target_os = "none")]
mod robust;
#[cfg(target_os = "none")]
mod run;
mod shared;
mod signals;
mod sites;
mod space;
mod thread;
mod timers;
mod user;
mod vdso;
pub mod volume;

#[cfg(target_os = "none")]
pub use run::{MountDisk, RunError, run, run_with};

/// End of the addresses of programs that are linked at fixed ones, for `entry!`; at most half of
/// memory.
pub const LOW_END: u64 = 256 << 20;

pub use expiries::EXPIRIES;
