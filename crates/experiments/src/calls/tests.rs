//! The weighing against fakes that print what the program prints.

use tare_machines::appliance::fake::{Fakes, Fault};

use super::*;
use crate::testing::{Run, figure};

/// A million ns for each call, so that the host's are less.
fn prints(spec: &GuestSpec) -> Vec<Value> {
    let command = &spec.linux.as_ref().unwrap().command;
    assert_eq!(command[1..], ["3", "hold"]);
    let calls = KINDS.map(|kind| json!({kind: [1_000_000, 1_000_000, 2_000_000]}));
    calls.into_iter().chain([json!({"done": true})]).collect()
}

pub(crate) fn run(fault: Fault) -> Run {
    let short = Calls {
        rounds: 2,
        count: 3,
        ..Calls::new(Depth::Quick)
    };
    Run::of("calls", Box::new(short), Fakes::printing(prints, fault))
}

#[test]
fn each_call_has_its_cost_and_what_the_host_takes_less() {
    let run = run(Fault::None);
    run.is_complete();
    let summary = run.summary();
    for kind in KINDS {
        let tare = figure(&summary, &format!("call_ns.{kind}.tare"));
        assert_eq!((tare.value, tare.n), (1e6, 2), "{kind}");
    }
    let host = figure(&summary, "call_ns.getppid.host");
    let over = figure(&summary, "call_over_host_ns.getppid");
    assert_eq!(over.n, 2);
    assert!((over.value + host.value - 1e6).abs() < 1.0, "{over:?}");
    let html = run.text("report.html");
    assert!(html.contains("open and close of /dev/null"), "{html}");
    run.nothing_is_left();
}
