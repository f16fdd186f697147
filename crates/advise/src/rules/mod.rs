//! The rules: small functions from facts to advice.

mod machine;
mod placement;
mod rule_result;
mod size;

#[cfg(test)]
mod tests;

use self::rule_result::RuleResult;
use crate::advice::Report;
use crate::facts::Facts;
use crate::runs::Runs;

type Rule = fn(&Facts, &Runs) -> RuleResult;

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
    machine::translated,
    machine::timer_driven,
    machine::halting,
    machine::coalescing,
    machine::emulated,
];

/// Applies every rule.
pub fn advise(facts: &Facts, runs: &Runs) -> Report {
    let mut report = Report::default();
    for result in RULES.iter().filter_map(|rule| rule(facts, runs)) {
        match result {
            Ok(advice) => report.advice.push(advice),
            Err(not_applicable) => report.not_applicable.push(not_applicable),
        }
    }
    report
}
