//! The packagings.

use tare_control::stats::Kvm;

use crate::appliance::{Packaging, Runtime};

/// A packaging on an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// First, so that what executes guests is known before the others.
    Tare,
    Process,
    Container,
    Gvisor,
    Linux,
    /// The machines of QEMU's translator, which compare with each other.
    TareTcg,
    LinuxTcg,
}

impl Arm {
    pub(super) const ALL: [Self; 7] = [
        Self::Tare,
        Self::Process,
        Self::Container,
        Self::Gvisor,
        Self::Linux,
        Self::TareTcg,
        Self::LinuxTcg,
    ];

    /// Packagings that one chooses from: not the bare process, nor machines without KVM.
    pub(super) const CHOICE: [Self; 4] = [Self::Tare, Self::Container, Self::Gvisor, Self::Linux];

    /// Name in figures.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tare => "tare",
            Self::Process => "process",
            Self::Container => "container",
            Self::Gvisor => "gvisor",
            Self::Linux => "linux",
            Self::TareTcg => "tare_tcg",
            Self::LinuxTcg => "linux_tcg",
        }
    }

    /// What starts it.
    pub(super) const fn packaging(self) -> Packaging {
        match self {
            Self::Tare => Packaging::Tare("auto"),
            Self::Process => Packaging::Process,
            Self::Container => Packaging::Container(Runtime::Runc),
            Self::Gvisor => Packaging::Container(Runtime::Runsc),
            Self::Linux => Packaging::Linux("auto"),
            Self::TareTcg => Packaging::Tare("qemu"),
            Self::LinuxTcg => Packaging::Linux("qemu"),
        }
    }

    /// Whether QEMU's translator executes it.
    pub(super) const fn is_translated(self) -> bool {
        matches!(self, Self::TareTcg | Self::LinuxTcg)
    }

    /// Whether it needs neither hardware nor a program of another distribution.
    pub(super) const fn is_measured_everywhere(self) -> bool {
        !matches!(self, Self::Gvisor | Self::Linux)
    }

    /// Why it cannot be measured where this executes guests.
    pub(super) const fn obstacle(self, kvm: Kvm) -> Option<&'static str> {
        match (self, kvm) {
            (Self::Linux, Kvm::Emulated) => Some(
                "this KVM emulates ring 0, where Linux reaches no further than its first process",
            ),
            (Self::Linux, Kvm::None) => Some("there is no KVM"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linux_guest_runs_on_hardware_and_in_the_translator_only() {
        for kvm in [Kvm::None, Kvm::Emulated, Kvm::Hardware] {
            let can_run = Arm::Linux.obstacle(kvm).is_none();
            assert_eq!(can_run, kvm == Kvm::Hardware);
            let others = Arm::ALL.into_iter().filter(|arm| *arm != Arm::Linux);
            for arm in others {
                assert_eq!(arm.obstacle(kvm), None, "{arm:?}");
            }
        }
    }
}
