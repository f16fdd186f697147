//! The tables: application by packaging, and which packaging weighs least.

use std::time::Duration;

use tare_control::stats::Kvm;
use tare_lab::kit::{Direction, Figure, Metric, ReportText, Row, Template, find, number, row};

use super::arms::{Arm, CHOICE};
use super::services::{Load, PIPELINED, Service};
use super::{
    Apps, CONNECTIONS, CPU_IDLE, CPU_PER_REQUEST, FIRST_ANSWER, IDLE_EXITS, IMAGE, MEMORY, P50,
    P99, PER_S,
};

/// Figures of a load, each with its factor.
const OF_LOAD: [(&str, Metric, &str); 4] = [
    ("requests a second", PER_S, "1"),
    ("median of a lone request, µs", P50, "1"),
    ("99th percentile of it, µs", P99, "1"),
    ("CPU time a request, µs", CPU_PER_REQUEST, "1"),
];
/// Figures of an application.
const OF_APP: [(&str, Metric, &str); 5] = [
    ("CPU while idle, % of a core", CPU_IDLE, "1"),
    ("exits a second while idle", IDLE_EXITS, "1"),
    ("resident memory, MiB", MEMORY, "1"),
    ("start to the first answer, ms", FIRST_ANSWER, "1"),
    ("files and image, MB", IMAGE, "0.000001"),
];

pub(super) fn report_text(experiment: &Apps, figures: &[Figure]) -> ReportText {
    let seconds = |time: Duration| number(time.as_secs_f64());
    let is_emulated = experiment.data.kvm == Kvm::Emulated;
    let is_own = |it: &&Service| it.own_loads().is_some();
    let own: Vec<&Service> = experiment.services.iter().filter(is_own).collect();
    let names: Vec<&str> = own.iter().map(|it| &*it.name).collect();
    let text = Template::new(include_str!("report.md"), super::METRICS, figures)
        .set("cycles", experiment.cycles)
        .set("translated", experiment.translated)
        .set("alone_s", seconds(experiment.alone))
        .set("load_s", seconds(experiment.load))
        .set("idle_s", seconds(experiment.idle))
        .set("settle_s", seconds(experiment.settle))
        .set("connections", CONNECTIONS)
        .set("pipelined", PIPELINED)
        .maybe("own", (!own.is_empty()).then(|| names.join(" and ")))
        .only_if("emulated", is_emulated)
        .only_if("untailored", experiment.digests.is_empty());
    let loads = experiment.services.iter().flat_map(|it| it.loads.iter());
    let ratios = loads.map(|load| row([("about", &*load.about), ("load", &*load.name)]));
    let measures = measures(&experiment.services);
    let least = measures.iter().filter_map(|it| least_row(it, figures));
    let sections = [
        text.tabled("least", least),
        text.tabled("all", measures.iter().map(Measure::row)),
        text.tabled("ratios", ratios),
    ];
    let rates = measures
        .iter()
        .filter(|it| it.figure.starts_with(PER_S.name))
        .map(Measure::row);
    let report = text.report_with(rates, sections, &experiment.data.missing);
    let answers = own
        .into_iter()
        .flat_map(|service| own_answers(service, figures));
    ReportText {
        answer: report.answer.into_iter().chain(answers).collect(),
        ..report
    }
}

/// What the figures of a user's application answer.
fn own_answers(service: &Service, figures: &[Figure]) -> Vec<String> {
    let name = &service.name;
    let rates = service.loads.iter().map(|Load { about, name, .. }| {
        format!(
            "- {about}: Tare carries {{app_rate_ratio.{name}.tare:text}} of the bare process's \
             requests, and the container's rate is {{app_times_slower.{name}:text}} times Tare's.\n"
        )
    });
    let text: String = rates.collect();
    let text = format!(
        "# {name}\n\n## Answer\n\n{text}- {name}: the first answer comes after \
         {{app_first_answer_ms.{name}.tare:text}} ms, and its memory is \
         {{app_memory_beyond_mib.{name}:text}} MiB more than the bare process's.\n"
    );
    Template::new(&text, super::METRICS, figures).sentences("Answer")
}

/// What is measured of an application or a load: a row of the tables.
struct Measure {
    about: String,
    figure: String,
    better: Direction,
    scale: &'static str,
}

impl Measure {
    fn row(&self) -> Row {
        row([
            ("about", &self.about),
            ("figure", &self.figure),
            ("scale", self.scale),
        ])
    }
}

/// All, by application.
fn measures(services: &[Service]) -> Vec<Measure> {
    let of =
        |about: &str, name: &str, (what, metric, scale): (&str, Metric, &'static str)| Measure {
            about: format!("{about}: {what}"),
            figure: metric.of(name),
            better: metric.better,
            scale,
        };
    let of_service = |service: &Service| {
        let loads = service.loads.iter();
        let of_loads = loads.flat_map(|load| OF_LOAD.map(|it| of(&load.about, &load.name, it)));
        let of_app = OF_APP.map(|it| of(&service.name, &service.name, it));
        of_loads.chain(of_app).collect::<Vec<_>>()
    };
    services.iter().flat_map(of_service).collect()
}

fn least_row(measure: &Measure, figures: &[Figure]) -> Option<Row> {
    let least = least(figures, &measure.figure, measure.better)?;
    Some(row([("about", &measure.about), ("least", &least)]))
}

/// The packagings that weigh least by a figure: the best, and each whose interval or range
/// reaches that of the best. `None` where fewer than two have it.
fn least(figures: &[Figure], figure: &str, better: Direction) -> Option<String> {
    let is_more = better == Direction::More;
    let weight = |figure: &Figure| {
        let (low, high) = figure.ends().unwrap_or((figure.value, figure.value));
        if is_more { (-high, -low) } else { (low, high) }
    };
    let of = |arm: Arm| {
        Some((
            arm,
            weight(find(figures, &format!("{figure}.{}", arm.name))?),
        ))
    };
    let weights: Vec<_> = CHOICE.into_iter().filter_map(of).collect();
    if weights.len() < 2 {
        return None;
    }
    let best = weights
        .iter()
        .map(|(_, (_, high))| *high)
        .reduce(f64::min)?;
    let reach = weights.iter().filter(|(_, (low, _))| *low <= best);
    let names: Vec<&str> = reach.map(|(arm, _)| arm.name).collect();
    Some(names.join(" or "))
}

#[cfg(test)]
mod tests {
    use tare_lab::kit::{Direction, median};

    #[test]
    fn what_weighs_least_is_best_or_cannot_be_told_from_it() {
        let of = |name: &str, samples: &[f64]| median(name, "1", samples).unwrap();
        let figures = [
            of("app_per_s.x.tare", &[100.0, 120.0]),
            of("app_per_s.x.container", &[110.0, 300.0]),
            of("app_per_s.x.process", &[900.0]),
            of("app_memory_mib.x.tare", &[20.0]),
            of("app_memory_mib.x.container", &[30.0]),
            of("app_cpu_idle_pct.x.tare", &[0.0]),
        ];
        let least = |figure| super::least(&figures, figure, Direction::Less);
        let most = |figure| super::least(&figures, figure, Direction::More);
        let both = Some("tare or container".to_owned());
        assert_eq!(most("app_per_s.x"), both, "more is less weight");
        assert_eq!(least("app_memory_mib.x"), Some("tare".to_owned()));
        assert_eq!(least("app_cpu_idle_pct.x"), None, "of one alone");
    }
}
