//! The packagings.

use tare_control::stats::Kvm;
use tare_machines::appliance::{Packaging, Runtime};

/// A packaging on an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arm {
    /// Name in figures.
    pub(super) name: &'static str,
    /// What starts it.
    pub(super) packaging: Packaging,
}

const fn arm(name: &'static str, packaging: Packaging) -> Arm {
    Arm { name, packaging }
}

pub(super) const TARE: Arm = arm("tare", Packaging::Tare("auto"));
pub(super) const PROCESS: Arm = arm("process", Packaging::Process);
pub(super) const CONTAINER: Arm = arm("container", Packaging::Container(Runtime::Runc));
const GVISOR: Arm = arm("gvisor", Packaging::Container(Runtime::Runsc));
const LINUX: Arm = arm("linux", Packaging::Linux("auto"));
const TAILORED: Arm = arm("tailored", Packaging::Tailored("auto"));
/// The machines of QEMU's translator, which compare with each other.
pub(super) const TARE_TCG: Arm = arm("tare_tcg", Packaging::Tare("qemu"));
pub(super) const LINUX_TCG: Arm = arm("linux_tcg", Packaging::Linux("qemu"));
pub(super) const TAILORED_TCG: Arm = arm("tailored_tcg", Packaging::Tailored("qemu"));

/// All; Tare first, so that what executes guests is known before the others.
pub(super) const ALL: [Arm; 9] = [
    TARE,
    PROCESS,
    CONTAINER,
    GVISOR,
    LINUX,
    TAILORED,
    TARE_TCG,
    LINUX_TCG,
    TAILORED_TCG,
];

/// Packagings that one chooses from: not the bare process, nor machines without KVM.
pub(super) const CHOICE: [Arm; 5] = [TARE, CONTAINER, GVISOR, LINUX, TAILORED];

/// Those of these names, in the order of [`ALL`].
pub(super) fn named(names: &[String]) -> Result<Vec<Arm>, String> {
    let is_one = |name: &String| ALL.iter().any(|arm| arm.name == name);
    if let Some(unknown) = names.iter().find(|name| !is_one(name)) {
        let all = ALL.map(|arm| arm.name).join(", ");
        return Err(format!("{unknown}: there are: {all}"));
    }
    let is_named = |arm: &Arm| names.iter().any(|name| name == arm.name);
    Ok(ALL.into_iter().filter(is_named).collect())
}

impl Arm {
    /// Its place in [`ALL`].
    pub(super) fn place(self) -> usize {
        ALL.iter().position(|arm| *arm == self).unwrap_or_default()
    }

    /// Whether QEMU's translator executes it.
    pub(super) fn is_translated(self) -> bool {
        [TARE_TCG, LINUX_TCG, TAILORED_TCG].contains(&self)
    }

    /// Whether it needs neither hardware nor a program of another distribution.
    pub(super) fn is_measured_everywhere(self) -> bool {
        self != GVISOR && !self.is_linux_on_kvm()
    }

    fn is_linux_on_kvm(self) -> bool {
        [LINUX, TAILORED].contains(&self)
    }

    /// Whether it takes a kernel that was tailored to the application.
    pub(super) fn needs_kernel(self) -> bool {
        matches!(self.packaging, Packaging::Tailored(_))
    }

    /// Why it cannot be measured where this executes guests.
    pub(super) fn obstacle(self, kvm: Kvm) -> Option<&'static str> {
        match kvm {
            Kvm::Emulated if self.is_linux_on_kvm() => Some(
                "this KVM emulates ring 0, where Linux reaches no further than its first process",
            ),
            Kvm::None if self.is_linux_on_kvm() => Some("there is no KVM"),
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
            for arm in ALL {
                let can_run = ![LINUX, TAILORED].contains(&arm) || kvm == Kvm::Hardware;
                assert_eq!(arm.obstacle(kvm).is_none(), can_run, "{arm:?}");
            }
        }
    }
}
