//! What the policies cost and gave, and what the rules would have made of the
//! recorded waits.

use tare_control::stats::Kvm;
use tare_lab::kit::{Figure, Mark, ReportText, Section, Template, number, row, scatter};
use tare_policy::halt::{Costs, Halt};

use super::HaltBudget;
use super::arms::{BUDGET, Load, Policy};
use super::data::POLLED;
use super::simulate::{self, Point};

/// Wake-ups on hardware as KVM Message Passing 2015 reports them, used where this machine's
/// own are indistinguishable.
const REPORTED: Costs = Costs {
    caught_ns: 1700,
    scheduled_ns: 5700,
};

pub(super) fn report_text(experiment: &HaltBudget, figures: &[Figure]) -> ReportText {
    let measured = &experiment.measured;
    let costs = measured.costs();
    let polled = Load::ALL.iter().filter_map(|load| {
        let polled = POLLED.value(figures, &load.of(Policy::Budget))?;
        Some((load.name(), polled))
    });
    let most = polled.max_by(|a, b| a.1.total_cmp(&b.1));
    let waiting = figures
        .iter()
        .filter(|f| f.name.starts_with("waiting_pct."));
    let worst = waiting
        .max_by(|a, b| a.value.total_cmp(&b.value))
        .filter(|worst| worst.value > tare_lab::kit::CROWDED_PCT);
    let seconds = |policy| experiment.time(policy, Load::Bursts).as_secs();
    let text = Template::new(include_str!("report.md"), super::METRICS, figures)
        .maybe("most_load", most.map(|(load, _)| load))
        .maybe("caught_load", measured.caught_load().map(Load::name))
        .set("image", &experiment.image)
        .set("rounds", experiment.rounds)
        .set("warm_ms", experiment.warm.as_millis())
        .set("time_ms", experiment.time.as_millis())
        .set("kept_s", seconds(Policy::Budget))
        .set("recorded_s", seconds(Policy::Never))
        .only_if("recorded", measured.unrecorded.is_none())
        .only_if("once", experiment.rounds > 1 && measured.has_waits_once())
        .maybe("unrecorded", measured.unrecorded.as_ref())
        .only_if("measured", costs.is_some())
        .only_if("reported", costs.is_none())
        .only_if("emulated", measured.data.kvm == Kvm::Emulated)
        .maybe(
            "busiest",
            worst.map(|it| it.name.trim_start_matches("waiting_pct.")),
        )
        .maybe("waited", worst.map(|it| number(it.value.round())));
    let loads = Load::ALL.map(|load| row([("about", load.about()), ("load", load.name())]));
    let measured_rows = Load::ALL.into_iter().flat_map(|load| {
        Policy::ALL.map(|policy| row([("load", load.name()), ("policy", policy.name())]))
    });
    let costs = costs.unwrap_or(REPORTED);
    let simulated = Load::ALL.into_iter().filter_map(|load| {
        let waits = measured.waits(load);
        if waits.len() > 10 {
            rules(&text, load, waits, costs)
        } else {
            None
        }
    });
    let sections = [text.tabled("measured", measured_rows)]
        .into_iter()
        .chain(simulated.map(Some));
    text.report_with(loads, sections, &measured.data.missing)
}

/// The recorded waits of a load through every rule.
fn rules(text: &Template<'_>, load: Load, waits: &[Halt], costs: Costs) -> Option<Section> {
    let mut points = simulate::rules(waits, costs);
    let marks: Vec<Mark> = points.iter().map(mark).collect();
    let frontier = simulate::frontier(waits, costs);
    let line: Vec<(f64, f64)> = frontier.iter().map(|p| (p.cpu_pct, p.latency_us)).collect();
    points.push(Point {
        name: "best possible within 1 %".to_owned(),
        ..simulate::best(waits, costs, BUDGET)
    });
    points.push(Point {
        name: "best by KVM's polling within 1 %".to_owned(),
        ..simulate::reachable(waits, costs, BUDGET)
    });
    let rounded = |value: f64| number((value * 1000.0).round() / 1000.0);
    let rows = points.iter().map(|point| {
        let (cpu_pct, us) = (rounded(point.cpu_pct), rounded(point.latency_us));
        row([("rule", &point.name), ("cpu_pct", &cpu_pct), ("us", &us)])
    });
    let chart = scatter(
        &marks,
        &line,
        "Latency of a wake-up against CPU for each rule",
    );
    let about = row([("load", load.about()), ("waits", &waits.len().to_string())]);
    text.section_of("rules", &about, chart + &text.table("rules", rows))
}

fn mark(point: &Point) -> Mark {
    Mark {
        name: point.name.clone(),
        cpu_pct: point.cpu_pct,
        latency_us: point.latency_us,
        series: if point.name.starts_with("budget") {
            1
        } else {
            2
        },
    }
}
