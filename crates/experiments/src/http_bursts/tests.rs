//! The whole weighing against fakes.

use std::sync::OnceLock;

use tare_control::exit::ExitCode;
use tare_load::interrupt::Interrupt;
use tare_machines::appliance::fake::{Fakes, Fault};

use super::*;
use crate::testing::{Run, kept};

/// A run of about two seconds.
fn short() -> Plan {
    Plan {
        cycles: 1,
        calibrate_ms: 100,
        burst_ms: 200,
        settle_ms: 20,
        break_ms: 60,
        steady_ms: 1000,
        window_ms: 50,
        idle_window_ms: 40,
        starts: 2,
        batches: 1,
        batch: 3,
        idle_ms: 40,
        idle_2cpu_ms: 40,
        idle_2cpu_machines: 2,
        quiet_ms: 20,
        // Beside builds an answer takes its time.
        timeout_ms: 60_000,
        compared: 0,
        capacity_rounds: 1,
        capacity_ms: 30,
        peer_burst_ms: 50,
        with_slow: true,
        ..Plan::new(Depth::Quick, None)
    }
}

fn run_until(kvm: Kvm, fault: Fault, plan: Plan, interrupt: &Interrupt) -> Run {
    let data = Data::default();
    let experiment = Box::new(HttpBursts { plan, data });
    Run::until("http-bursts", experiment, Fakes::new(kvm, fault), interrupt)
}

fn run(kvm: Kvm, fault: Fault) -> Run {
    run_until(kvm, fault, short(), &Interrupt::default())
}

/// A run without faults, done once for the tests that only look at it.
fn good() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| run(Kvm::Emulated, Fault::None))
}

