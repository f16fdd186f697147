//! One queue as the front-end sets it up, before it lives.

use std::fs::File;

use tare_devices::virtio::{QueueSettings, Virtqueue};

use super::memory::Regions;
use super::notifier::Notifier;

/// Longest queue: QEMU's limit.
pub(crate) const MAX_SIZE: u16 = 1024;

/// Addresses of a queue's three parts, the front-end's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Descriptor table.
    pub(crate) descriptors: u64,
    /// Available ring.
    pub(crate) available: u64,
    /// Used ring.
    pub(crate) used: u64,
}

/// One queue's settings and descriptors.
#[derive(Default)]
pub(crate) struct Ring {
    /// Descriptors.
    pub(crate) size: u16,
    /// Where it lies.
    pub(crate) addresses: Option<Addresses>,
    /// Available index to go on at.
    pub(crate) base: u16,
    /// Whether it may work once it is started.
    pub(crate) enabled: bool,
    /// How the driver notifies; there while the queue is started.
    pub(crate) kick: Option<Notifier>,
    /// Where interrupts go.
    pub(crate) call: Option<File>,
    /// Where a broken queue is reported.
    pub(crate) error: Option<File>,
    /// The queue while it is started and not enabled.
    pub(crate) parked: Option<Virtqueue>,
    /// There is work without another notification.
    pub(crate) pending: bool,
    /// An interrupt may have been lost with the process before.
    pub(crate) owes_interrupt: bool,
}

impl Ring {
    /// The queue's place in guest memory; `None`: the front-end did not say, or
    /// it lies outside.
    pub(crate) fn settings(&self, regions: &Regions) -> Option<QueueSettings> {
        let Addresses {
            descriptors,
            available,
            used,
        } = self.addresses?;
        Some(QueueSettings {
            max_size: MAX_SIZE,
            size: self.size,
            vector: tare_devices::virtio::NO_VECTOR,
            enabled: true,
            descriptors: regions.translate(descriptors)?,
            available: regions.translate(available)?,
            used: regions.translate(used)?,
        })
    }
}
