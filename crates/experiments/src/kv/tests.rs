//! The weighing against fakes that answer as a cache does.

use tare_machines::appliance::fake::{Fakes, Fault};

use super::*;
use crate::testing::{Run, figure};

pub(crate) fn run(fault: Fault) -> Run {
    let short = Kv {
        turns: 2,
        calibrate: Duration::from_millis(100),
        load: Duration::from_millis(200),
        alone: Duration::from_millis(50),
        batch: 10,
        ..Kv::new(Depth::Quick, None)
    };
    Run::of("kv", Box::new(short), Fakes::new(Kvm::Emulated, fault))
}

#[test]
fn both_caches_are_asked_the_same_and_every_answer_is_checked() {
    let run = run(Fault::None);
    run.is_complete();
    let summary = run.summary();
    for arm in [TARE, MEMCACHED] {
        for metric in [CARRIED, P50, CPU] {
            assert!(figure(&summary, &metric.of(arm)).value > 0.0);
        }
    }
    for (arm, _) in ARMS {
        for metric in [ALONE, ALONE_P50] {
            assert!(figure(&summary, &metric.of(arm)).value > 0.0, "{arm}");
        }
    }
    let times = figure(&summary, "kv_get_times_memcached");
    assert_eq!(times.n, 2, "a pair of each round");
    // Instructions are counted in ring 0 alone, where the fake takes 1,000 a command.
    assert_eq!(figure(&summary, "kv_insns_per_get").value, 1000.0);
    let html = run.text("report.html");
    assert!(html.contains("commands a second; at "), "{html}");
    run.nothing_is_left();
}

#[test]
fn without_a_container_the_appliance_is_measured_and_the_report_says_why() {
    // The second server is the first container.
    let run = run(Fault::Ends(2));
    run.is_complete();
    figure(&run.summary(), "kv_p50_us.tare");
    assert!(
        run.text("report.html")
            .contains("Not measured: memcached: ")
    );
}
