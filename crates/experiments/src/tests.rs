//! What holds for every experiment.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tare_control::stats::Kvm;
use tare_lab::kit::{Depth, Direction, Experiment, Metric, UNITS, better, of_figure};
use tare_lab::results::{Status, summary};
use tare_lab::{Files, KeptRun, WeighEnd, rebuild};
use tare_machines::appliance::fake::Fault;

use super::testing::{Run, figure};
use super::*;

#[test]
fn every_report_has_its_text_and_no_value_is_left_open() {
    for entry in ALL {
        let report = entry.planned(Depth::Quick, None).report(&[]);
        let lists = [&report.answer, &report.method, &report.limitations];
        let sections = report.sections.iter().flat_map(|it| [&it.title, &it.lead]);
        let mut texts = vec![&report.title, &report.question];
        texts.extend(lists.into_iter().flatten().chain(sections));
        for text in texts {
            let about = format!("{}: {text}", entry.name);
            // A value may be JSON, whose braces are before quotes.
            let is_open = text
                .match_indices('{')
                .any(|(at, _)| !text[at + 1..].starts_with(['"', '}']));
            assert!(!text.is_empty() && !is_open, "{about}");
        }
        assert!(!report.method.is_empty(), "{}", entry.name);
    }
}

#[test]
fn forms_that_decide_goals_repeat_often_enough_for_an_interval() {
    for entry in ALL.iter().filter(|entry| !entry.goals.is_empty()) {
        for depth in [Depth::Standard, Depth::Full] {
            let plan = entry.planned(depth, None).plan();
            for name in ["rounds", "turns", "cycles", "starts", "batches", "boots"] {
                let times = plan.get(name).and_then(Value::as_u64);
                let about = format!("{} {}: {name}", entry.name, depth.name());
                assert!(times.is_none_or(|times| times >= 6), "{about}: {times:?}");
            }
        }
    }
}

/// Names in braces that are within no others.
fn outermost(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' => {
                if depth == 0 {
                    from = at + 1;
                }
                depth += 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    found.push(&text[from..at]);
                }
            }
            _ => {}
        }
    }
    found
}

/// Of figures, also in a table of arms, and of what is computed of two of them.
#[test]
fn figures_of_an_answer_have_their_interval() {
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    // Of counts the table is all.
    for entry in ALL.iter().filter(|entry| entry.name != "counts") {
        let file = experiments
            .join(entry.name.replace('-', "_"))
            .join("report.md");
        let text = fs::read_to_string(file).unwrap();
        let is_answer = |part: &&str| part.starts_with("Answer") || part.starts_with("Glance");
        let answer = text.split("\n## ").filter(is_answer);
        for name in answer.flat_map(outermost) {
            let (figure, form) = name.rsplit_once(':').unwrap_or((name, ""));
            let mut metrics = entry.metrics.iter();
            // The first word may name its metric by a value.
            let is_figure = figure.starts_with('{') || {
                let first = figure.split(' ').next().unwrap_or_default();
                metrics.any(|metric| metric.is_of(first))
            };
            assert!(!is_figure || form == "text", "{}: {{{name}}}", entry.name);
            seen += usize::from(is_figure);
        }
    }
    assert!(seen > 100, "{seen} figures");
}

type Weigh = fn(Fault) -> Run;

/// Weighings against fakes: a machine without which each breaks off, and a figure that it
/// has by then.
const FAKED: [(Weigh, usize, &str); 8] = [
    (events::tests::run, 3, "ipis_per_message.condvar"),
    (tcp_rr::tests::run, 2, "rr_us.1vcpu.libos"),
    (ipi_halt::tests::run, 3, "wake_cycles_p50.never"),
    (vmexit::tests::run, 1, ""),
    (calls::tests::run, 2, "call_ns.getppid.tare"),
    (kv::tests::run, 3, "kv_ops_per_s.tare"),
    (halt_budget::tests::run, 4, "wake_p50_us.poll.idle"),
    (vic::tests::run, 3, "iops.cif1.off"),
];

#[test]
fn a_machine_that_ends_breaks_off_and_keeps_what_there_was() {
    for (run, machine, kept) in FAKED {
        let run = run(Fault::Ends(machine));
        assert!(matches!(run.outcome.ending, WeighEnd::Broken(_)), "{kept}");
        if !kept.is_empty() {
            figure(&run.summary(), kept);
        }
        run.nothing_is_left();
    }
}

/// The machine that is QEMU's, and a figure of another arm.
const WITHOUT_QEMU: [(Weigh, usize, &str); 3] = [
    (events::tests::run, 6, "round_trip_us_p50.host"),
    (ipi_halt::tests::run, 6, "wake_cycles_p50.dedicated"),
    (vmexit::tests::run, vmexit::tests::QEMU, "exit_ns.cr3"),
];

