//! Goals: what a figure should be, as data beside the experiment.

use serde::Serialize;
use tare_control::stats::Kvm;

use crate::figure::Figure;

/// The most a figure may be, where the goal applies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Goal {
    /// Name of the figure.
    pub(crate) figure: &'static str,
    /// Its greatest value that meets the goal.
    pub(crate) at_most: f64,
    /// On which KVM the goal was set.
    pub(crate) on: &'static [Kvm],
}

impl Goal {
    /// A goal wherever there is a KVM.
    pub(crate) const fn on_any_kvm(figure: &'static str, at_most: f64) -> Self {
        Self {
            figure,
            at_most,
            on: &[Kvm::Emulated, Kvm::Hardware],
        }
    }

    /// A goal on every machine, with a KVM or without.
    pub(crate) const fn on_any(figure: &'static str, at_most: f64) -> Self {
        Self {
            figure,
            at_most,
            on: &[Kvm::None, Kvm::Emulated, Kvm::Hardware],
        }
    }
}

/// A goal beside what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// The goal.
    pub(crate) goal: Goal,
    /// Whether the median is within it.
    pub(crate) met: bool,
}

/// The verdict on a figure; `None` where there is no goal for it on this KVM.
pub(crate) fn judge(figure: &Figure, goals: &[Goal], kvm: Kvm) -> Option<Verdict> {
    let applies = |g: &&Goal| g.figure == figure.name && g.on.contains(&kvm);
    let goal = *goals.iter().find(applies)?;
    Some(Verdict {
        goal,
        met: figure.value <= goal.at_most,
    })
}
