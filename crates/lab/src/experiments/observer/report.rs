//! What the cost of watching says.

use super::{LOADS, Observing, STORMS};
use crate::figure::{Figure, find};
use crate::report::svg::{Bar, bars, reach};
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
    let of = |figure: &str, load: &str| find(figures, &format!("{figure}.{load}"));
    let losses = STORMS.iter().enumerate().filter_map(|(series, load)| {
        Some(Bar {
            label: (*load).to_owned(),
            figure: of("guest_loss_pct", load)?.clone(),
            series,
        })
    });
    let same = reach(
        STORMS
            .iter()
            .filter_map(|load| of("control_loss_pct", load)),
    );
    let losses: Vec<Bar> = losses.collect();
    let chart = bars(
        &losses,
        "% less",
        same,
        "What the guests lose while they are watched",
    );
    let mut report = text.report();
    report.sections = text.section("losses", chart).into_iter().collect();
    report.glance = text.table("Glance", loads);
    experiment.data.add_missing(&mut report);
    report
}
