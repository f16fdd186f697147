//! What rules give, and what several of them ask.

use crate::advice::{Advice, Gain, NotApplicable};
use crate::facts::{Facts, Platform};
use crate::runs::Runs;

/// What a rule gives: nothing where it is about something else.
pub(super) type RuleResult = Option<Result<Advice, NotApplicable>>;

/// The gain by pinning that a kept run measured for this workload; for one that is only planned, in
/// a container.
pub(super) fn pin_gain(facts: &Facts, runs: &Runs) -> Gain {
    let platform = facts.platform.unwrap_or(Platform::Container).figure_name();
    let figure = facts
        .workload
        .and_then(|workload| runs.pin_gain(workload, platform));
    figure.cloned().map_or(Gain::Unknown, Gain::Measured)
}

pub(super) fn not_applicable(rule: &'static str, why: impl Into<String>) -> RuleResult {
    Some(Err(NotApplicable {
        rule,
        why: why.into(),
    }))
}

/// One CPU leaves nothing to place.
pub(super) fn too_few_cpus(facts: &Facts) -> Option<String> {
    (facts.resources.host_cpus < 2).then(|| "this host has only one CPU".to_owned())
}
