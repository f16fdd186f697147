//! What the runs say.

use tare_lab::kit::{Bar, Figure, ReportText, Section, Template, bars, find, number, reach, row};

use super::Vic;
use super::charts::{ratio_distribution, ratio_over_time};
use super::plan::{Arm, CIF, Load};

/// Ratios that are drawn, the same of two arms that are the same, and what they are.
const RATIOS: [(&str, &str, &str); 3] = [
    (
        "latency_vic_over_off",
        "latency_again_over_off",
        "median latency, auto over off",
    ),
    (
        "iops_off_over_vic",
        "iops_off_over_again",
        "reads a second, off over auto",
    ),
    (
        "cpu_vic_over_off",
        "cpu_again_over_off",
        "CPU time of a read, auto over off",
    ),
];

pub(super) fn report_text(experiment: &Vic, figures: &[Figure]) -> ReportText {
    let plan = &experiment.plan;
    let is_slow = experiment.has_slow_disk();
    let widest = widest(figures);
    let at = |it: &Figure| it.name.rsplit('.').next().unwrap_or_default().to_owned();
    let pace = experiment.pace.unwrap_or_default();
    let text = Template::new(include_str!("report.md"), super::metrics::METRICS, figures)
        .maybe(
            "widest_pct",
            widest.map(|it| number(half_width(it) * 100.0)),
        )
        .maybe("widest_at", widest.map(at))
        .set("image", &experiment.image)
        .set("rounds", plan.rounds)
        .set("counted_ms", plan.counted.as_millis())
        .set("warm_up_ms", plan.warm_up.as_millis())
        .maybe("pace", is_slow.then(|| number(pace)))
        .set("disk_iops", number(super::plan::DISK_IOPS))
        .maybe("settings", experiment.settings.as_ref())
        .maybe("database", plan.database.as_ref().map(|it| it.describe()))
        .maybe("latencies", fewest_latencies(figures).map(number))
        .only_if("slow", is_slow && !experiment.is_scaled)
        .only_if("scaled", is_slow && experiment.is_scaled);
    let text = with_worst_cases(text, experiment);
    let depths = CIF.map(|cif| row([("cif", &cif.to_string())]));
    let loads = Load::ALL.map(|load| by_depth(&text, load));
    let database = [Arm::Off, Arm::Vic].map(|arm| row([("arm", arm.name())]));
    let mut over_time = String::new();
    if !experiment.over_time.is_empty() {
        over_time = ratio_over_time(&[("vic", &experiment.over_time)]);
    }
    let distribution = ratio_distribution(&experiment.distribution, 0);
    let ratios = text.section("ratios", ratios(figures));
    let others = [
        text.tabled("database", database),
        text.section("time", over_time),
        text.section("distribution", distribution),
    ];
    let sections = [ratios].into_iter().chain(loads).chain(others);
    text.report_with(depths, sections, &experiment.data.missing)
}

/// The latency's widest interval of two arms without coalescing.
fn widest(figures: &[Figure]) -> Option<&Figure> {
    let same = figures.iter().filter(|figure| {
        figure.name.starts_with("latency_again_over_off") && figure.interval().is_some()
    });
    same.max_by(|a, b| half_width(a).total_cmp(&half_width(b)))
}

/// Latencies in the shortest window of vIC, by the median over the rounds.
fn fewest_latencies(figures: &[Figure]) -> Option<f64> {
    let windows = figures.iter().filter(|figure| {
        figure.name.starts_with("latencies_in_window.") && figure.name.ends_with(".vic")
    });
    windows.map(|figure| figure.value).min_by(f64::total_cmp)
}

fn half_width(figure: &Figure) -> f64 {
    let (low, high) = figure.interval().unwrap_or((1.0, 1.0));
    (high / low).sqrt() - 1.0
}

/// What the rule costs at worst, by kind of simulated load.
fn with_worst_cases<'a>(text: Template<'a>, experiment: &Vic) -> Template<'a> {
    let names = [
        (
            "mixed",
            ["mixed_loads", "mixed_load", "mixed_what", "mixed_factor"],
        ),
        (
            "other",
            ["other_loads", "other_load", "other_what", "other_factor"],
        ),
    ];
    names
        .into_iter()
        .fold(text, |text, (kind, [loads, load, what, factor])| {
            let case = experiment.worst.iter().find(|case| case.kind == kind);
            text.maybe(loads, case.map(|case| case.loads))
                .maybe(load, case.map(|case| &case.load))
                .maybe(what, case.map(|case| &case.what))
                .maybe(factor, case.map(|case| number(case.factor)))
        })
}

/// What coalescing changes by depth, beside what two arms that are the same differ by.
fn ratios(figures: &[Figure]) -> String {
    let charts = RATIOS
        .into_iter()
        .enumerate()
        .map(|(series, (of, same, unit))| {
            let at = |name: &str, cif: u32| find(figures, &format!("{name}.cif{cif}"));
            let shown = CIF.into_iter().filter_map(|cif| {
                Some(Bar {
                    label: format!("{cif} in flight"),
                    figure: at(of, cif)?.clone(),
                    series,
                })
            });
            let band = reach(CIF.into_iter().filter_map(|cif| at(same, cif)));
            bars(&shown.collect::<Vec<_>>(), unit, band, unit)
        });
    charts.collect()
}

/// A table of one load: a row for each depth and arm.
fn by_depth(text: &Template<'_>, load: Load) -> Option<Section> {
    let arms = Arm::of(load);
    let rows = CIF.iter().flat_map(|cif| {
        arms.iter().map(move |arm| {
            let at = format!("cif{cif}{}.{}", load.infix(), arm.name());
            row([("cif", &cif.to_string()), ("arm", arm.name()), ("at", &at)])
        })
    });
    let by = match load {
        Load::Busy => "By commands that are to be with the disk, for each two threads",
        _ => "By commands in flight, for each a thread",
    };
    let about = row([("load", load.about()), ("by", by)]);
    text.section_of("depths", &about, text.table("depths", rows))
}
