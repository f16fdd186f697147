//! The arms: three ways for the same image to wait; and who serves the same file at full speed.

use serde::{Deserialize, Serialize};
use tare_machines::appliance::Monitor;

/// One arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Arm {
    /// The control arm: a scheduler that never halts.
    Spin,
    /// Toro's cure: pollers declare idle turns, the core halts after 200 ms.
    Poller,
    /// Blocking I/O: no thread polls.
    Tare,
}

impl Arm {
    /// All arms, control first.
    pub(crate) const ALL: [Self; 3] = [Self::Spin, Self::Poller, Self::Tare];

    /// Name in figures.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Poller => "poller",
            Self::Tare => "tare",
        }
    }

    /// Value of `tare run --idle`.
    pub(crate) const fn idle(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Poller => "poller",
            Self::Tare => "block",
        }
    }

    /// The order in `cycle`: rotated, so that no arm is always first.
    pub(crate) fn order(cycle: usize) -> [Self; 3] {
        let mut order = Self::ALL;
        order.rotate_left(cycle % Self::ALL.len());
        order
    }

    /// The figure `base` of this arm.
    pub(crate) fn figure(self, base: &str) -> String {
        format!("{base}.{}", self.name())
    }
}

/// Who serves the same file at full speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Peer {
    /// Tare's image in ring 3.
    Ring3,
    /// The same image in ring 0.
    Ring0,
    /// The same image in QEMU's translator.
    Translator,
    /// lighttpd on the host.
    Native,
    /// The same image in Firecracker.
    Firecracker,
    /// The same image in Cloud Hypervisor.
    CloudHypervisor,
}

impl Peer {
    /// All of them.
    pub(crate) const ALL: [Self; 6] = [
        Self::Ring3,
        Self::Ring0,
        Self::Translator,
        Self::Native,
        Self::Firecracker,
        Self::CloudHypervisor,
    ];

    /// Name in figures.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ring3 => "ring3",
            Self::Ring0 => "ring0",
            Self::Translator => "translator",
            Self::Native => "native",
            Self::Firecracker => "firecracker",
            Self::CloudHypervisor => "cloud_hypervisor",
        }
    }

    /// In words.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Ring3 => "Tare, ring 3",
            Self::Ring0 => "Tare, ring 0",
            Self::Translator => "the same image in QEMU's translator",
            Self::Native => "lighttpd on the host",
            Self::Firecracker => "the same image in Firecracker",
            Self::CloudHypervisor => "the same image in Cloud Hypervisor",
        }
    }

    /// The figure `base` of this server.
    pub(crate) fn figure(self, base: &str) -> String {
        format!("{base}.{}", self.name())
    }

    /// Engine and ring of its image, as `tare run` takes them.
    pub(super) const fn engine_and_ring(self) -> (&'static str, &'static str) {
        match self {
            Self::Ring3 => ("auto", "3"),
            Self::Ring0 => ("auto", "0"),
            Self::Translator => ("qemu", "auto"),
            Self::Native | Self::Firecracker | Self::CloudHypervisor => ("auto", "auto"),
        }
    }

    /// The other program's monitor that its image runs in, if it does.
    pub(super) const fn monitor(self) -> Option<Monitor> {
        match self {
            Self::Firecracker => Some(Monitor::Firecracker),
            Self::CloudHypervisor => Some(Monitor::CloudHypervisor),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_is_first_once_in_three_cycles() {
        let firsts: std::collections::HashSet<Arm> = (0..3).map(|c| Arm::order(c)[0]).collect();
        assert_eq!(firsts.len(), 3);
    }
}
