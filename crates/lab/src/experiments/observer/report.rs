//! What the cost of watching says.

use super::{LOADS, Observing, STORMS};
use crate::experiments::guest_bench::not_measured;
use crate::figure::{Figure, value};
use crate::number::number;

use crate::report::ReportText;
use crate::report::table;

pub(super) fn report_text(experiment: &Observing, figures: &[Figure]) -> ReportText {
    ReportText {
        title: "What watching virtual machines costs".to_owned(),
        question: "An observer counts in the kernel what machines do, on the CPUs of those that \
                   it watches, and reads the times of their threads. How much of a core does \
                   that take, and what do the guests lose by it?"
            .to_owned(),
        glance: glance(experiment, figures),
        answer: answer(figures),
        sections: Vec::new(),
        method: method(experiment),
        limitations: not_measured(&experiment.data).collect(),
    }
}

fn glance(experiment: &Observing, figures: &[Figure]) -> String {
    let rows: Vec<Vec<String>> = LOADS
        .iter()
        .filter(|load| value(figures, &format!("watch_cost_pct.{}", load.name)).is_some())
        .map(|load| {
            let of = |name: &str| {
                let found = value(figures, &format!("{name}.{}", load.name));
                found.map_or("–".to_owned(), number)
            };
            vec![
                load.about.to_owned(),
                (load.machines)(experiment.depth).to_string(),
                of("watch_cost_pct"),
                of("counted_pct"),
                of("guest_loss_pct"),
                of("control_loss_pct"),
                of("watch_start_ms"),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(
        &[
            "load",
            "machines",
            "cost, % of a core",
            "time counted, %",
            "guest's loss, %",
            "the same unwatched, %",
            "start, ms of CPU",
        ],
        &rows,
    )
}

fn answer(figures: &[Figure]) -> Vec<String> {
    let of = |name: &str, load: &str| value(figures, &format!("{name}.{load}"));
    let mut sentences = Vec::new();
    for load in LOADS {
        if let Some(cost) = of("watch_cost_pct", load.name) {
            sentences.push(format!(
                "Watching {} takes {} % of a core.",
                load.about,
                number(cost)
            ));
        }
    }
    for load in STORMS {
        if let (Some(loss), Some(control)) =
            (of("guest_loss_pct", load), of("control_loss_pct", load))
        {
            sentences.push(format!(
                "The guest of {load} executes {} % less for each second of its CPU time while it \
                 is watched; between two windows without the observer the difference is {} %.",
                number(loss),
                number(control)
            ));
        }
    }
    sentences
}

fn method(experiment: &Observing) -> Vec<String> {
    vec![
        format!(
            "Image {}; {} rounds of four windows of {} ms for each load, the third of them \
             watched: the windows before and after it are the comparison, the first two the A/A \
             pair.",
            experiment.image,
            experiment.rounds,
            experiment.window.as_millis()
        ),
        "The cost is the observing thread's CPU time and the kernel's run time of the BPF \
         programs, with 20 ns for each call that the kernel does not measure. Starting (loading \
         the programs, the first reading) is a figure of its own."
            .to_owned(),
        "A guest's pace is what KVM's emulator executed of it for each second of the machine's \
         CPU time; where the processor runs the guest, its exits."
            .to_owned(),
    ]
}
