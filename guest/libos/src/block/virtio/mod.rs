//! virtio-blk (virtio 1.2, 5.2) as a [`Device`](super::Device), over the
//! hal's queues and transports.
//!
//! The virtio-drivers crate's own block driver has one queue of 16 descriptors and waits by
//! spinning; this one has as many queues as cores or as the device offers, the
//! interrupts of each on its core, 256 descriptors each or what the device takes,
//! and wakes the thread whose request completed. Completions are taken off the
//! ring in the interrupt handler, so that each interrupt is one for what completed
//! since the last.
//!
//! A request takes three descriptors (two for a flush), so 85 are in flight in
//! a queue of 256; further threads wait. `blk_indirect=on` on the command line
//! asks for indirect tables: 256 in flight, each with its own table.

#![cfg_attr(not(target_os = "none"), allow(dead_code))] // the host has no devices

mod driver;
mod features;
mod header;
mod ring;
mod setup;

pub(crate) use driver::VirtioBlk;
pub(crate) use setup::Tables;
