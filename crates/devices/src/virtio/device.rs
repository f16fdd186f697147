//! The trait that a device behind the transport implements.

use std::sync::Arc;

use super::{QueueError, Virtqueue};
use crate::{CounterSource, GuestRam};

/// Whether a bounded piece of work completed all that was pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "More means: call again after one turn of the event loop"]
pub enum Progress {
    /// Nothing left until the next notification or readiness.
    Done,
    /// The budget is used up and there is more: call again after a turn of the
    /// event loop, without waiting for a notification.
    More,
}

impl Progress {
    /// `More` if either is.
    pub fn or(self, other: Self) -> Self {
        if self == Self::More { self } else { other }
    }
}

/// How the I/O thread looks for work of which no notification told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It looks again later: the driver need not notify it until then.
    Again,
    /// It sleeps then, until it is notified.
    Last,
}

/// What to wait for on a descriptor: a device's interest in its backend. When it is ready,
/// [`super::VirtioPci::backend_ready`] follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Data to read, or the other end closed.
    pub readable: bool,
    /// Room to write.
    pub writable: bool,
}

impl Interest {
    /// To read.
    pub const READ: Self = Self {
        readable: true,
        writable: false,
    };
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceKind {
    /// virtio device type (virtio 1.2, 5).
    pub id: u16,
    /// PCI class code, 24 bits.
    pub class: u32,
}

/// The live queues of a started device, by index. A queue that the driver did
/// not enable is missing.
pub struct Queues<'a> {
    /// Guest memory.
    pub memory: &'a GuestRam,
    pub(super) live: &'a mut [Option<Virtqueue>],
}

impl<'a> Queues<'a> {
    /// Queues by index, for a transport other than this crate's.
    pub fn new(memory: &'a GuestRam, live: &'a mut [Option<Virtqueue>]) -> Self {
        Self { memory, live }
    }

    /// Queue `index`, and the memory that it lies in.
    pub fn get(&mut self, index: usize) -> Option<(&mut Virtqueue, &'a GuestRam)> {
        let queue = self.live.get_mut(index)?.as_mut()?;
        Some((queue, self.memory))
    }
}

/// A device behind the transport.
///
/// `start` and `stop` are called on vCPU threads, `process` and
/// `backend_ready` on the I/O thread, all under the device's mutex; the others
/// on any thread. A call does a bounded piece of work. An error from queue work
/// sets DEVICE_NEEDS_RESET: the queue is broken and nothing more happens until
/// the driver resets the device.
pub trait VirtioDevice: Send {
    /// What it is.
    fn kind(&self) -> DeviceKind;

    /// Largest size of each queue, powers of two up to 32,768.
    fn queue_sizes(&self) -> &[u16];

    /// Feature bits of the device type; the transport adds its own.
    fn features(&self) -> u64;

    /// Whether the selected feature bits are consistent (some require others).
    fn accepts(&self, features: u64) -> bool {
        let _ = features;
        true
    }

    /// Reads device configuration; leaves `data`, which is zero, unchanged beyond its end.
    fn read_config(&self, offset: usize, data: &mut [u8]) {
        let _ = (offset, data);
    }

    /// The driver writes device configuration; `false` when it may not.
    fn write_config(&mut self, offset: usize, data: &[u8]) -> bool {
        let _ = (offset, data);
        false
    }

    /// DRIVER_OK, with the negotiated features.
    fn start(&mut self, features: u64);

    /// Reset, failure or a broken queue: returns to the state before `start`.
    fn stop(&mut self);

    /// The driver resets the device, which may not have been started: what it changed by
    /// [`write_config`](Self::write_config) is as at first.
    fn reset(&mut self) {}

    /// The driver notified queue `index`.
    fn process(&mut self, index: u16, queues: &mut Queues<'_>) -> Result<Progress, QueueError>;

    /// The I/O thread looks whether the driver has offered something. `More` if it had.
    fn look(&mut self, look: Look, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        let _ = (look, queues);
        Ok(Progress::Done)
    }

    /// The backend's descriptor is ready.
    fn backend_ready(&mut self, queues: &mut Queues<'_>) -> Result<Progress, QueueError> {
        let _ = queues;
        Ok(Progress::Done)
    }

    /// What the device waits for on the backend's descriptor while started.
    fn interest(&self) -> Interest {
        Interest::default()
    }

    /// When held completions must be delivered (`CLOCK_MONOTONIC`, ns), if there
    /// are any.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    /// The deadline may have passed: delivers what was held for long enough.
    fn deadline_passed(&mut self, queues: &mut Queues<'_>) -> Result<(), QueueError> {
        let _ = queues;
        Ok(())
    }

    /// Whether configuration changed since the last call, so that the driver
    /// must be notified.
    fn take_config_change(&mut self) -> bool {
        false
    }

    /// The device's counters, shared.
    fn counters(&self) -> Arc<dyn CounterSource>;
}
