//! What the transactions say.

use std::collections::BTreeSet;

use super::{ARMS, OF_KVM, RR};
use crate::experiments::ping_pong::{PingPong, Where};
use crate::figure::Figure;
use crate::report::{ReportText, row};

pub(super) fn report_text(experiment: &PingPong, figures: &[Figure]) -> ReportText {
    let text = experiment.text(include_str!("report.md"), figures);
    let guests = ARMS.iter().filter(|arm| match arm.place {
        Where::Tare { .. } | Where::Qemu { .. } => !experiment.data.of(RR, arm.name).is_empty(),
        Where::Linux { .. } | Where::Host { .. } => false,
    });
    let guests = guests.map(|arm| row([("about", arm.about), ("arm", arm.suffix)]));
    let kinds = kinds(figures).into_iter().map(|kind| row([("kind", kind)]));
    let chart = experiment.percentiles("Transaction time by percentile");
    let sections = [
        text.section("trips", chart),
        text.tabled("costs", guests),
        text.tabled("kinds", kinds),
    ];
    let mut report = text.report();
    report.sections = sections.into_iter().flatten().collect();
    experiment.data.add_missing(&mut report);
    report
}

/// What the guest counts.
const OWN: [&str; 4] = ["halt", "ipi", "timer", "timer_renewed"];

/// Kinds of exit as trace points tell them: whose names are not the counters' of the guest or
/// of KVM's statistics.
fn kinds(figures: &[Figure]) -> BTreeSet<&str> {
    let kind = |figure: &'static str| figure.strip_prefix("exits_per_rr.");
    let counted: Vec<&str> = OF_KVM
        .iter()
        .filter_map(|(_, figure)| kind(figure))
        .collect();
    let kinds = figures.iter().filter_map(|figure| {
        let (kind, cpus) = figure
            .name
            .strip_prefix("exits_per_rr.")?
            .rsplit_once('.')?;
        let is_ours = ["1vcpu", "2vcpu"].contains(&cpus) && !kind.contains('.');
        let is_counted = OWN.contains(&kind) || counted.contains(&kind);
        (is_ours && !is_counted).then_some(kind)
    });
    kinds.collect()
}
