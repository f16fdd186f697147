//! The weighing against fakes that print what the image prints.

use serde_json::{Value, json};
use tare_lab::kit::{Depth, Experiment as _};
use tare_machines::appliance::GuestSpec;
use tare_machines::appliance::fake::Fault;

use super::*;
use crate::testing::{Run, figure, kept};

fn prints(spec: &GuestSpec) -> Vec<Value> {
    let halts = if spec.cpus == 2 { 8 } else { 0 };
    vec![
        json!({"khz": 2_000_000}),
        json!({"begin": true}),
        json!({"end": true}),
        json!({"rr": [2000, 4000, 6000, 8000]}),
        json!({"transactions": 4, "halts": halts, "ipis": halts, "timers": 2, "timers_renewed": 1}),
        json!({"done": true}),
    ]
}

pub(crate) fn run(fault: Fault) -> Run {
    Run::of_ping_pong(&KIND, prints, fault)
}

#[test]
fn transactions_are_counted_for_each_arm_and_judged() {
    let run = run(Fault::None);
    run.is_complete();
    let summary = run.summary();
    assert_eq!(figure(&summary, "rr_us.1vcpu.libos").value, 2.5);
    assert_eq!(figure(&summary, "rr_us.2vcpu.libos").n, 2);
    assert_eq!(figure(&summary, "rr_us.2vcpu.ring3").n, 2);
    assert_eq!(figure(&summary, "rr_us.1vcpu.host").n, 2);
    assert_eq!(figure(&summary, "exits_per_rr.halt.2vcpu").value, 2.0);
    assert_eq!(figure(&summary, "exits_per_rr.halt.1vcpu").value, 0.0);
    // The fake's timer writes miss the goal.
    assert!(
        run.text("report.html")
            .contains("exits_per_rr.timer.2vcpu is 0.5")
    );
    assert_eq!(figure(&summary, "rr_us.2vcpu.qemu").n, 1);
    assert_eq!(figure(&summary, "exits_per_rr.halt.2vcpu.qemu").value, 2.0);
    // Two vCPUs of the fake, two lines between the readings, 24 transactions.
    let kvms = figure(&summary, "exits_per_rr.kvm_halt.2vcpu");
    assert!((kvms.value - 2.0 / 24.0).abs() < 1e-9, "{kvms:?}");
    // Statistics are read at the end of measuring, not after printing.
    let raw = run.text("raw.jsonl");
    let stats = raw.lines().filter(|l| l.contains("\"sample\":\"stats\""));
    assert_eq!(stats.count(), 4 * 2 * 2);
    run.nothing_is_left();
}

#[test]
fn a_kept_run_is_read_without_the_programs_of_its_guests() {
    let record = kept("2026-11-21-tcp-rr-quick");
    let mut experiment = PingPong::new(&KIND, Depth::Quick, None);
    experiment.replay(&record).unwrap();
    let figures = experiment.figures();
    assert_eq!(RR.value(&figures, "1vcpu.linux"), Some(288.539));
}

#[test]
fn a_summary_is_kept_where_its_record_cannot_be_read() {
    run(Fault::None).is_kept_where_its_record_cannot_be_read();
}
