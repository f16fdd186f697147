//! One virtual processor: created from plain data, run by one thread, stopped from any thread.

mod emulation_fallback;
mod exit;
mod kick;
mod registers;
mod run;

use kvm_bindings::{KVM_MP_STATE_RUNNABLE, kvm_mp_state};
use kvm_ioctls::VcpuFd;
use tare_abi::entry::EntryState;
use thiserror::Error;

pub use exit::{Exit, RunError, SystemEvent};
pub use kick::KickHandle;

use crate::cpuid;
use crate::memory::GuestMemoryMmap;
use crate::probe::Probe;
use crate::stats::{StatsError, StatsFd};
use crate::vm::Vm;
use emulation_fallback::EmulationFallback;
use kick::KickTarget;
pub(crate) use registers::set_mode;

/// Why a vCPU cannot be created or set up.
#[derive(Debug, Error)]
pub enum VcpuError {
    /// KVM refused a step.
    #[error("KVM refused to {step} of vCPU {index}")]
    Step {
        /// What was being done.
        step: &'static str,
        /// Which vCPU.
        index: u8,
        /// KVM's reason.
        #[source]
        source: kvm_ioctls::Error,
    },
    /// KVM supports more CPUID leaves than its own interface can carry.
    #[error("KVM gave too many CPUID leaves for vCPU {index}")]
    Cpuid {
        /// Which vCPU.
        index: u8,
    },
    /// KVM does not take a model-specific register that every x86-64 has.
    #[error("KVM refused model-specific register {register:#x} of vCPU {index}")]
    Msr {
        /// The register.
        register: u32,
        /// Which vCPU.
        index: u8,
    },
}

/// One virtual processor. Not for sharing: the thread that runs it owns it;
/// others hold its [`KickHandle`] and its [`StatsFd`].
#[derive(Debug)]
pub struct Vcpu {
    // Before `fd`: kicks must end before the mapping that they write goes away.
    kick: KickTarget,
    fd: VcpuFd,
    index: u8,
    memory: GuestMemoryMmap,
    fallback: EmulationFallback,
}

impl Vcpu {
    pub(crate) fn new(
        vm: &Vm,
        probe: &Probe,
        topology: cpuid::Topology,
        ring: u8,
    ) -> Result<Self, VcpuError> {
        let index = topology.index;
        let vcpu = Self {
            fallback: EmulationFallback::of(probe),
            ..Self::bare(vm, index)?
        };
        let tsc_khz = vcpu.fd.get_tsc_khz().ok();
        let cpuid =
            cpuid::build(probe, topology, tsc_khz, ring).ok_or(VcpuError::Cpuid { index })?;
        vcpu.fd
            .set_cpuid2(&cpuid)
            .map_err(vcpu.failed("set the CPUID leaves"))?;
        vcpu.set_msrs()?;
        vcpu.set_local_interrupts()?;
        Ok(vcpu)
    }

    /// A vCPU as KVM makes it, for the probe.
    pub(crate) fn bare(vm: &Vm, index: u8) -> Result<Self, VcpuError> {
        kick::install_handler();
        let mut fd = vm
            .fd()
            .create_vcpu(u64::from(index))
            .map_err(|source| VcpuError::Step {
                step: "make the descriptor",
                index,
                source,
            })?;
        Ok(Self {
            kick: KickTarget::new(fd.get_kvm_run()),
            fd,
            index,
            memory: vm.memory().clone(),
            fallback: EmulationFallback::default(),
        })
    }

    /// Sets the first processor to its first instruction. The others wait for INIT, as KVM starts
    /// them.
    pub fn enter_at(&self, entry: &EntryState) -> Result<(), VcpuError> {
        self.set_entry_registers(entry)?;
        let runnable = kvm_mp_state {
            mp_state: KVM_MP_STATE_RUNNABLE,
        };
        self.fd
            .set_mp_state(runnable)
            .map_err(self.failed("set the run state"))
    }

    /// Index and APIC ID.
    pub fn index(&self) -> u8 {
        self.index
    }

    /// A handle by which other threads make [`Self::run`] return
    /// [`Exit::Interrupted`].
    pub fn kick_handle(&self) -> KickHandle {
        self.kick.kick_handle()
    }

    /// KVM's statistics of this vCPU. To be opened before the vCPU's thread
    /// starts: the call waits while the vCPU runs.
    pub fn stats(&self) -> Result<StatsFd, StatsError> {
        StatsFd::of(&self.fd)
    }

    pub(crate) fn fd(&self) -> &VcpuFd {
        &self.fd
    }

    fn failed(&self, step: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> VcpuError + use<> {
        let index = self.index;
        move |source| VcpuError::Step {
            step,
            index,
            source,
        }
    }
}
