//! One port: the state of the driver's and the host's end, and the messages that the driver has not
//! received yet.

use super::control::{ToDriver, Value};
use crate::virtio::Interest;

/// Which way a port's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host to the driver.
    Input,
    /// From the driver to the host.
    Output,
}

/// What a port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// By which the driver's side finds it.
    pub name: &'static str,
    /// Which way its bytes go.
    pub direction: Direction,
}

/// How far the driver is with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// It does not know of the port.
    Unknown,
    /// The driver must be notified of the port.
    Announced,
    /// The driver has been notified.
    Added,
    /// The driver uses the port, and must receive its name.
    Ready,
    /// The driver has the name, and receives every change.
    Named,
}

/// A port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) settings: PortSettings,
    step: Step,
    /// The driver's end.
    pub(super) driver: Value,
    /// The host's end, and what the driver knows of it.
    pub(super) host: Value,
    told: Option<Value>,
    /// The host's end would have blocked.
    pub(super) is_blocked: bool,
    /// The budget cut off the work on the port's queue.
    pub(super) is_unfinished: bool,
    /// Output: the queue was empty at some time since [`super::Console::start_drain`].
    pub(super) is_drained: bool,
    /// Bytes of the chain at the transmit queue's head that the host has.
    pub(super) taken: usize,
    /// What the backend watches for now.
    pub(super) watched: Interest,
}

impl Port {
    pub(super) fn new(settings: PortSettings) -> Self {
        Self {
            settings,
            step: Step::Unknown,
            driver: Value::No,
            host: Value::Yes,
            told: None,
            is_blocked: false,
            is_unfinished: false,
            is_drained: false,
            taken: 0,
            watched: Interest::default(),
        }
    }

    /// The driver was reset. The host's end stays as it is.
    pub(super) fn reset(&mut self) {
        *self = Self {
            host: self.host,
            watched: self.watched,
            ..Self::new(self.settings)
        };
    }

    /// The driver uses the device.
    pub(super) fn announce(&mut self) {
        self.step = self.step.max(Step::Announced);
    }

    /// The driver uses the port; `false` if it has not been notified of it yet.
    pub(super) fn make_ready(&mut self) -> bool {
        let is_known = self.step >= Step::Added;
        if is_known {
            self.step = self.step.max(Step::Ready);
        }
        is_known
    }

    /// Whether its messages have begun.
    pub(super) fn is_ready(&self) -> bool {
        self.step >= Step::Ready
    }

    /// The next message that the driver has not received.
    pub(super) fn owed(&self) -> Option<ToDriver> {
        match self.step {
            Step::Unknown | Step::Added => None,
            Step::Announced => Some(ToDriver::Add),
            Step::Ready => Some(ToDriver::Name(self.settings.name)),
            Step::Named => (self.told != Some(self.host)).then_some(ToDriver::Open(self.host)),
        }
    }

    /// The driver received that message, or lost it because its buffer was too short.
    pub(super) fn sent(&mut self, message: ToDriver) {
        match message {
            ToDriver::Add => self.step = Step::Added,
            ToDriver::Name(_) => self.step = Step::Named,
            ToDriver::Open(said) => self.told = Some(said),
        }
    }

    /// What to wait for at the host's end.
    pub(super) fn interest(&self) -> Interest {
        let input = self.settings.direction == Direction::Input;
        Interest {
            readable: self.is_blocked && input,
            writable: self.is_blocked && !input,
        }
    }
}
