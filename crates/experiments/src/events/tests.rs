//! The weighing against fakes that print what the image prints.

use serde_json::{Value, json};
use tare_machines::appliance::GuestSpec;
use tare_machines::appliance::fake::Fault;

use super::*;
use crate::testing::{Run, figure};

fn prints(spec: &GuestSpec) -> Vec<Value> {
    let halts = if spec.cpus == 2 { 8 } else { 1 };
    vec![
        json!({"khz": 2_000_000}),
        json!({"begin": true}),
        json!({"round": [2000, 4000, 6000, 8000]}),
        json!({"messages": 8, "halts": halts, "ipis": halts, "timers": 0, "spins_caught": 0}),
        json!({"done": true}),
    ]
}

pub(crate) fn run(fault: Fault) -> Run {
    Run::of_ping_pong(&KIND, prints, fault)
}

#[test]
fn messages_are_counted_for_each_arm_and_judged() {
    let run = run(Fault::None);
    run.is_complete();
    let summary = run.summary();
    assert_eq!(figure(&summary, "round_trip_us_p50.event").value, 2.5);
    assert_eq!(figure(&summary, "round_trip_us_p50.event").n, 2);
    assert_eq!(figure(&summary, "halts_per_message.condvar").value, 1.0);
    assert_eq!(figure(&summary, "round_trip_us_p50.ring3").n, 2);
    // The fake's lone halt on one CPU misses the goal of none.
    assert_eq!(figure(&summary, "halts_per_message.one").value, 0.125);
    assert!(
        run.text("report.html")
            .contains("halts_per_message.one is 0.125 ")
    );
    let host = figure(&summary, "round_trip_us_p50.host");
    assert!(host.value > 0.0 && host.n == 2);
    // QEMU has one turn.
    assert_eq!(figure(&summary, "round_trip_us_p50.qemu").n, 1);
    assert_eq!(figure(&summary, "halts_per_message.qemu").value, 1.0);
    run.nothing_is_left();
}