#[test]
fn without_qemu_the_rest_is_measured_and_the_report_says_why() {
    for (run, machine, other) in WITHOUT_QEMU {
        let run = run(Fault::Ends(machine));
        run.is_complete();
        let summary = run.summary();
        assert!(summary.figures.iter().all(|f| !f.name.ends_with(".qemu")));
        figure(&summary, other);
        let page = run.text("report.html");
        assert!(page.contains("Not measured: qemu: "), "{page}");
    }
}

#[test]
fn a_broken_run_stays_broken_where_its_report_is_made_again() {
    let run = events::tests::run(Fault::Ends(3));
    assert_eq!(run.summary().status, Status::Broken);
    let again = run.rebuilt();
    assert!(matches!(again.ending, WeighEnd::Broken(_)), "{again:?}");
    assert_eq!(run.summary().status, Status::Broken);
}

#[test]
fn a_page_links_the_files_that_are_beside_it() {
    let run = events::tests::run(Fault::None);
    let linked = || {
        let page = run.text("report.html");
        let names = ["summary.json", "figures.csv", "raw.jsonl", "samples.csv"];
        names.map(|name| page.contains(&format!("<a href=\"{name}\">")))
    };
    assert_eq!(linked(), [true; 4]);
    for file in ["figures.csv", "samples.csv"] {
        fs::remove_file(run.path().join(file)).unwrap();
    }
    rebuild(&run.path(), ALL, Files::Page).unwrap();
    assert_eq!(linked(), [true, false, true, false]);
    let page = run.text("report.html");
    let rest = "tare report DIR writes figures.csv, samples.csv from raw.jsonl too";
    assert!(page.contains(rest), "{page}");
}

