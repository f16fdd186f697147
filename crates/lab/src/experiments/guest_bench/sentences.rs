//! Sentences shared by the reports of these experiments.

use tare_control::stats::Kvm;

use super::Data;
use crate::figure::Figure;
use crate::goal::{Goal, judge};
use crate::table::number;

/// A sentence for each figure that misses its goal.
pub(crate) fn missed(figures: &[Figure], goals: &[Goal], kvm: Kvm) -> impl Iterator<Item = String> {
    figures.iter().filter_map(move |figure| {
        let verdict = judge(figure, goals, kvm).filter(|v| !v.met)?;
        Some(format!(
            "{} is {}; the goal is at most {}.",
            figure.name,
            number(figure.value),
            number(verdict.goal.at_most)
        ))
    })
}

/// A sentence for each arm that is unavailable here.
pub(crate) fn not_measured(data: &Data) -> impl Iterator<Item = String> {
    let missing = data.missing.iter();
    missing.map(|why| format!("Not measured: {why}."))
}
