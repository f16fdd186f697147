//! The report: both TCPs under each impairment.

use tare_tcp::wire::COMPARED;

use super::{BYTES, KEYS, LONG, Tcp};
use crate::figure::{Figure, value};
use crate::report::{ReportText, Template, row};

pub(super) fn report_text(experiment: &Tcp, figures: &[Figure]) -> ReportText {
    let (fast, of_fast) = within(figures, "slowdown", 1.25);
    let (lean, of_lean) = within(figures, "again_ratio", 1.5);
    let long = &experiment.long;
    let right = long.iter().filter(|(_, is_right)| *is_right).count();
    let text = Template::new(include_str!("report.md"), figures)
        .set("fast", fast)
        .set("of_fast", of_fast)
        .set("lean", lean)
        .set("of_lean", of_lean)
        .set("long_mib", LONG >> 20)
        .set("right", right)
        .maybe("of_right", (!long.is_empty()).then_some(long.len()))
        .set("mib", BYTES >> 20)
        .set("rounds", experiment.rounds);
    let impairments = KEYS.into_iter().zip(COMPARED);
    let rows = impairments.map(|(key, it)| row([("key", key), ("name", it.name)]));
    let mut report = text.report();
    report.sections = text.tabled("goodput", rows).into_iter().collect();
    report
}

/// Under how many impairments a figure is at most `most`, and of how many. One under which a
/// transfer failed counts, and not as a good one.
fn within(figures: &[Figure], figure: &str, most: f64) -> (usize, usize) {
    let of = |figure: &str, key: &str| value(figures, &format!("{figure}.{key}"));
    let has_failed = |key: &str| of("failed", key).is_some_and(|failed| failed > 0.0);
    let counted = KEYS
        .iter()
        .filter(|key| of(figure, key).is_some() || has_failed(key));
    let is_good = |key: &&&str| of(figure, key).is_some_and(|it| it <= most) && !has_failed(key);
    (counted.clone().filter(is_good).count(), counted.count())
}
