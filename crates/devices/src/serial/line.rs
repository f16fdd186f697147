//! The port's interrupt line.

use std::io;
use std::sync::Arc;

use vm_superio::Trigger;
use vmm_sys_util::eventfd::EventFd;

use super::SerialCounters;

/// An interrupt line: an eventfd that the monitor binds as irqfd (edge) to
/// [`tare_abi::ports::COM1_IRQ`].
#[derive(Debug)]
pub struct IrqLine(pub EventFd);

/// The line as vm-superio pulls it.
pub(super) struct CountedLine {
    pub(super) line: IrqLine,
    pub(super) counters: Arc<SerialCounters>,
}

impl Trigger for CountedLine {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.counters.interrupts.increment();
        self.line.0.write(1)
    }
}