#[test]
fn digests_of_program_and_images_are_in_the_summary_and_on_the_page() {
    let run = events::tests::run(Fault::None);
    assert_eq!(run.summary().digests, None, "nothing was hashed");
    let digests =
        r#""programs":{"program_sha256":"ab12","images_sha256":{"events":"cd34","http":"ef56"}}"#;
    let raw = run.text("raw.jsonl");
    let hashed = raw.replacen(r#""programs":null"#, digests, 1);
    assert_ne!(raw, hashed);
    fs::write(run.path().join("raw.jsonl"), hashed).unwrap();
    run.rebuilt();
    let digests = run.summary().digests.unwrap();
    assert_eq!(digests.program.as_deref(), Some("ab12"));
    assert_eq!(digests.images["http"], "ef56");
    // The page has the image that was measured.
    let page = run.text("report.html");
    assert!(
        page.contains("ab12") && page.contains("events cd34"),
        "{page}"
    );
    assert!(!page.contains("ef56"), "{page}");
}

#[test]
fn a_record_says_whether_the_host_has_kvm_and_what_executed_guests() {
    let run = events::tests::run(Fault::None);
    let machine = &run.lines("plan")[0]["machine"];
    assert!(machine["has_kvm"].is_boolean(), "{machine}");
    assert!(machine["kvm"].is_null(), "no guest has run: {machine}");
    let used = run.summary().machine.kvm;
    assert_ne!(used, Kvm::None);
    assert_eq!(run.lines("end")[0]["kvm"], json!(used));
    run.rebuilt();
    assert_eq!(run.summary().machine.kvm, used);
    // Without KVM the page says which of both it is.
    let weighed = |has_kvm: bool| {
        let raw = run
            .text("raw.jsonl")
            .replace(&json!(used).to_string(), "\"none\"");
        let has = |it: bool| format!("\"has_kvm\":{it}");
        let raw = raw.replace(&has(!has_kvm), &has(has_kvm));
        fs::write(run.path().join("raw.jsonl"), raw).unwrap();
        fs::remove_file(run.path().join("summary.json")).unwrap();
        run.rebuilt();
        run.text("report.html")
    };
    assert!(weighed(true).contains("not used, though the host has it"));
    assert!(weighed(false).contains("the host has none"));
}

#[test]
fn reports_are_made_again_from_raw_samples() {
    for (run, ..) in FAKED {
        run(Fault::None).is_rebuilt_from_its_samples();
    }
}

/// What an early record lacks is in its summary; a record of today has all.
#[test]
fn a_record_that_cannot_be_read_replaces_a_summary_of_its_version_alone() {
    let runs: [Weigh; 2] = [vmexit::tests::run, halt_budget::tests::run];
    for run in runs {
        let run = run(Fault::None);
        run.is_kept_where_its_record_cannot_be_read();
        let early = run.text("raw.jsonl").replace("\"record\":2,", "");
        fs::write(run.path().join("raw.jsonl"), early).unwrap();
        let had = run.summary().figures.len();
        run.rebuilt();
        assert_eq!(run.summary().figures.len(), had);
    }
}

#[test]
fn every_figure_of_a_kept_run_has_a_better_side() {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs");
    let mut seen = 0;
    for dir in fs::read_dir(runs).unwrap().map(|dir| dir.unwrap().path()) {
        let Ok(summary) = summary(&dir.join("summary.json")) else {
            continue;
        };
        let Some(entry) = ALL.iter().find(|entry| entry.name == summary.experiment) else {
            continue;
        };
        for figure in &summary.figures {
            let about = format!("{}: {}", dir.display(), figure.name);
            assert!(better(ALL, &figure.name).is_some(), "{about}");
            // In the unit of today, so that runs compare.
            let metric = of_figure(entry.metrics, &figure.name);
            assert!(metric.is_none_or(|it| it.unit == figure.unit), "{about}");
            seen += 1;
        }
    }
    assert!(seen > 1_000, "{seen} figures");
}

/// The unit that a word of a name says.
fn unit_of(word: &str) -> Option<&str> {
    match word {
        "us" | "ns" | "ms" | "insns" | "bytes" => Some(word),
        "instructions" => Some("insns"),
        "kib" => Some("KiB"),
        "mib" => Some("MiB"),
        _ => None,
    }
}

#[test]
fn a_unit_has_one_name_which_the_metrics_name_agrees_with() {
    let mut units: BTreeMap<&str, &str> = BTreeMap::new();
    for Metric { name, unit, .. } in ALL.iter().flat_map(|entry| entry.metrics) {
        assert!(UNITS.contains(unit), "{name}: {unit:?}");
        assert_eq!(units.insert(name, unit).unwrap_or(unit), *unit, "{name}");
        let words: Vec<&str> = name.split('_').collect();
        let expected = match words.as_slice() {
            [.., "pct"] => Some("%"),
            [.., "per", "s"] => Some("1/s"),
            words => words.iter().find_map(|word| unit_of(word)),
        };
        assert!(expected.is_none_or(|it| it == *unit), "{name}: {unit}");
    }
}

#[test]
fn rates_of_work_are_better_high_and_a_name_has_one_better_side() {
    for (figure, direction) in [
        ("ipis_skipped_per_message.spin", Some(Direction::More)),
        ("iops_off_over_vic.cif32", Some(Direction::Less)),
        ("interrupts_per_io.cif32.vic", Some(Direction::Less)),
        ("db_iops.vic", Some(Direction::More)),
        ("in_flight.cif1", Some(Direction::Neither)),
        ("iopsx.vic", None),
    ] {
        assert_eq!(better(ALL, figure), direction, "{figure}");
    }
    for metric in ALL.iter().flat_map(|entry| entry.metrics) {
        assert_eq!(
            better(ALL, metric.name),
            Some(metric.better),
            "{}",
            metric.name
        );
    }
}

#[test]
fn a_run_that_is_to_measure_something_else_is_refused_before_it_begins() {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs");
    let against = |name: &str, entry: &Entry, planned: &dyn Experiment| {
        let run = KeptRun::of(&runs.join(name), entry, planned);
        run.map(|run| run.other_depth(Depth::Standard))
    };
    let of_app = |app: Option<&str>| {
        let app = app.map(str::to_owned);
        let options = TailorOptions {
            app,
            ..TailorOptions::default()
        };
        let planned = options.planned(Depth::Standard);
        against("2026-11-29-tailor-nginx-quick", &tailor::ENTRY, &*planned)
    };
    let depth = of_app(Some("nginx")).unwrap().unwrap();
    assert!(depth.contains("quick and standard"), "{depth}");
    let error = of_app(None).unwrap_err();
    assert!(error.to_string().contains("nginx and lighttpd"), "{error}");
    let of_image = |image: Option<&str>| {
        let planned = observer::ENTRY.planned(Depth::Standard, image.map(str::to_owned));
        against("2026-11-26-observer", &observer::ENTRY, &*planned)
    };
    assert_eq!(of_image(None).unwrap(), None);
    let error = of_image(Some("other")).unwrap_err();
    assert!(error.to_string().contains("storm and other"), "{error}");
    let error = against(
        "2026-11-26-observer",
        &vic::ENTRY,
        &*vic::ENTRY.planned(Depth::Quick, None),
    );
    let error = error.unwrap_err();
    assert!(error.to_string().contains("observer and vic"), "{error}");
}
