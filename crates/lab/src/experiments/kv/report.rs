//! What the caches say.

use super::{Arm, CONNECTIONS, Kv, LATENCY, mix};
use crate::figure::{Figure, value};
use crate::number::number;
use crate::report::{ReportText, Template, row};

pub(super) fn report_text(experiment: &Kv, figures: &[Figure]) -> ReportText {
    let [tare, memcached] =
        Arm::ALL.map(|arm| value(figures, &format!("kv_ops_per_s.{}", arm.name())));
    let is_slower = tare
        .zip(memcached)
        .is_some_and(|(tare, memcached)| tare < memcached);
    let text = Template::new(include_str!("report.md"), figures)
        .maybe("rate", experiment.rate.map(|rate| number(rate.round())))
        .set("reads", mix::READS)
        .set("keys", mix::KEYS)
        .set("bytes", mix::VALUE)
        .set("connections", CONNECTIONS)
        .set("calibrate_s", number(experiment.calibrate.as_secs_f64()))
        .set("load_s", number(experiment.load.as_secs_f64()))
        .set("turns", experiment.turns)
        .set("batch", experiment.batch)
        .only_if("slower", is_slower);
    let arms = Arm::ALL.map(|arm| row([("about", arm.about()), ("arm", arm.name())]));
    let names = Arm::ALL.map(Arm::name);
    let chart = experiment
        .data
        .percentiles(LATENCY, &names, "Answer time by percentile");
    let mut report = text.report();
    report.glance = text.table("Glance", arms);
    report.sections = text.section("answers", chart).into_iter().collect();
    experiment.data.add_missing(&mut report);
    report
}
