//! Observing virtual machines from outside: which there are ([`vm`]), and where
//! their CPU time, exits, halts and interrupts go ([`kvm`], `tare_account`); where the
//! time of any processes goes, on and off CPUs ([`sched`]); what an application asks
//! of its kernel ([`syscalls`]), here or in a guest ([`guest`], [`graph`]).
//!
//! Any KVM virtual machine of this host, Tare's or not. The sources are BPF on
//! trace points, `/proc`, and KVM's statistics. Whatever is missing on a host is
//! named in the result as [`Unavailable`], and the rest is reported.

#![forbid(unsafe_code)]

pub mod bpf;
pub mod graph;
pub mod guest;
pub mod kvm;
pub mod proc;
pub mod sched;
pub mod syscalls;
pub mod vm;

pub use tare_account::{Source, Unavailable};
