//! Observing virtual machines from outside: which there are ([`vm`]), and where
//! their CPU time, exits, halts and interrupts go ([`kvm`], `tare_account`); where the
//! time of any processes goes, on and off CPUs ([`sched`]); what an application asks
//! of its kernel ([`syscalls`]), here or in a guest ([`guest`], [`graph`]).
//!
//! Any KVM virtual machine of this host, Tare's or not. The sources are BPF on
//! trace points, `/proc`, and KVM's statistics. Whatever is missing on a host is
//! named in the result as [`Unavailable`], and the rest is reported.
//!
//! # Interface
//!
//! [`vm`] lists and finds the machines of this host and names their threads. [`kvm::Observer`]
//! gives an `Account` of each for a window: threads with their time on and off CPUs, exits by kind,
//! halts and polls, interrupts, what was [`Unavailable`] and why, and what the observation cost.
//! [`sched::Observer`] does the same for any processes. [`syscalls::Recorder`] counts in BPF maps
//! and gives a `tare_profile::Profile`; the program `tare-observe` is the same in a guest. [`bpf`]
//! loads, attaches and reads any object of `crates/probe/bpf`.

#![forbid(unsafe_code)]

pub mod bpf;
pub mod clock;
pub mod graph;
pub mod guest;
pub mod kvm;
pub mod proc;
pub mod sched;
pub mod syscalls;
pub mod vm;

pub use tare_account::{Source, Unavailable};
