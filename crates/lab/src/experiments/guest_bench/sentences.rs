//! Sentences shared by the reports of these experiments.

use super::Data;
use crate::report::ReportText;

/// Whether two arms differ, by what was randomised: a value for each machine that was booted.
pub(crate) fn exchanged(a: &[f64], b: &[f64]) -> String {
    let machines = a.len().min(b.len());
    match tare_stats::permutation(a, b) {
        Some(p) if p < 0.001 => format!("By {machines} machines of each arm, p is below 0.001."),
        Some(p) => format!("By {machines} machines of each arm, p is {p:.3}."),
        None => format!(
            "No p: {machines} machines of each arm ran, and a test needs {}.",
            tare_stats::LEAST_UNITS
        ),
    }
}

impl Data {
    /// Puts a sentence for each arm that is unavailable here before the limitations.
    pub(crate) fn add_missing(&self, report: &mut ReportText) {
        let missing = self.missing.iter();
        let sentences = missing.map(|why| format!("Not measured: {why}."));
        report.limitations.splice(..0, sentences);
    }
}
