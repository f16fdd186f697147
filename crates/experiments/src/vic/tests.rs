//! The weighing against fakes that print what the image prints.

use std::time::Duration;

use serde_json::{Value, json};
use tare_machines::appliance::fake::{Fakes, Fault};

use super::*;
use crate::testing::{Run, figure};

fn short(rounds: usize) -> Box<Vic> {
    let mut vic = Vic::new(Depth::Quick, None);
    vic.plan.rounds = rounds;
    vic.plan.disk_mib = 1;
    vic.plan.database = None;
    vic.plan.counted = Duration::from_millis(10);
    Box::new(vic)
}

/// Twice the commands and a quarter of the interrupts with vIC; flushes as fast.
fn prints(spec: &GuestSpec) -> Vec<Value> {
    let coalesces = spec.disks[0].contains("coalesce=auto");
    let depths = spec.cmdline.split_whitespace();
    let depths = depths.filter_map(|word| word.strip_prefix("cif="));
    let depths = depths
        .flat_map(|list| list.split(','))
        .map(|cif| cif.parse::<u64>().unwrap());
    let run = |cif: u64| {
        let (completed, interrupts) = if coalesces { (2000, 500) } else { (1000, 1000) };
        let times = json!({"count": completed, "mean": cif * 1000, "p50": cif * 1000,
            "p99": cif * 2000});
        [
            json!({"begin": true, "cif": cif}),
            json!({"end": true, "cif": cif}),
            json!({"cif": cif, "ns": 1_000_000_000, "completed": completed,
                "errors": 0, "mismatches": 0, "interrupts": interrupts, "completions": completed,
                "latency_ns": times, "flush_ns": times, "commit_ns": null}),
        ]
    };
    let mut lines = vec![json!({"disk": "disk0"})];
    lines.extend(depths.flat_map(run));
    lines.push(json!({"done": true}));
    lines
}

pub(crate) fn run(fault: Fault) -> Run {
    run_of(2, prints, fault)
}

fn run_of(rounds: usize, prints: fn(&GuestSpec) -> Vec<Value>, fault: Fault) -> Run {
    let fakes = Fakes {
        prints,
        ..Fakes::new(Kvm::Emulated, fault)
    };
    Run::of("vic", short(rounds), fakes)
}

#[test]
fn figures_have_the_names_of_the_issue() {
    let run = run(Fault::None);
    run.is_complete();
    let summary = run.summary();
    for cif in plan::CIF {
        for arm in ["off", "vic"] {
            let iops = figure(&summary, &format!("iops.cif{cif}.{arm}"));
            assert_eq!(
                (iops.value, iops.n),
                (if arm == "off" { 1000.0 } else { 2000.0 }, 2)
            );
            figure(&summary, &format!("cpu_us_per_io.cif{cif}.{arm}"));
            figure(&summary, &format!("latency_p99_us.cif{cif}.{arm}"));
        }
        // Two arms that are the same: a ratio of 1.
        for of in ["latency_again_over_off", "iops_off_over_again"] {
            assert_eq!(figure(&summary, &format!("{of}.cif{cif}")).value, 1.0);
        }
        assert_eq!(
            figure(&summary, &format!("iops_gain_pct.cif{cif}")).value,
            100.0
        );
        let p50 = figure(&summary, &format!("latency_p50_us.cif{cif}.off"));
        assert_eq!(p50.value, f64::from(cif));
    }
    let interrupts = |arm: &str| figure(&summary, &format!("interrupts_per_io.cif32.{arm}")).value;
    assert_eq!((interrupts("off"), interrupts("vic")), (1.0, 0.25));
    for arm in ["off", "vic"] {
        figure(&summary, &format!("iops.cif32.mixed8k.{arm}"));
        figure(&summary, &format!("iops.cif64.seq64k.{arm}"));
    }
    for name in ["cif32.qemu", "cif32.busy.vic", "cif32.cached.qemu"] {
        figure(&summary, &format!("interrupts_per_io.{name}"));
    }
    assert_eq!(figure(&summary, "fsync_p50_us.off").value, 32.0);
    assert_eq!(figure(&summary, "fsync_vic_over_off").value, 1.0);
    assert_eq!(figure(&summary, "fsync_plain_over_off").value, 1.0);
    // This program is not optimised, which the report says.
    let is_named = run.text("report.md").contains("Not measured: decision_ns");
    assert_eq!(is_named, cfg!(debug_assertions));
    run.nothing_is_left();
}

