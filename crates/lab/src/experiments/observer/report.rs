//! What the cost of watching says.

use super::{LOADS, Observing};
use crate::figure::Figure;
use crate::report::{ReportText, Template, row};

pub(super) fn report_text(experiment: &Observing, figures: &[Figure]) -> ReportText {
    let text = Template::new(include_str!("report.md"), figures)
        .set("image", &experiment.image)
        .set("rounds", experiment.rounds)
        .set("window_ms", experiment.window.as_millis());
    let loads = LOADS.iter().map(|load| {
        let machines = (load.machines)(experiment.depth).to_string();
        row([
            ("about", load.about),
            ("load", load.name),
            ("machines", &machines),
        ])
    });
    let mut report = text.report();
    report.glance = text.table("Glance", loads);
    experiment.data.add_missing(&mut report);
    report
}
