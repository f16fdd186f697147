//! The arms: three ways for the same image to wait.

use serde::{Deserialize, Serialize};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_is_first_once_in_three_cycles() {
        let firsts: std::collections::HashSet<Arm> = (0..3).map(|c| Arm::order(c)[0]).collect();
        assert_eq!(firsts.len(), 3);
    }
}
