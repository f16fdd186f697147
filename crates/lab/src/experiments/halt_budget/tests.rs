//! The weighing against fakes that print what the image prints.

use std::path::Path;

use tare_control::stats::Kvm;

use super::data::FRONTIER_GAP;
use super::*;
use crate::appliance::fake::{Fakes, Fault};
use crate::experiments::testing::{Run, figure};
use crate::outcome::WeighEnd;
use crate::replay::Record;

pub(crate) fn run(fault: Fault) -> Run {
    let fakes = Fakes {
        kvm: Kvm::Hardware,
        ..Fakes::printing(prints, fault)
    };
    let short = HaltBudget::new(Depth::Quick, None);
    Run::of("halt-budget", Box::new(short), fakes)
}

fn prints(spec: &GuestSpec) -> Vec<Value> {
    let wake = match spec.halt {
        "poll=200000" => 7000,
        _ => 31_000,
    };
    vec![
        json!({"begin": true}),
        json!({"end": true}),
        json!({"wake_ns": [wake, wake + 100, wake + 200]}),
        json!({"done": true}),
    ]
}

#[test]
fn every_policy_has_figures_under_every_load() {
    let run = run(Fault::None);
    assert_eq!(run.outcome.ending, WeighEnd::Complete);
    let summary = run.summary();
    for policy in Policy::ALL {
        for load in Load::ALL {
            figure(&summary, &format!("wake_p50_us.{}", load.of(policy)));
        }
    }
    let fast = figure(&summary, "wake_p50_us.poll.bursts");
    assert!((fast.value - 7.1).abs() < 1e-9);
    run.nothing_is_left();
}

#[test]
fn a_policy_that_is_not_to_be_had_is_named_and_the_rest_goes_on() {
    // The fifth machine of the first load is the dedicated one.
    let run = run(Fault::Ends(5));
    assert_eq!(run.outcome.ending, WeighEnd::Complete);
    let html = run.text("report.html");
    assert!(html.contains("Not measured: dedicated: "), "{html}");
    figure(&run.summary(), "wake_p50_us.budget.sleep10us");
}

/// Halts that this host records meanwhile are not the record's, also where a thread here has the
/// number of the record's vCPU.
#[test]
fn a_replay_takes_the_waits_of_its_record() {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs");
    let record = Record::read(&runs.join("2026-11-21-halt-budget-quick")).unwrap();
    let mut budget = HaltBudget::new(Depth::Quick, None);
    budget.replay(&record).unwrap();
    let figures = budget.figures();
    // As the run itself had them, in its summary.json.
    for (load, pct) in [
        ("every100us", 1.3063),
        ("bursts", 9.7130),
        ("sleep10us", 6.1495),
    ] {
        let gap = FRONTIER_GAP.value(&figures, load).unwrap();
        assert!((gap - pct).abs() < 1e-4, "{load}: {gap}");
    }
}
