//! virtio-net (virtio 1.2, 5.1): one receive and one transmit queue between
//! guest memory and a [`Link`].
//!
//! Each frame is copied once. No frame is lost because a buffer is full: without receive buffers
//! frames stay in the link, and while the link takes no more frames stay in the guest's queue.
//! Checksums that the guest leaves to the device are completed here when the link carries plain
//! frames.
//!
//! Each direction can be limited in frames and bytes a second ([`Net::set_limits`]): a
//! frame beyond the limit waits where it is, and a deadline of the I/O loop lets it go on.
//!
//! Limits: no control queue, no multiple queue pairs, no UDP segmentation.

pub mod checksum;
mod counters;
mod device;
mod header;
mod limit;
mod link;
mod offload;
mod receive;
#[cfg(test)]
mod tests;
mod transmit;

pub use counters::NetCounters;
pub use device::{Net, NetSettings};
pub(crate) use header::GSO_ECN;
pub use header::{
    FLAG_DATA_VALID, FLAG_NEEDS_CSUM, GSO_NONE, GSO_TCPV4, GSO_TCPV6, HEADER_LEN, NetHeader,
};
pub use link::{Link, LinkError, LinkFeatures, LinkOffload, RxFrame, RxOffload};

/// Index of the receive queue.
pub(crate) const RX: u16 = 0;
/// Index of the transmit queue.
pub(crate) const TX: u16 = 1;
/// Entries of each queue.
pub const QUEUE_SIZE: u16 = 256;
/// Frames moved in one direction before other work gets its turn.
pub const BATCH: usize = 64;
