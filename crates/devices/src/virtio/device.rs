//! What a device behind the transport implements.

/// Whether a bounded piece of work finished what there was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "More means: call again after one turn of the event loop"]
pub enum Progress {
    /// Nothing left until the next notification or readiness.
    Done,
    /// The budget is used up and there is more: call again after a turn of the
    /// event loop, without waiting for a notification.
    More,
}

/// What a device waits for on its backend's descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Call [`super::VirtioPci::backend_ready`] when it can be read.
    pub readable: bool,
    /// Call it when it can be written.
    pub writable: bool,
}

/// A device.
pub trait VirtioDevice: Send {}
