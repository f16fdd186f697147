//! Settings of a machine: halt polling, and disabled exits.

use kvm_bindings::{KVM_CAP_HALT_POLL, KVM_CAP_X86_DISABLE_EXITS, kvm_enable_cap};

use super::{Vm, VmError};
use crate::disable_exits::DisableExits;

impl Vm {
    /// Longest time in ns that a halted vCPU of this machine polls before its
    /// thread is scheduled out (`KVM_CAP_HALT_POLL`); 0 turns polling off.
    pub fn set_halt_poll_ns(&self, longest_ns: u32) -> Result<(), VmError> {
        self.enable(
            KVM_CAP_HALT_POLL,
            u64::from(longest_ns),
            "KVM_CAP_HALT_POLL",
        )
    }

    /// Lets instructions run without exits; possible only before the first vCPU.
    pub fn disable_exits(&self, exits: DisableExits) -> Result<(), VmError> {
        self.enable(
            KVM_CAP_X86_DISABLE_EXITS,
            u64::from(exits.mask()),
            "KVM_CAP_X86_DISABLE_EXITS",
        )
    }

    fn enable(&self, cap: u32, value: u64, setting: &'static str) -> Result<(), VmError> {
        let cap = kvm_enable_cap {
            cap,
            args: [value, 0, 0, 0],
            ..Default::default()
        };
        self.fd
            .enable_cap(&cap)
            .map_err(|source| VmError::Setting { setting, source })
    }
}
