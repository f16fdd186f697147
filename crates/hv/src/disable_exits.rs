//! The exits that a dedicated vCPU does without, as plain data.

use kvm_bindings::{
    KVM_X86_DISABLE_EXITS_CSTATE, KVM_X86_DISABLE_EXITS_HLT, KVM_X86_DISABLE_EXITS_MWAIT,
    KVM_X86_DISABLE_EXITS_PAUSE,
};
use serde::{Deserialize, Serialize};

/// Instructions that a dedicated vCPU may execute without an exit (`KVM_CAP_X86_DISABLE_EXITS`).
/// KVM accepts them only before the first vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DisableExits(u32);

impl DisableExits {
    /// MWAIT and MONITOR.
    pub(crate) const MWAIT: Self = Self(KVM_X86_DISABLE_EXITS_MWAIT);
    /// HLT.
    pub const HLT: Self = Self(KVM_X86_DISABLE_EXITS_HLT);
    /// PAUSE loops.
    pub const PAUSE: Self = Self(KVM_X86_DISABLE_EXITS_PAUSE);
    /// Reads of the core's C-state residency.
    pub(crate) const CSTATE: Self = Self(KVM_X86_DISABLE_EXITS_CSTATE);

    /// The exits that KVM can disable, from its capability's value.
    pub(crate) const fn from_mask(mask: u32) -> Self {
        Self(mask & 0xf)
    }

    /// The capability's argument.
    pub(crate) const fn mask(self) -> u32 {
        self.0
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
