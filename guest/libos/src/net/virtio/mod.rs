//! virtio-net (virtio 1.2, 5.1) as a [`Link`](tare_net::link::Link), over the hal's queues
//! and transports; as long as the device has them, 64 at most.
//!
//! The virtio-drivers crate's own network driver knows no checksum offload; this one leaves
//! TCP and UDP checksums to the device both ways where it offers that, and cutting
//! and joining TCP segments (ADR 96). Received frames are used where the device
//! wrote them, unless they are in several buffers; sent frames are built where
//! it reads them. What sending completes is collected only when the ring is
//! full, and the send queue has no interrupt; a device is notified once for a
//! batch of frames, and only when it asks for it.

#![cfg_attr(not(target_os = "none"), allow(dead_code))] // the host has no devices

mod buffer;
mod driver;
mod features;
mod header;

pub(crate) use buffer::ReceivedFrame;
pub(crate) use driver::{OpenError, VirtioNet};

#[cfg(test)]
mod tests;
