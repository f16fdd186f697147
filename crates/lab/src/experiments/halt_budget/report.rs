//! What the policies cost and gave, and what the rules would have made of the
//! recorded waits.

use tare_control::stats::Kvm;
use tare_policy::halt::{Costs, Halt};

use super::HaltBudget;
use super::arms::{BUDGET, Load, Policy};
use super::simulate::{self, Point};
use crate::figure::{Figure, value};
use crate::number::number;
use crate::report::svg::{Mark, scatter};
use crate::report::{ReportText, Section, table};

/// Wake-ups on hardware as KVM Message Passing 2015 reports them, used where this machine's
/// own are indistinguishable.
const REPORTED: Costs = Costs {
    caught_ns: 1700,
    scheduled_ns: 5700,
};

pub(super) fn report_text(experiment: &HaltBudget, figures: &[Figure]) -> ReportText {
    ReportText {
        title: "Halt polling on a budget".to_owned(),
        question: "A halted vCPU can be polled for before its thread is scheduled out: \
                   wake-ups within that time are fast, and the polling costs CPU. How long \
                   should it last? The budget lets the waits themselves decide, within a share \
                   of a CPU. Here it stands beside fixed answers, under loads from idle to a \
                   loop of short sleeps, and beside the best that anybody could do who knew \
                   each wait beforehand."
            .to_owned(),
        glance: glance(figures),
        answer: answer(experiment, figures),
        sections: sections(experiment, figures),
        method: method(experiment),
        limitations: limitations(experiment, figures),
    }
}

fn cell(figures: &[Figure], name: &str) -> String {
    value(figures, name).map_or("–".to_owned(), |v| number((v * 1000.0).round() / 1000.0))
}

fn glance(figures: &[Figure]) -> String {
    let rows = Load::ALL.map(|load| {
        let place = |what: &str| format!("{what}.budget.{}", load.name());
        let never = format!("wake_p50_us.never.{}", load.name());
        vec![
            load.about().to_owned(),
            cell(figures, &place("poll_share_pct")),
            cell(figures, &place("caught_share")),
            cell(figures, &never),
            cell(figures, &place("wake_p50_us")),
            cell(figures, &format!("frontier_gap_pct.{}", load.name())),
            cell(figures, &format!("reachable_gap_pct.{}", load.name())),
        ]
    });
    table(
        &[
            "load",
            "polled, %",
            "caught",
            "never, µs",
            "budget, µs",
            "above best, %",
            "above KVM's, %",
        ],
        &rows,
    )
}

fn answer(experiment: &HaltBudget, figures: &[Figure]) -> Vec<String> {
    let polled = Load::ALL.map(|load| {
        let name = format!("poll_share_pct.budget.{}", load.name());
        value(figures, &name).unwrap_or(0.0)
    });
    let most = polled.into_iter().fold(0.0, f64::max);
    let mut sentences = vec![format!(
        "With a budget of 1 % of a CPU, polling took at most {} % under any load.",
        number((most * 1000.0).round() / 1000.0)
    )];
    if let Some(extra) = value(figures, "idle_extra_pct") {
        sentences.push(format!(
            "An idle machine under the budget used {} % of a CPU more than one that never polls, \
             with {} more halts.",
            number((extra * 1000.0).round() / 1000.0),
            cell(figures, "idle_extra_halts")
        ));
    }
    if let Some(costs) = experiment.data.costs() {
        sentences.push(format!(
            "A wake-up that was polled for took {} µs here, one that was scheduled {} µs.",
            number(costs.caught_ns as f64 / 1e3),
            number(costs.scheduled_ns as f64 / 1e3)
        ));
    }
    sentences
}

fn sections(experiment: &HaltBudget, figures: &[Figure]) -> Vec<Section> {
    let mut sections = vec![measured(figures)];
    let costs = experiment.data.costs().unwrap_or(REPORTED);
    let simulated = Load::ALL.into_iter().filter_map(|load| {
        let waits = experiment.data.waits(load);
        (waits.len() > 10).then(|| rules(load, waits, costs))
    });
    sections.extend(simulated);
    sections
}

/// Every policy under every load, as measured.
fn measured(figures: &[Figure]) -> Section {
    let rows = Load::ALL.into_iter().flat_map(|load| {
        Policy::ALL.into_iter().map(move |policy| {
            let place = format!("{}.{}", policy.name(), load.name());
            let figure = |what: &str| cell(figures, &format!("{what}.{place}"));
            vec![
                load.name().to_owned(),
                policy.name().to_owned(),
                figure("cpu_share_pct"),
                figure("poll_share_pct"),
                figure("caught_share"),
                figure("wake_p50_us"),
            ]
        })
    });
    let rows: Vec<Vec<String>> = rows.collect();
    Section {
        title: "As measured".to_owned(),
        lead: "CPU is that of all threads of the machine but the sender's; polling is KVM's own \
               account; a wake-up counts from the command that sent it, or from the timer's \
               deadline, until the vCPU ran."
            .to_owned(),
        html: table(
            &["load", "policy", "CPU, %", "polled, %", "caught", "p50, µs"],
            &rows,
        ),
    }
}

