//! `tare blk` as its users run it: bad input, and a Linux guest in QEMU with a file system on it.
#![allow(clippy::unwrap_used)]

#[path = "blk/bad.rs"]
mod bad;
#[path = "blk/cloud_hypervisor.rs"]
mod cloud_hypervisor;
#[path = "blk/daemon.rs"]
mod daemon;
#[path = "blk/hanging.rs"]
mod hanging;
#[path = "blk/kinds.rs"]
mod kinds;
#[path = "blk/linux.rs"]
mod linux;
#[path = "blk/queues.rs"]
mod queues;
#[path = "blk/rounds.rs"]
mod rounds;
#[path = "blk/several.rs"]
mod several;
mod support;
#[path = "blk/whole.rs"]
mod whole;