/// Tags open and close in order, and nothing is loaded from anywhere.
fn well_formed(html: &str) {
    for word in [
        "http://", "https://", "<script", "<link", "@import", "url(", " src=",
    ] {
        assert!(!html.contains(word), "{word}");
    }
    let mut open: Vec<&str> = Vec::new();
    for part in html.split('<').skip(1) {
        let (tag, _) = part.split_once('>').unwrap();
        let name = tag.split([' ', '\n']).next().unwrap();
        let void = tag.ends_with('/') || ["!doctype", "meta"].contains(&name);
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{part}");
        } else if !void {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_whole_weighing_has_every_figure_and_ends_its_machines() {
    let run = good();
    assert_eq!(run.outcome.failures, Vec::<String>::new());
    assert_eq!(run.outcome.exit_code(), ExitCode::Success);
    let summary = run.summary();
    assert_eq!(
        (summary.experiment.as_str(), summary.revision.as_str()),
        ("http-bursts", "abc")
    );
    assert_eq!(summary.machine.kvm, Kvm::Emulated);
    let figure = |name: &str| {
        let found = summary.figures.iter().find(|f| f.name == name);
        found.unwrap_or_else(|| panic!("{name} is missing")).clone()
    };
    for base in [
        "cpu_idle_pct",
        "cpu_burst_pct",
        "cpu_1rps_pct",
        "idle_exits_per_s",
        "latency_p50_us",
    ] {
        for arm in ["spin", "poller", "tare"] {
            let figure = figure(&format!("{base}.{arm}"));
            if let Some((low, high)) = figure.ends() {
                assert!(low <= figure.value && figure.value <= high, "{figure:?}");
            }
            assert!(figure.n > 0);
        }
    }
    assert_eq!(figure("insns_per_request").value, 1000.0);
    assert_eq!(figure("insns_per_connection").value, 1000.0);
    assert_eq!(figure("boot_insns").n, 1);
    assert_eq!(figure("first_byte_ms").n, 2);
    assert_eq!(figure("first_line_ms.tcg").n, 2);
    assert_eq!(figure("monitor_rss_kib").value, 3072.0);
    assert_eq!(figure("image_bytes").value, 123_456.0);
    assert_eq!(figure("idle_exits_per_s.tare.2cpu").value, 0.0);
    for peer in ["ring3", "ring0", "translator", "native", "firecracker"] {
        for connections in [1, 10, 100] {
            assert!(figure(&format!("rps_max.{peer}.{connections}")).value > 0.0);
            figure(&format!("cpu_us_per_request.{peer}.{connections}"));
        }
        figure(&format!("cpu_burst_pct.{peer}"));
        figure(&format!("cpu_idle_pct.{peer}"));
    }
    assert_eq!(figure("ring").ends(), Some((3.0, 3.0)));
    assert_eq!(figure("ring.ring0").value, 0.0);
    assert_eq!(figure("ring.ring3").value, 3.0);
    assert_eq!(run.fakes.most, 4, "all idle machines rest while one counts");
    run.nothing_is_left();
}

#[test]
fn the_record_holds_every_request_and_the_command() {
    let run = good();
    assert_eq!(run.text("command.txt"), "tare weigh '<an experiment>'\n");
    let bursts = |arm: &str| {
        let requests = run.lines("request");
        requests
            .iter()
            .filter(|r| r["phase"] == "burst" && r["arm"] == arm)
            .count()
    };
    // As many as the source's rate gives, or fewer where the computer carries less.
    let (spin, tare) = (bursts("spin"), bursts("tare"));
    assert!(spin == tare && (1..=20).contains(&tare), "{spin}, {tare}");
    assert!(run.lines("cpu").iter().any(|c| c["phase"] == "settle"));
    assert!(
        run.lines("stats")
            .iter()
            .any(|s| s["stats"]["kvm"] == "emulated")
    );
    assert_eq!(run.lines("plan")[0]["plan"]["cycles"], 1);
}

#[test]
fn every_sample_says_which_arm_and_cycle_it_is_of() {
    let run = good();
    for kind in ["value", "events", "serving"] {
        let lines = run.lines(kind);
        assert!(!lines.is_empty(), "{kind}");
        for line in lines {
            assert!(line["arm"].is_string() && line["cycle"].is_u64(), "{line}");
        }
    }
    // Peers have rounds, and their name is in another field.
    let table = run.text("samples.csv");
    let samples = table.lines().skip(1).filter(|line| !line.contains("peer="));
    for line in samples {
        let fields: Vec<&str> = line.split(',').collect();
        let is_placed = !fields[2].is_empty() && !fields[3].is_empty();
        assert!(is_placed || fields[1] == "rate", "{line}");
    }
}

/// Windows of one machine share its boot: where there are several machines these are the samples.
#[test]
fn rates_of_idle_machines_are_of_machines() {
    let run = good();
    let figure = crate::testing::figure(&run.summary(), "idle_exits_per_s.tare.2cpu");
    assert_eq!(figure.n, 2, "{figure:?}");
    // An earlier record says which machine it read before.
    let (_, _, figures) = figures_of("2026-11-28-http-bursts");
    for (name, n) in [
        ("idle_exits_per_s.tare", 7),
        ("idle_exits_per_s.tare.2cpu", 6),
        ("idle_exits_per_s.spin", 6),
    ] {
        let figure = tare_lab::kit::find(&figures, name).unwrap();
        assert_eq!(figure.n, n, "{figure:?}");
    }
    // Of one machine the windows stay what they were.
    let (_, _, figures) = figures_of("2026-11-26-http-bursts");
    let figure = tare_lab::kit::find(&figures, "idle_exits_per_s.tare.2cpu").unwrap();
    assert!(figure.n > 6, "{figure:?}");
}

#[test]
fn idle_windows_span_the_counting_and_hold_no_other_machine() {
    let plan = Plan {
        cycles: 2,
        ..short()
    };
    let run = run_until(Kvm::Emulated, Fault::None, plan, &Interrupt::default());
    for (phase, cpus, machines) in [("idle", 1, 1), ("idle2_cpu", 2, 2)] {
        // A round at full speed lasts longer than the idle time of the short plan: it and the
        // counting on each machine are the only windows.
        let windows = run.lines("cpu");
        let windows = windows.iter().filter(|it| it["phase"] == phase);
        assert_eq!(windows.count(), 3 * machines, "{phase}");
        let stats = run.lines("stats");
        for one in stats.iter().filter(|it| it["phase"] == phase) {
            assert_eq!(one["stats"]["vcpus"].as_array().map(Vec::len), Some(cpus));
        }
    }
    assert!(
        run.text("report.html")
            .contains("servers are measured at full speed")
    );
}

#[test]
fn summary_json_has_exactly_the_promised_fields() {
    let run = run(Kvm::Hardware, Fault::None);
    let summary: Value = serde_json::from_str(&run.text("summary.json")).unwrap();
    let keys = |value: &Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    let expected = [
        "depth",
        "duration_s",
        "effects",
        "experiment",
        "failures",
        "figures",
        "goals",
        "machine",
        "not_judged",
        "revision",
        "schema",
        "started",
        "status",
        "subject",
    ];
    assert_eq!(keys(&summary), expected);
    assert_eq!(summary["depth"], "quick");
    assert_eq!(summary["subject"], "http");
    let expected = [
        "high",
        "low",
        "n",
        "name",
        "spread",
        "statistic",
        "unit",
        "value",
    ];
    assert_eq!(keys(&summary["figures"][0]), expected);
    assert_eq!(summary["machine"]["kvm"], "hardware");
    let started = summary["started"].as_str().unwrap();
    assert!(humantime::parse_rfc3339(started).is_ok(), "{started}");
    let names = run.text("summary.json");
    assert!(!names.contains("insns"), "hardware counts no instructions");
}

#[test]
fn the_report_is_one_well_formed_file_and_the_table_is_narrow() {
    let run = good();
    let html = run.text("report.html");
    well_formed(&html);
    assert!(html.contains("&lt;an experiment&gt;") && html.contains("<svg"));
    for line in run.outcome.table.lines() {
        assert!(line.chars().count() < 80, "{line}");
    }
}

#[test]
fn a_slow_appliance_gets_half_of_what_it_carries() {
    // 40 ms an answer and 4 connections: 100 a second are not carried.
    let run = run(Kvm::Emulated, Fault::Slow(40));
    let rate = &run.lines("rate")[0];
    let (carried, burst) = (&rate["carried_per_s"], &rate["burst_per_s"]);
    let (carried, burst) = (carried.as_f64().unwrap(), burst.as_f64().unwrap());
    assert!(
        carried < 125.0 && (burst - carried / 2.0).abs() < 1e-9,
        "{rate}"
    );
    assert!(run.text("report.html").contains("not carry Toro"));
}

#[test]
fn requests_that_fail_are_named_and_fail_the_check() {
    let run = run(Kvm::Emulated, Fault::BadAnswers);
    run.is_complete();
    assert_eq!(run.outcome.exit_code(), ExitCode::WeighFailed);
    assert!(
        run.outcome
            .failures
            .iter()
            .any(|f| f.contains("status 500")),
        "{:?}",
        run.outcome
    );
    assert!(run.outcome.to_string().contains("failed: "));
    run.nothing_is_left();
}

#[test]
fn a_machine_that_ends_breaks_off_with_its_code_and_keeps_what_there_was() {
    let run = run(Kvm::Emulated, Fault::Ends(6));
    assert_eq!(run.outcome.exit_code(), ExitCode::KvmInternal);
    assert!(
        run.summary()
            .figures
            .iter()
            .any(|f| f.name == "first_byte_ms")
    );
    let html = run.text("report.html");
    well_formed(&html);
    assert!(html.contains("Broken off") && html.contains("&lt;b&gt;the guest"));
    run.nothing_is_left();
}

#[test]
fn an_interruption_keeps_what_there_was_and_ends_the_machine() {
    let interrupt = Interrupt::default();
    let other = interrupt.clone();
    std::thread::spawn(move || {
        std::thread::sleep(ms(700));
        other.trip();
    });
    let plan = Plan {
        burst_ms: 60_000,
        ..short()
    };
    let run = run_until(Kvm::Emulated, Fault::None, plan, &interrupt);
    assert_eq!(run.outcome.exit_code(), ExitCode::Interrupted);
    assert!(
        run.outcome.failures.is_empty(),
        "{:?}",
        run.outcome.failures
    );
    assert!(!run.summary().figures.is_empty());
    well_formed(&run.text("report.html"));
    run.nothing_is_left();
}

#[test]
fn without_statistics_the_rest_is_measured() {
    let run = run(Kvm::None, Fault::None);
    assert_eq!(run.outcome.exit_code(), ExitCode::Success);
    let summary = run.summary();
    assert_eq!(summary.machine.kvm, Kvm::None);
    assert!(
        summary
            .figures
            .iter()
            .any(|f| f.name == "latency_p50_us.tare")
    );
    assert!(
        !summary
            .figures
            .iter()
            .any(|f| f.name.starts_with("idle_exits"))
    );
}

#[test]
fn the_report_of_http_bursts_is_made_again_from_raw_samples() {
    let run = run(Kvm::Emulated, Fault::None);
    run.is_rebuilt_from_its_samples();
    let dir = run.path();
    // A kill leaves no end and a line that is cut off.
    let raw = run.text("raw.jsonl");
    fs::write(dir.join("raw.jsonl"), &raw[..raw.len() / 2]).unwrap();
    fs::remove_file(dir.join("summary.json")).unwrap();
    run.rebuilt();
    let cut = run.summary();
    assert_eq!(cut.status, tare_lab::results::Status::Interrupted);
    assert!(!cut.figures.is_empty());
    well_formed(&run.text("report.html"));
}

/// The figures of a kept record.
fn figures_of(name: &str) -> (Plan, Data, Vec<Figure>) {
    let record = kept(name);
    let plan = record.plan().unwrap()["plan"].clone();
    let mut data = Data::default();
    data.replay(&record);
    let figures = data.figures();
    (serde_json::from_value(plan).unwrap(), data, figures)
}

#[test]
fn a_report_without_apache_on_linux_says_how_to_get_it() {
    let (mut plan, data, mut figures) = figures_of("2026-11-26-http-bursts");
    let says = |plan: &Plan, figures: &[Figure]| {
        let limitations = report::report_text(plan, &data, figures).limitations;
        limitations
            .iter()
            .any(|it| it.contains("scripts/setup.sh weigh"))
    };
    assert!(!says(&plan, &figures), "it is there");
    figures.retain(|figure| !figure.name.ends_with(".linux"));
    assert!(says(&plan, &figures));
    plan.compared = 0;
    assert!(!says(&plan, &figures), "it was not to be");
}

#[test]
fn windows_and_batches_of_one_machine_are_one_sample() {
    let (_, _, figures) = figures_of("2026-11-26-http-bursts");
    for (name, n) in [
        ("cpu_burst_pct.tare", 6),
        ("cpu_burst_pct.spin", 6),
        ("passt_cpu_burst_pct.tare", 6),
        ("cpu_1rps_pct.tare", 6),
        // Six breaks and the machine without requests.
        ("cpu_idle_pct.tare", 7),
        ("cpu_idle_pct.poller", 6),
        ("insns_per_request", 6),
        ("exits_per_connection", 6),
    ] {
        let figure = tare_lab::kit::find(&figures, name).unwrap();
        assert_eq!(figure.n, n, "{figure:?}");
        assert!(figure.interval().is_some(), "{figure:?}");
    }
    for name in ["cpu_idle_pct.tare.2cpu", "tcg_insns_per_request.linux"] {
        let figure = tare_lab::kit::find(&figures, name).unwrap();
        assert_eq!((figure.n, figure.ends()), (1, None), "{figure:?}");
    }
}

/// A break's windows follow the wait of a machine that comes to rest, which is of any length.
#[test]
fn windows_are_drawn_one_after_the_other_and_within_their_phase() {
    let (plan, data, _) = figures_of("2026-11-26-http-bursts");
    let timeline = charts::timeline(&plan, &data);
    assert_eq!(timeline.panels.len(), Arm::ALL.len());
    for panel in &timeline.panels {
        assert!(panel.windows.len() > plan.cycles * 4, "{panel:?}");
        let mut last_to = 0.0;
        for (from, to, _) in &panel.windows {
            assert!(*from >= last_to - 0.01, "{}: {from} {last_to}", panel.title);
            last_to = *to;
        }
        assert!(last_to <= timeline.end + 0.01);
    }
    // The poller is awake for a fifth of the time in each "1/s" band alone.
    let steady = timeline.bands.iter().filter(|band| band.label == "1/s");
    let poller = timeline.panels.iter().find(|it| it.title == "poller");
    for band in steady {
        let within = |it: &&(f64, f64, f64)| it.0 > band.span.0 - 0.01 && it.1 < band.span.1 + 0.01;
        let shares: Vec<f64> = poller
            .unwrap()
            .windows
            .iter()
            .filter(within)
            .map(|it| it.2)
            .collect();
        assert!(
            !shares.is_empty() && shares.iter().all(|it| *it > 10.0),
            "{shares:?}"
        );
    }
}

#[test]
fn a_comparison_with_linux_that_counted_iterations_is_read_and_marked() {
    let (_, data, figures) = figures_of("2026-11-22-http-bursts");
    assert!(tare_lab::kit::value(&figures, "tcg_insns_per_request.linux").is_some());
    let text = report::report_text(&short(), &data, &figures);
    let marked = |it: &String| it == tare_tailor::counter::ITERATIONS_INSIDE;
    assert!(
        text.limitations.iter().any(marked),
        "{:?}",
        text.limitations
    );
}
