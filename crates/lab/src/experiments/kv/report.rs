//! What the caches say.

use super::{Arm, CONNECTIONS, Kv, LATENCY, mix};
use crate::experiments::guest_bench::not_measured;
use crate::figure::{Figure, find, value};
use crate::number::number;
use crate::report::svg::percentiles;
use crate::report::{ReportText, Section, table};

pub(super) fn report_text(experiment: &Kv, figures: &[Figure]) -> ReportText {
    ReportText {
        title: "A cache as an appliance, and memcached in a container".to_owned(),
        question: "The same commands of memcached's text protocol go to Tare's kv appliance and \
                   to memcached in a container of the same machine: how many does each carry, and \
                   how long do answers take at a rate that both carry?"
            .to_owned(),
        glance: glance(figures),
        answer: answer(experiment, figures),
        sections: sections(experiment),
        method: method(experiment),
        limitations: limitations(experiment, figures),
    }
}

fn glance(figures: &[Figure]) -> String {
    let columns = ["kv_ops_per_s", "kv_p50_us", "kv_p90_us", "kv_cpu_pct"];
    let rows = Arm::ALL.map(|arm| {
        let cells = columns.map(|base| {
            let found = find(figures, &format!("{base}.{}", arm.name()));
            found.map_or("–".to_owned(), Figure::text)
        });
        let about = std::iter::once(arm.about().to_owned());
        about.chain(cells).collect::<Vec<_>>()
    });
    table(&["medians", "ops/s", "p50, µs", "p90, µs", "CPU, %"], &rows)
}

fn answer(experiment: &Kv, figures: &[Figure]) -> Vec<String> {
    let get = |name: &str| value(figures, name);
    let mut sentences = Vec::new();
    for arm in Arm::ALL {
        let of = |base: &str| find(figures, &format!("{base}.{}", arm.name()));
        if let (Some(ops), Some(p50), Some(rate)) =
            (of("kv_ops_per_s"), of("kv_p50_us"), experiment.rate)
        {
            sentences.push(format!(
                "{} carries {} commands a second; at {} a second the median answer takes {} µs.",
                arm.name(),
                ops.text(),
                number(rate.round()),
                p50.text()
            ));
        }
    }
    // Instructions are known only where KVM emulates each.
    if let (Some(gets), Some(sets)) = (get("kv_insns_per_get"), get("kv_insns_per_set")) {
        sentences.push(format!(
            "In the appliance a get takes {} instructions and a set {}, network included. This \
             KVM emulates each: the appliance's rate and times are not those of hardware.",
            number(gets.round()),
            number(sets.round())
        ));
    }
    sentences
}

fn sections(experiment: &Kv) -> Vec<Section> {
    let names = Arm::ALL.map(Arm::name);
    let distributions = experiment.data.distributions(LATENCY, &names);
    if distributions.is_empty() {
        return Vec::new();
    }
    vec![Section {
        title: "Answers by percentile".to_owned(),
        lead: "From the time at which a command was due to the end of its answer, on a \
               logarithmic scale; dots: median and 99th percentile. Lower is better."
            .to_owned(),
        html: percentiles(&names, &distributions, "Answer time by percentile"),
    }]
}

fn method(experiment: &Kv) -> Vec<String> {
    vec![
        format!(
            "{} reads to a write, of {} items of {} bytes, all of which are there; every answer \
             is compared with what it must be.",
            mix::READS,
            mix::KEYS,
            mix::VALUE
        ),
        format!(
            "Capacity: {CONNECTIONS} connections that ask without a pause for {} s. Load: open, \
             {} s at half of what the slower arm carried, {} turns in rotated order, a new server \
             for each.",
            number(experiment.calibrate.as_secs_f64()),
            number(experiment.load.as_secs_f64()),
            experiment.turns
        ),
        "memcached runs with one thread in a container of runc, on the host's network; the appliance has one vCPU and is reached through passt."
            .to_owned(),
        format!(
            "Instructions: {} commands one after the other on one connection, between readings of \
             KVM's statistics.",
            experiment.batch
        ),
    ]
}

fn limitations(experiment: &Kv, figures: &[Figure]) -> Vec<String> {
    let of = |arm: Arm| value(figures, &format!("kv_ops_per_s.{}", arm.name()));
    let slower = of(Arm::Tare).zip(of(Arm::Memcached));
    let slower = slower.filter(|(tare, memcached)| tare < memcached);
    let sentence = slower.map(|(tare, memcached)| {
        format!(
            "The appliance carries {} of what memcached carries.",
            number(tare / memcached)
        )
    });
    sentence
        .into_iter()
        .chain(not_measured(&experiment.data))
        .collect()
}
