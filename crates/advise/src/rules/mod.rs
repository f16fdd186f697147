//! The rules: small functions from facts to advice.

mod machine;
mod placement;
mod size;

#[cfg(test)]
mod tests;

use crate::advice::{Advice, Gain, NotApplicable, Report};
use crate::facts::Facts;
use crate::runs::Runs;

/// What a rule gives: nothing where it is about something else.
pub(crate) type Verdict = Option<Result<Advice, NotApplicable>>;
type Rule = fn(&Facts, &Runs) -> Verdict;

const RULES: &[Rule] = &[
    placement::small_vanilla_container,
    placement::cpu_bound_container,
    placement::cpu_bound_machine,
    placement::io_bound,
    placement::one_node,
    placement::siblings,
    placement::helpers_apart,
    placement::isolated,
    size::chr,
    size::platform,
    size::quota_and_set,
    size::throttled,
    machine::halting,
    machine::coalescing,
    machine::emulated,
];

/// Applies every rule.
pub fn advise(facts: &Facts, runs: &Runs) -> Report {
    let mut report = Report::default();
    for verdict in RULES.iter().filter_map(|rule| rule(facts, runs)) {
        match verdict {
            Ok(advice) => report.advice.push(advice),
            Err(not_applicable) => report.not_applicable.push(not_applicable),
        }
    }
    report
}

/// The gain by pinning that a kept run measured for this workload.
fn pin_gain(facts: &Facts, runs: &Runs) -> Gain {
    let platform = facts
        .platform
        .map_or("cn", |platform| platform.figure_name());
    let figure = facts
        .workload
        .and_then(|workload| runs.pin_gain(workload, platform));
    figure.cloned().map_or(Gain::Unknown, Gain::Measured)
}

fn not_applicable(rule: &'static str, why: impl Into<String>) -> Verdict {
    Some(Err(NotApplicable {
        rule,
        why: why.into(),
    }))
}

/// One CPU leaves nothing to place.
fn too_few_cpus(facts: &Facts) -> Option<String> {
    (facts.resources.host_cpus < 2).then(|| "this host has one CPU: nothing to choose".to_owned())
}
