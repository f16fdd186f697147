//! The capabilities that the KVM descriptor reports.

use kvm_bindings::{
    KVM_CAP_BINARY_STATS_FD, KVM_CAP_HALT_POLL, KVM_CAP_X2APIC_API, KVM_CAP_X86_DISABLE_EXITS,
};
use kvm_ioctls::{Cap, VmFd};
use serde::{Deserialize, Serialize};

use crate::disable_exits::DisableExits;
use crate::kvm::Kvm;

/// What KVM offers beyond the requirements of a Tare machine, and how much of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Interrupts by event descriptors.
    pub irqfd: bool,
    /// Event descriptors for writes of any length.
    pub ioeventfd_any_length: bool,
    /// Entries of the GSI routing table; 0 without message routing.
    pub gsi_routes: u32,
    /// Halt polling can be set for each machine.
    pub halt_poll: bool,
    /// Exits that can be turned off.
    pub disable_exits: DisableExits,
    /// Statistics by descriptor.
    pub stats_fd: bool,
    /// TSC deadline mode of the local APIC's timer.
    pub tsc_deadline: bool,
    /// x2APIC with 32-bit IDs through the whole interface.
    pub x2apic_api: bool,
    /// Most vCPUs of one machine.
    pub max_vcpus: u32,
    /// Guest TSC frequency in kHz; `None` if the host's is unstable.
    pub tsc_khz: Option<u32>,
}

impl Capabilities {
    pub(crate) fn read(kvm: &Kvm, vm: &VmFd, tsc_khz: Option<u32>) -> Self {
        let positive = |value: i32| u32::try_from(value).unwrap_or(0);
        let number = |cap: u32| positive(vm.check_extension_raw(cap.into()));
        Self {
            irqfd: vm.check_extension(Cap::Irqfd),
            ioeventfd_any_length: vm.check_extension(Cap::IoeventfdNoLength),
            gsi_routes: positive(vm.check_extension_int(Cap::IrqRouting)),
            halt_poll: number(KVM_CAP_HALT_POLL) != 0,
            disable_exits: DisableExits::from_mask(number(KVM_CAP_X86_DISABLE_EXITS)),
            stats_fd: number(KVM_CAP_BINARY_STATS_FD) != 0,
            tsc_deadline: vm.check_extension(Cap::TscDeadlineTimer),
            x2apic_api: number(KVM_CAP_X2APIC_API) != 0,
            max_vcpus: u32::try_from(kvm.max_vcpus()).unwrap_or(u32::MAX),
            tsc_khz,
        }
    }
}