/// The recorded waits of a load through every rule.
fn rules(load: Load, waits: &[Halt], costs: Costs) -> Section {
    let points = simulate::rules(waits, costs);
    let frontier = simulate::frontier(waits, costs);
    let marks: Vec<Mark> = points.iter().map(mark).collect();
    let line: Vec<(f64, f64)> = frontier.iter().map(|p| (p.cpu_pct, p.latency_us)).collect();
    let row = |point: &Point| {
        vec![
            point.name.clone(),
            number((point.cpu_pct * 1000.0).round() / 1000.0),
            number((point.latency_us * 1000.0).round() / 1000.0),
        ]
    };
    let best = simulate::best(waits, costs, BUDGET);
    let mut rows: Vec<Vec<String>> = points.iter().map(row).collect();
    rows.push(row(&Point {
        name: "best possible within 1 %".to_owned(),
        ..best
    }));
    rows.push(row(&Point {
        name: "best by KVM's polling within 1 %".to_owned(),
        ..simulate::reachable(waits, costs, BUDGET)
    }));
    Section {
        title: format!("Rules on recorded waits: {}", load.about()),
        lead: format!(
            "{} waits, replayed through each rule; the dashed line is the best possible. Lower \
             and further left is better.",
            waits.len()
        ),
        html: scatter(
            &marks,
            &line,
            "Latency of a wake-up against CPU for each rule",
        ) + &table(&["rule", "polling, % of a CPU", "mean latency, µs"], &rows),
    }
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

fn method(experiment: &HaltBudget) -> Vec<String> {
    let data = &experiment.data;
    let costs = match data.costs() {
        Some(_) => "medians of the arm that polls, where it caught most wake-ups, and of the one \
                    that never does"
            .to_owned(),
        None => "KVM Message Passing 2015's on hardware, 1.7 and 5.7 µs, since the polling arm caught too few \
                 wake-ups here to tell"
            .to_owned(),
    };
    let mut sentences = vec![
        format!(
            "Image {}; {} round(s), a machine for each policy and load, {} ms to settle and {} ms \
             measured, {} s under the budget and {} s where waits are recorded. CPU 0 halts; CPU 1 sends interrupts in the load's rhythm, and the sleep \
             loop uses the timer; no spin in the guest.",
            experiment.image,
            experiment.rounds,
            experiment.warm.as_millis(),
            experiment.time.as_millis(),
            experiment.time(Policy::Budget, Load::Bursts).as_secs(),
            experiment.time(Policy::Never, Load::Bursts).as_secs()
        ),
        match data.why_unrecorded() {
            None => "Waits were recorded from KVM's trace point kvm_vcpu_wakeup in the arm that \
                     never polls."
                .to_owned(),
            Some(why) => format!("Waits were made from KVM's histograms, because {why}."),
        },
        format!("What a wake-up costs in the replay: {costs}."),
        "The best possible knows each wait beforehand and polls for the shortest ones alone; its \
         gap is that of mean latency, with the share of wake-ups that the budget caught as KVM \
         counted it. KVM's best is what its polling reaches with the best longest window, or turns \
         of two, for the same waits: below that window the kernel chooses by itself, and each \
         long wait makes it miss the short one that follows."
            .to_owned(),
    ];
    if data.kvm() == Kvm::Emulated {
        sentences.push(
            "This KVM executes ring 0 by its emulator: the lateness of the sleep loop is mostly that \
             of the handler's instructions."
                .to_owned(),
        );
    }
    sentences
}

fn limitations(experiment: &HaltBudget, figures: &[Figure]) -> Vec<String> {
    let data = &experiment.data;
    let missing = data.not_to_be_had();
    let mut sentences: Vec<String> = missing
        .map(|(policy, why)| format!("Not measured: {policy}: {why}."))
        .collect();
    let waiting = figures
        .iter()
        .filter(|f| f.name.starts_with("waiting_pct."));
    let worst = waiting.max_by(|a, b| a.value.total_cmp(&b.value));
    if let Some(worst) = worst.filter(|worst| worst.value > crate::host::CROWDED_PCT) {
        sentences.push(format!(
            "The host was busy: under {} the vCPU was ready and waited for a CPU for {} % of the \
             time. KVM does not poll while another task wants the CPU, so the budget is unspent.",
            worst.name.trim_start_matches("waiting_pct."),
            number(worst.value.round())
        ));
    }
    if data.costs().is_none() {
        sentences.push(
            "No gap to the best possible: the polling arm did not catch most wake-ups of any load."
                .to_owned(),
        );
    }
    sentences
}
