//! virtio 1.2 over PCI: the transport that every virtio device shares, and
//! the queues on guest memory.
//!
//! [`VirtioPci`] is the function on the bus: capabilities (4.1.4), status and
//! features (3.1, 2.2), queue set-up, interrupts. A device implements
//! [`VirtioDevice`] and sees only negotiated features and live [`Virtqueue`]s.
//!
//! Set-up and operation are different types: what the driver writes before
//! DRIVER_OK is plain [`settings`](QueueSettings), checked when it enables a
//! queue; live queues exist from DRIVER_OK to reset, failure or a broken queue.
//!
//! Limits: modern devices only (no legacy interface), split queues, no queue
//! reset, no in-order or packed rings, no notification data, interrupts by
//! MSI-X only. A driver without MSI-X reads the ISR status.

mod chain;
mod common;
mod counters;
mod descriptors;
mod device;
#[cfg(any(test, feature = "fuzz", feature = "bench"))]
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) mod driver;
mod function;
mod inflight;
mod layout;
mod negotiation;
mod queue;
mod queue_error;
mod registers;
mod resume;
mod settings;
#[cfg(test)]
mod tests;
mod transport;

pub use chain::{Chain, Span};
pub(crate) use chain::{copy_from, copy_to};
pub use counters::{TransportCounters, VirtioCounters};
pub use device::{DeviceKind, Interest, Look, Progress, Queues, VirtioDevice};
pub use inflight::InflightLog;
pub use queue::{Decision as InterruptDecision, Virtqueue};
pub use queue_error::QueueError;
pub use resume::EventIdx;
pub use settings::QueueSettings;
pub use transport::VirtioPci;

/// Vendor of all virtio devices (4.1.2).
pub(crate) const VENDOR: u16 = 0x1af4;
/// Device number of a modern virtio device of type 0.
pub(crate) const DEVICE_BASE: u16 = 0x1040;
/// A queue or configuration without MSI-X vector (4.1.5.1.2).
pub const NO_VECTOR: u16 = 0xffff;
