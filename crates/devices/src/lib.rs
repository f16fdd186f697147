//! Device models on guest memory: serial port, wall clock, power control, and
//! virtio network, block, console and entropy devices on a PCI bus with MSI-X.
//!
//! Nothing here calls KVM, starts a thread or waits: the monitor forwards guest
//! accesses and readiness of descriptors, and gives each device the traits by
//! which it reaches the outside ([`Interrupts`], [`MsixRoutes`], [`Kick`],
//! [`net::Link`], [`console::Backend`], [`rng::Entropy`]). The one exception is [`blk`], whose engine reads
//! and writes the disk's file itself.
//!
//! # Interface
//!
//! [`pci::PciBus`] holds the devices; the monitor forwards ports 0xcf8 to 0xcff, the ECAM window
//! and the BAR window to it. [`virtio::VirtioPci`] gets `notified(queue)` and `backend_ready()`
//! from the I/O loop, states by `interest()` which descriptors to watch and by `deadline_ns()` when
//! held interrupts are due; that deadline is the loop's only timeout, and `None` while nothing is
//! held. A device reaches outside by its [`Wiring`]: [`Interrupts`] (irqfds), [`MsixRoutes`]
//! (routes) and [`Kick`] (the I/O thread). The network's other end is a [`net::Link`]: a stream
//! socket or a tap in the monitor. Behind another transport (`crates/vhost`) a queue resumes where
//! another process left it, with a log of requests in flight in memory of the front-end.
//!
//! # Threads
//!
//! Each device sits under its own mutex. vCPU threads call what a guest's
//! access leads to ([`pci::PciBus`], [`serial::SerialPort::write`], ...); one
//! I/O thread calls everything that touches queues
//! ([`virtio::VirtioPci::notified`], [`virtio::VirtioPci::backend_ready`]).
//! Counters are atomic and shared: any thread reads them without the mutex.
//!
//! # The guest is hostile
//!
//! Whatever it writes, in whatever order: no call panics, none loops longer
//! than a fixed budget, none allocates in proportion to what the guest asks.
//! What is wrong is counted.

// Only `blk::raw_io` has unsafe code, and allows it itself.
#![deny(unsafe_code)]

#[cfg(feature = "bench")]
pub mod bench_entry;
pub mod blk;
mod clock;
pub mod cmos;
pub mod console;
#[cfg(test)]
mod corpus;
pub mod counters;
#[cfg(test)]
mod counters_used;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz_entry;
mod interrupt;
pub mod net;
pub mod pci;
pub mod power;
pub mod rng;
pub mod serial;
pub mod virtio;

pub use counters::CounterSource;
pub use interrupt::{Interrupts, Kick, MsiMessage, MsixRoutes, Wiring};

/// Guest memory as every device sees it. Cloning shares the mapping.
pub type GuestRam = vm_memory::GuestMemoryMmap<()>;
