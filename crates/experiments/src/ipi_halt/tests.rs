//! The weighing against fakes that print what the image prints.

use tare_machines::appliance::GuestSpec;
use tare_machines::appliance::fake::{Fakes, Fault};

use super::*;
use crate::testing::{Run, figure, kept};

fn prints(spec: &GuestSpec) -> Vec<Value> {
    let wake = match (spec.engine, spec.halt) {
        ("tare", "never") => 40_000,
        ("tare", _) => 10_000,
        _ => 20_000,
    };
    vec![
        json!({"khz": 2_000_000}),
        json!({"wake": [wake, wake + 2, wake + 4, wake + 6], "send": [5, 5, 5, 5]}),
        json!({"done": true}),
    ]
}

pub(crate) fn run(fault: Fault) -> Run {
    let short = IpiHalt {
        samples: 4,
        ..IpiHalt::new(Depth::Quick, None)
    };
    let fakes = Fakes {
        kvm: Kvm::Hardware,
        ..Fakes::printing(prints, fault)
    };
    Run::of("ipi-halt", Box::new(short), fakes)
}

#[test]
fn every_arm_has_its_quantiles_and_the_ratio_is_judged() {
    let run = run(Fault::None);
    run.is_complete();
    let summary = run.summary();
    for arm in &ARMS {
        for metric in [MIN, P50, MAX] {
            figure(&summary, &metric.of(arm.name));
        }
        // Eight wake-ups say nothing about one in ten.
        assert_eq!(P99.find(&summary.figures, arm.name), None);
    }
    assert_eq!(figure(&summary, "wake_cycles_min.never").value, 40_000.0);
    assert_eq!(figure(&summary, "wake_cycles_p50.poll").n, 2);
    let ratio = figure(&summary, "wake_poll_to_never");
    assert!((ratio.value - 0.25).abs() < 0.01, "{ratio:?}");
    assert!(
        run.outcome.table.contains("<=0.286 undecided"),
        "{}",
        run.outcome.table
    );
    let html = run.text("report.html");
    assert!(html.contains("KVM Message Passing 2015: bare metal") && html.contains("<svg"));
    assert!(html.contains("No p: 2 machines of each arm ran"), "{html}");
    run.nothing_is_left();
}

#[test]
fn a_kvm_that_refuses_dedicated_vcpus_is_asked_once_and_named() {
    let run = run(Fault::Ends(5));
    run.is_complete();
    let summary = run.summary();
    let dedicated = |f: &Figure| f.name.ends_with(".dedicated");
    assert!(!summary.figures.iter().any(dedicated));
    figure(&summary, "wake_cycles_p50.budget");
    let html = run.text("report.html");
    assert!(html.contains("Not measured: dedicated: "));
}

#[test]
fn turns_in_ring_3_that_fail_are_counted_and_pair_with_none() {
    // The second machine of the first round is ring 3's, and the first of the second.
    for machine in [2, 7] {
        let run = run(Fault::Ends(machine));
        run.is_complete();
        let html = run.text("report.html");
        assert!(
            html.contains("ring3: 1 of 2 turns failed, the first: "),
            "{html}"
        );
        let ratio = figure(&run.summary(), "wake_ring_3_to_ring_0");
        assert_eq!(ratio.n, 1, "one round has both");
        run.is_rebuilt_from_its_samples();
        assert!(run.text("report.html").contains("did something"), "its why");
    }
}

/// 201 wake-ups of the one machine that was watched are not 201 samples.
#[test]
fn a_step_of_a_wake_up_is_one_sample_whatever_its_histogram_says() {
    let record = kept("2026-11-26-ipi-halt");
    let mut experiment = IpiHalt::new(Depth::Standard, None);
    experiment.replay(&record).unwrap();
    let figures = experiment.figures();
    let steps: Vec<&Figure> = figures
        .iter()
        .filter(|it| it.name.starts_with(STEP.name))
        .collect();
    assert!(steps.len() > 3, "{steps:?}");
    assert!(steps.iter().all(|it| it.n == 1 && it.ends().is_none()));
    let polls = POLLS.find(&figures, POLL).unwrap();
    assert_eq!(
        (polls.n, polls.interval().is_some()),
        (6, true),
        "{polls:?}"
    );
    // The first table has the figures: no p99 of 200 wake-ups a machine.
    let glance = experiment.report(&figures).glance;
    let row = glance.split("<tr").find(|row| row.contains("never: Tare"));
    assert!(row.unwrap().contains("118,037"), "{glance}");
    // As many times as no memory holds.
    let account = experiment.watched.as_mut().unwrap();
    let text = serde_json::to_string(account).unwrap();
    let before = figure_of(&experiment.figures(), steps[0]);
    let hostile = text.replace("\"count\":1,", "\"count\":1000000000000000,");
    assert_ne!(hostile, text);
    experiment.watched = serde_json::from_str(&hostile).unwrap();
    let after = figure_of(&experiment.figures(), steps[0]);
    assert_eq!((before.n, after.n), (1, 1));
}

fn figure_of(figures: &[Figure], like: &Figure) -> Figure {
    tare_lab::kit::find(figures, &like.name).unwrap().clone()
}

#[test]
fn raw_samples_are_kept_with_arm_and_round() {
    let run = run(Fault::None);
    let raw = run.text("raw.jsonl");
    let of = |arm: &str| {
        let arm = format!("\"arm\":\"{arm}\"");
        raw.lines().filter(|l| l.contains(&arm)).count()
    };
    let watched = raw.lines().filter(|l| l.contains("\"sample\":\"watched\""));
    assert_eq!(watched.count(), 3);
    // Three lines and the statistics of each of two turns; QEMU has one without,
    // and a watched one of never gives no samples.
    assert_eq!(
        (of("never"), of("poll"), of("qemu"), of("host")),
        (8 + 3, 8, 3, 2)
    );
}