#[test]
fn a_record_has_what_needs_no_machine_and_the_database() {
    let line = |sample: &str, arm: &str, record: Value| json!({"sample": sample, "arm": arm, "round": 0, "record": record});
    let lines = vec![
        line("rule", "vic", json!({"decision_ns": 2.0})),
        line("rule", "vic", json!({"policy_text_bytes": 900.0})),
        line("database", "off", json!({"next": 0})),
        line(
            "database counters",
            "off",
            json!({"seconds": 2.0, "interrupts": 60.0, "requests": 120.0, "in_flight": 4.0}),
        ),
        line("database", "off", json!({"latency_ms": 30.5})),
        line("database", "off", json!({"tps": 100.5})),
        line("missing", "vic", json!("QEMU's own device: gone")),
    ];
    let mut vic = *short(2);
    let dir = "record".into();
    vic.replay(&tare_lab::kit::Record { dir, lines }).unwrap();
    let figures = vic.figures();
    let value = |name: &str| tare_lab::kit::value(&figures, name);
    assert_eq!(value("decision_ns"), Some(2.0));
    assert_eq!(value("policy_text_bytes"), Some(900.0));
    assert_eq!(value("db_interrupts_per_s.off"), Some(30.0));
    assert_eq!(value("db_interrupts_per_io.off"), Some(0.5));
    assert_eq!(value("db_latency_ms.off"), Some(30.5));
    assert_eq!(value("tps.off"), Some(100.5));
    assert_eq!(vic.data.missing, ["QEMU's own device: gone"]);
}

#[test]
fn what_misses_its_goal_is_said() {
    let run = run_of(6, prints, Fault::None);
    let page = run.text("report.html");
    assert!(page.contains("interrupts_per_io.cif64.vic is 0.25 (0.25 .. 0.25); the goal is"));
    assert!(!page.contains("interrupts_per_io.cif16.vic is"));
    assert!(page.contains("The guest runs in ring 3, natively"));
    assert!(page.contains("The shortest window of auto has"));
}

#[test]
fn errors_of_the_disk_fail_the_weighing() {
    let prints = |spec: &GuestSpec| {
        let mut lines = prints(spec);
        if let Some(line) = lines.get_mut(3) {
            line["errors"] = json!(3);
        }
        lines
    };
    let run = run_of(2, prints, Fault::None);
    assert!(run.text("report.html").contains("3 errors"));
}

#[test]
fn without_qemu_the_rest_is_weighed() {
    // The fourteenth machine is QEMU's: the first finds out what executes guests, and the three arms
    // before it have four each.
    let run = run(Fault::Ends(14));
    run.is_complete();
    assert!(
        run.text("report.html")
            .contains("own device: the machine ended")
    );
}

#[test]
fn r_over_time_is_read_back_from_a_record() {
    let interval = json!({
        "disk": "disk0", "from_s": 1.0, "to_s": 2.0, "completions": 9, "iops": 9.0,
        "in_flight": 1.0, "r": 0.5, "interrupts_per_io": 0.5,
    });
    let kept = json!({
        "cif": 1, "cpu": null, "instructions": null, "disk": interval,
        "intervals": [interval], "distribution": [{"r": 0.5, "completions": 9}],
    });
    let ran = json!({
        "cif": 1, "ns": 1_000_000_000, "completed": 9, "errors": 2, "interrupts": 5,
        "completions": 9,
    });
    let line = |sample: &str, record: &Value| {
        json!({"sample": sample, "arm": "vic", "round": 0, "record": record}).to_string()
    };
    let plan = json!({"sample": "plan", "experiment": "vic", "plan": {}}).to_string();
    let lines = [
        plan,
        line(Load::Random.about(), &ran),
        line("outside", &kept),
    ];
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("raw.jsonl"), lines.join("\n")).unwrap();
    let mut vic = short(1);
    vic.replay(&Record::read(dir.path()).unwrap()).unwrap();
    assert_eq!(vic.data.samples.values("delivered_per_io.cif1.vic"), [0.5]);
    assert_eq!(vic.data.failures, ["4 KiB random reads, vic: 2 errors"]);
    let sections = vic.report(&vic.figures()).sections;
    let titles: Vec<&str> = sections.iter().map(|it| it.title.as_str()).collect();
    assert!(titles.contains(&"R over time") && titles.contains(&"The distribution of R"));
}
