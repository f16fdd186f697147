//! The report: cost of each kind of exit.

use tare_control::stats::Kvm;

use super::{CONTROL, KINDS, Vmexit, figure};
use crate::figure::{Figure, find, value};
use crate::number::number;
use crate::report::svg::{Bar, bars};
use crate::report::{ReportText, Row, Template, row};

pub(super) fn report_text(experiment: &Vmexit, figures: &[Figure]) -> ReportText {
    let is_read_only =
        |why: &String| why.starts_with("hypercall: ") && why.contains("page fault writing");
    let dearest = dearest(figures);
    let text = Template::new(include_str!("report.md"), figures)
        .maybe("dearest", dearest.map(|(what, _)| what))
        .maybe("dearest_ns", dearest.map(|(_, ns)| number(ns.round())))
        .only_if("emulated", experiment.data.kvm == Kvm::Emulated)
        .set("image", &experiment.image)
        .set("rounds", experiment.rounds)
        .set("target_ms", number(experiment.target.as_secs_f64() * 1e3))
        .set("samples", experiment.samples)
        .only_if(
            "text_is_read_only",
            experiment.data.missing.iter().any(is_read_only),
        );
    let chart = bars(
        &shown(figures),
        "ns",
        None,
        "Price of each kind of exit in ns",
    );
    let rows = KINDS
        .iter()
        .map(|(kind, what)| costs(experiment, kind, what));
    let sections = [text.section("prices", chart), text.tabled("costs", rows)];
    let mut report = text.report();
    report.sections = sections.into_iter().flatten().collect();
    // The first line of what a machine said is enough.
    let first = |why: &String| why.split(" | ").next().unwrap_or(why).to_owned();
    let missing = experiment.data.missing.iter();
    let missing = missing.map(|why| format!("Unavailable here: {}.", first(why)));
    report.limitations.splice(..0, missing);
    report
}

/// The kind that costs most beyond the loop's own, and its cost, ns.
fn dearest(figures: &[Figure]) -> Option<(&'static str, f64)> {
    let control = value(figures, &figure(CONTROL))?;
    let others = KINDS.iter().filter(|(kind, _)| *kind != CONTROL);
    let nets =
        others.filter_map(|(kind, what)| Some((*what, value(figures, &figure(kind))? - control)));
    nets.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn shown(figures: &[Figure]) -> Vec<Bar> {
    let shown = KINDS.iter().filter_map(|(kind, _)| {
        Some(Bar {
            label: (*kind).to_owned(),
            series: if *kind == CONTROL { 2 } else { 1 },
            figure: find(figures, &figure(kind))?.clone(),
        })
    });
    shown.collect()
}

fn costs(experiment: &Vmexit, kind: &str, what: &str) -> Row {
    let iterations = experiment.iterations.get(kind).filter(|n| **n > 0.0);
    let each = ["exits", "insn_emulation"].map(|name| {
        let count = experiment.data.counter(kind, name).zip(iterations);
        (
            name,
            count.map(|(count, iterations)| number(count / iterations)),
        )
    });
    let kind = row([("kind", kind), ("what", what)]);
    kind.into_iter().chain(each).collect()
}
