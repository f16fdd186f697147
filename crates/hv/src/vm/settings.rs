//! Settings of a machine: halt polling, and exits that a dedicated vCPU does
//! without.

use kvm_bindings::{
    KVM_CAP_HALT_POLL, KVM_CAP_X86_DISABLE_EXITS, KVM_X86_DISABLE_EXITS_CSTATE,
    KVM_X86_DISABLE_EXITS_HLT, KVM_X86_DISABLE_EXITS_MWAIT, KVM_X86_DISABLE_EXITS_PAUSE,
    kvm_enable_cap,
};

use super::{Vm, VmError};

/// Instructions that a dedicated vCPU may execute without an exit
/// (`KVM_CAP_X86_DISABLE_EXITS`). KVM only takes them before the first vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisableExits(u32);

impl DisableExits {
    /// MWAIT and MONITOR.
    pub const MWAIT: Self = Self(KVM_X86_DISABLE_EXITS_MWAIT);
    /// HLT.
    pub const HLT: Self = Self(KVM_X86_DISABLE_EXITS_HLT);
    /// PAUSE loops.
    pub const PAUSE: Self = Self(KVM_X86_DISABLE_EXITS_PAUSE);
    /// Reads of the core's C-state residency.
    pub const CSTATE: Self = Self(KVM_X86_DISABLE_EXITS_CSTATE);

    /// The exits that KVM can disable, from its capability's value.
    pub(crate) const fn from_mask(mask: u32) -> Self {
        Self(mask & 0xf)
    }

    /// Both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Names of the members.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (Self::MWAIT, "mwait"),
            (Self::HLT, "hlt"),
            (Self::PAUSE, "pause"),
            (Self::CSTATE, "cstate"),
        ]
        .into_iter()
        .filter(move |(flag, _)| self.contains(*flag))
        .map(|(_, name)| name)
    }
}

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

    /// Lets instructions run without exits; only before the first vCPU.
    pub fn disable_exits(&self, exits: DisableExits) -> Result<(), VmError> {
        self.enable(
            KVM_CAP_X86_DISABLE_EXITS,
            u64::from(exits.0),
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
