//! The weighing against fakes that answer as a cache does.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::appliance::fake::{Fakes, Fault};
use crate::experiments::testing::{Run, figure};
use crate::outcome::Ending;

fn short() -> Box<Kv> {
    Box::new(Kv {
        turns: 2,
        calibrate: Duration::from_millis(100),
        load: Duration::from_millis(200),
        batch: 10,
        ..Kv::new(Depth::Quick, None)
    })
}

fn run(fault: Fault) -> Run {
    Run::of("kv", short(), Fakes::new(Kvm::Emulated, fault))
}

#[test]
fn both_caches_are_asked_the_same_and_every_answer_is_checked() {
    let run = run(Fault::None);
    assert_eq!(
        run.outcome.ending,
        Ending::Complete,
        "{}",
        run.outcome.table
    );
    let summary = run.summary();
    for arm in Arm::ALL {
        let of = |base: &str| figure(&summary, &format!("{base}.{}", arm.name()));
        assert!(of("kv_ops_per_s").value > 0.0);
        assert!(of("kv_p50_us").value > 0.0);
    }
    run.nothing_is_left();
}

#[test]
fn without_a_container_the_appliance_is_measured_and_the_report_says_why() {
    // The second server is the first container.
    let run = run(Fault::Ends(2));
    assert_eq!(run.outcome.ending, Ending::Complete);
    figure(&run.summary(), "kv_p50_us.tare");
    assert!(
        run.text("report.html")
            .contains("Not measured: memcached: ")
    );
}

#[test]
fn a_machine_that_ends_breaks_off_and_keeps_what_there_was() {
    let run = run(Fault::Ends(3));
    assert!(matches!(run.outcome.ending, Ending::Broken(_)));
    figure(&run.summary(), "kv_ops_per_s.tare");
    run.nothing_is_left();
}

#[test]
fn the_report_of_kv_is_made_again_from_raw_samples() {
    let run = run(Fault::None);
    run.is_rebuilt_from_its_samples();
    let html = run.text("report.html");
    assert!(html.contains("commands a second; at "), "{html}");
}
