//! `tare blk`: Tare's block device ([`tare_devices::blk`], with its coalescing)
//! as a vhost-user back-end for QEMU, Cloud Hypervisor and others.
//!
//! ```text
//! main ── signals, control socket (routes), the end
//! io ──── the front-end's messages, queues, the engine (io, session); one for each disk
//! ```
//!
//! The protocol's messages are the `vhost` crate's. Queues are those of the
//! monitor's devices: this is one more transport beside virtio over PCI, with
//! eventfds of the front-end's for notifications and interrupts. Neither thread
//! polls or arms a timer, besides the deadline of a held interrupt.
//!
//! A front-end is hostile as a guest is: an invalid message is counted and ends
//! its connection; the next one is served. What is in flight when it goes is
//! ended first. The log of what is in flight (`INFLIGHT_SHMFD`) lets a front-end
//! go on with a new process after this one was killed.
//!
//! Limits: one front-end of a disk at a time, no migration, no polled queues, no packed
//! rings.

mod activation;
mod counters;
mod exit_reason;
mod failure;
#[cfg(any(test, feature = "testing"))]
pub mod front;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz_entry;
mod incoming;
mod io;
mod limits;
mod routes;
mod serve;
mod session;
mod socket;
mod watchdog;

pub use activation::{ActivationError, Supervisor, sockets as passed_sockets};
pub use counters::VhostCounters;
pub use exit_reason::ExitReason;
pub use limits::{MOST_DISKS, TooFewDescriptors, allow_descriptors};
pub use serve::{BlkDaemon, ServedDisk, serve};
pub use socket::{Socket, SocketError};
