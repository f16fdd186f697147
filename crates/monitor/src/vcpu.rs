//! A vCPU's thread: runs the guest, forwards its accesses, reports why it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tare_devices::power::PowerEvent;
use tare_hv::{Exit, SystemEvent, Vcpu};

use crate::bus::Bus;
use crate::exit_reason::{ExitReason, ShutdownHandle};
use crate::exits::ExitCounters;

/// What a vCPU's thread works with.
pub(crate) struct VcpuLoop {
    /// The processor.
    pub vcpu: Vcpu,
    /// The host CPU that belongs to this vCPU alone, if any.
    pub dedicated_cpu: Option<u16>,
    /// Where its accesses go.
    pub bus: Arc<Bus>,
    /// Counts its exits.
    pub exits: Arc<ExitCounters>,
    /// Takes the reason to end the run.
    pub shutdown: ShutdownHandle,
    /// Set before a kick: the thread returns.
    pub stop: Arc<AtomicBool>,
}

impl VcpuLoop {
    /// Runs until the guest ends or [`Self::stop`] is set and the vCPU kicked.
    pub(crate) fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            if let Some(reason) = self.turn() {
                self.shutdown.end(reason);
                return;
            }
        }
    }

    fn turn(&mut self) -> Option<ExitReason> {
        let exit = match self.vcpu.run() {
            Ok(exit) => exit,
            Err(error) => return Some(ExitReason::Failed(tare_control::sentence::chain(&error))),
        };
        self.exits.count(&exit);
        match exit {
            Exit::PioIn { port, width, data } => {
                for item in data.chunks_mut(width.max(1).into()) {
                    self.bus.port_read(port, item);
                }
                None
            }
            Exit::PioOut { port, width, data } => data
                .chunks(width.max(1).into())
                .find_map(|item| self.bus.port_write(port, item))
                .map(of_power),
            Exit::MmioRead { address, data } => {
                self.bus.memory_read(address, data);
                None
            }
            Exit::MmioWrite { address, data } => {
                self.bus.memory_write(address, data);
                None
            }
            // With an in-kernel irqchip KVM does not return on HLT.
            Exit::Hlt | Exit::Emulated | Exit::Interrupted => None,
            Exit::Shutdown(crash) => Some(ExitReason::TripleFault(crash)),
            Exit::InternalError(crash) | Exit::FailEntry(crash) | Exit::Unexpected(crash) => {
                Some(ExitReason::KvmInternal(crash))
            }
            Exit::SystemEvent(event) => Some(of_system(event)),
        }
    }
}

/// Pins the calling thread to the host CPU that belongs to its vCPU alone, if any; before the
/// thread is confined.
pub(crate) fn pin_thread(dedicated_cpu: Option<u16>) -> Result<(), ExitReason> {
    let Some(cpu) = dedicated_cpu else {
        return Ok(());
    };
    let mut set = CpuSet::new();
    set.set(usize::from(cpu));
    let kept = sched_setaffinity(None, &set).and_then(|()| sched_getaffinity(None));
    let why = match kept {
        Ok(now) if now == set => return Ok(()),
        Ok(_) => "the kernel put it elsewhere".to_owned(),
        Err(errno) => errno.to_string(),
    };
    let why = format!("a vCPU cannot be kept on CPU {cpu}: {why}");
    Err(ExitReason::Failed(why))
}

fn of_power(event: PowerEvent) -> ExitReason {
    match event {
        PowerEvent::PowerOff => ExitReason::PowerOff,
        PowerEvent::Reset => ExitReason::Reset,
        PowerEvent::Exit(exit) => ExitReason::Guest(exit),
    }
}

fn of_system(event: SystemEvent) -> ExitReason {
    match event {
        SystemEvent::Shutdown => ExitReason::PowerOff,
        SystemEvent::Reset => ExitReason::Reset,
        SystemEvent::Crash => ExitReason::GuestCrash,
        SystemEvent::Other(number) => {
            ExitReason::Failed(format!("KVM reported an unknown system event, {number}"))
        }
    }
}
