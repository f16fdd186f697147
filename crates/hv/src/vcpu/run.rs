//! `KVM_RUN` and the translation of its result.

#![allow(unsafe_code)]

use kvm_bindings as kvm;
use kvm_ioctls::VcpuExit;

use super::Vcpu;
use super::exit::{Exit, RunError, SystemEvent};
use crate::crash::{Crash, CrashCause};

/// Pages that KVM maps with `kvm_run`: the structure, port data, coalesced
/// writes. Port data lies in the second.
const RUN_PAGE_BYTES: usize = 4096;

/// An exit without its data, so that nothing is borrowed while it is handled.
enum Reason {
    PortRead,
    PortWrite,
    Mmio,
    Hlt,
    Shutdown,
    InternalError,
    FailEntry { reason: u64 },
    SystemEvent(SystemEvent),
    Interrupted,
    Unexpected,
}

impl Vcpu {
    /// Runs the guest until the monitor must act.
    pub fn run(&mut self) -> Result<Exit<'_>, RunError> {
        self.kick.enter();
        match self.enter()? {
            Reason::PortRead => self.port_read(),
            Reason::PortWrite => self.port_write(),
            Reason::Mmio => Ok(self.mmio()),
            Reason::Hlt => Ok(Exit::Hlt),
            Reason::Interrupted => Ok(Exit::Interrupted),
            Reason::SystemEvent(event) => Ok(Exit::SystemEvent(event)),
            Reason::Shutdown => Ok(Exit::Shutdown(self.crash(CrashCause::Shutdown))),
            Reason::InternalError => {
                let cause = self.internal_error();
                let crash = self.crash(cause);
                if self.fallback.emulate(&self.fd, &crash) {
                    Ok(Exit::Emulated)
                } else {
                    Ok(Exit::InternalError(crash))
                }
            }
            Reason::FailEntry { reason } => Ok(Exit::FailEntry(
                self.crash(CrashCause::FailEntry { reason }),
            )),
            Reason::Unexpected => {
                let exit_reason = self.fd.get_kvm_run().exit_reason;
                let cause = CrashCause::Unexpected { exit_reason };
                Ok(Exit::Unexpected(self.crash(cause)))
            }
        }
    }

    fn enter(&mut self) -> Result<Reason, RunError> {
        loop {
            let errno = match self.fd.run() {
                Ok(exit) => return Ok(Reason::of(&exit)),
                Err(errno) => errno,
            };
            match errno.errno() {
                // A vCPU that waited for its start-up interrupt has received it.
                libc::EAGAIN => {}
                libc::EINTR => {
                    self.kick.acknowledge();
                    return Ok(Reason::Interrupted);
                }
                _ => {
                    return Err(RunError::Run {
                        index: self.index,
                        source: errno,
                    });
                }
            }
        }
    }

    fn port_read(&mut self) -> Result<Exit<'_>, RunError> {
        let (port, width, data) = self.port_access()?;
        Ok(Exit::PioIn { port, width, data })
    }

    fn port_write(&mut self) -> Result<Exit<'_>, RunError> {
        let (port, width, data) = self.port_access()?;
        Ok(Exit::PioOut { port, width, data })
    }

    /// kvm-ioctls gives the data of a string instruction without the size of an
    /// item, so the shared page is read here.
    fn port_access(&mut self) -> Result<(u16, u8, &mut [u8]), RunError> {
        let index = self.index;
        let run = self.fd.get_kvm_run();
        // SAFETY: the exit reason was KVM_EXIT_IO, for which KVM fills `io`.
        let io = unsafe { run.__bindgen_anon_1.io };
        let bytes = usize::from(io.size) * io.count as usize;
        let offset = io.data_offset as usize;
        if offset != RUN_PAGE_BYTES || bytes > RUN_PAGE_BYTES {
            return Err(RunError::PortAccess { index });
        }
        let start = std::ptr::from_mut(run).cast::<u8>();
        // SAFETY: KVM maps at least two pages for `kvm_run` (KVM_PIO_PAGE_OFFSET
        // is 1): the page at `offset` lies in that mapping.
        let page = unsafe { start.add(offset) };
        // SAFETY: 1. The page exists as long as the vCPU, which the slice borrows.
        // 2. No other reference into it exists.
        let data = unsafe { std::slice::from_raw_parts_mut(page, bytes) };
        Ok((io.port, io.size, data))
    }

    fn mmio(&mut self) -> Exit<'_> {
        let run = self.fd.get_kvm_run();
        // SAFETY: the exit reason was KVM_EXIT_MMIO, for which KVM fills `mmio`.
        let mmio = unsafe { &mut run.__bindgen_anon_1.mmio };
        let address = mmio.phys_addr;
        let len = (mmio.len as usize).min(mmio.data.len());
        let data = &mut mmio.data[..len];
        if mmio.is_write == 0 {
            Exit::MmioRead { address, data }
        } else {
            Exit::MmioWrite { address, data }
        }
    }

    fn internal_error(&mut self) -> CrashCause {
        let run = self.fd.get_kvm_run();
        // SAFETY: the exit reason was KVM_EXIT_INTERNAL_ERROR, for which KVM fills `internal`.
        let internal = unsafe { run.__bindgen_anon_1.internal };
        let count = (internal.ndata as usize).min(internal.data.len());
        CrashCause::InternalError {
            suberror: internal.suberror,
            data: internal.data[..count].to_vec(),
        }
    }

    fn crash(&self, cause: CrashCause) -> Box<Crash> {
        Box::new(Crash::collect(cause, self.index, &self.fd, &self.memory))
    }
}

impl Reason {
    fn of(exit: &VcpuExit<'_>) -> Self {
        match exit {
            VcpuExit::IoIn(..) => Self::PortRead,
            VcpuExit::IoOut(..) => Self::PortWrite,
            VcpuExit::MmioRead(..) | VcpuExit::MmioWrite(..) => Self::Mmio,
            VcpuExit::Hlt => Self::Hlt,
            VcpuExit::Shutdown => Self::Shutdown,
            VcpuExit::InternalError => Self::InternalError,
            VcpuExit::FailEntry(reason, _) => Self::FailEntry { reason: *reason },
            VcpuExit::SystemEvent(kind, _) => Self::SystemEvent(SystemEvent::of(*kind)),
            VcpuExit::Intr => Self::Interrupted,
            _ => Self::Unexpected,
        }
    }
}

impl SystemEvent {
    fn of(kind: u32) -> Self {
        match kind {
            kvm::KVM_SYSTEM_EVENT_SHUTDOWN => Self::Shutdown,
            kvm::KVM_SYSTEM_EVENT_RESET => Self::Reset,
            kvm::KVM_SYSTEM_EVENT_CRASH => Self::Crash,
            other => Self::Other(other),
        }
    }
}
