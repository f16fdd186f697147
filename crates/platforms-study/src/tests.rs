//! The instrument on samples whose truth is known.

mod pairs;
mod recorded;

use tare_control::exit::ExitCode;
use tare_platform::{Mode, Place, Platform};
use tare_stats::SplitMix64;

use super::analysis::{self, Pinning};
use super::data::{Data, Run};
use super::estimate::{self, ALPHA};
use super::observe::{Observed, Sched};
use super::plan::{Arm, Cell};
use super::{ContainerEngine, PlatformOptions, Platforms};
use super::{figures, fit, instrument};
use tare_lab::kit::Experiment as _;
use tare_lab::kit::{Depth, WeighError};

/// Pairs of runs, as many as CPU-Pinning 2020's.
const RUNS: usize = 20;
/// Spread of a run's time: 2 %, what this machine shows when it is quiet.
const SPREAD: f64 = 0.02;

/// A time around `mean`, nearly normal (a sum of twelve), with an outlier now and
/// then.
pub(crate) fn time(dice: &mut SplitMix64, mean: f64) -> f64 {
    let unit = |dice: &mut SplitMix64| dice.below(1_000_000) as f64 / 1e6;
    let normal: f64 = (0..12).map(|_| unit(dice)).sum::<f64>() - 6.0;
    let late = if dice.below(50) == 0 { 1.3 } else { 1.0 };
    mean * (1.0 + SPREAD * normal) * late
}

/// Of each 100 comparisons of `runs` pairs, in how many the instrument tells `slower` from 1;
/// `noise` is what chance makes of a pair's ratio.
fn found(slower: f64, runs: usize, noise: impl Fn(&mut SplitMix64) -> f64) -> Vec<usize> {
    let hundred = |seed| {
        let mut dice = SplitMix64::new(seed);
        let differs = |_: &usize| {
            let logs = (0..runs).map(|_| (noise(&mut dice) * slower).ln());
            let p = tare_stats::signed_rank_p(&logs.collect::<Vec<_>>());
            p.is_some_and(|p| p < ALPHA)
        };
        (0..100).filter(differs).count()
    };
    (1..=10).map(hundred).collect()
}

/// The ratio of two runs that are the same.
fn pair(dice: &mut SplitMix64) -> f64 {
    time(dice, 1.0) / time(dice, 1.0)
}

#[test]
fn a_slow_down_of_five_percent_is_found_in_90_of_100() {
    let found = found(1.05, RUNS, pair);
    assert!(found.iter().all(|found| *found >= 90), "{found:?}");
}

#[test]
fn equal_arms_differ_in_at_most_five_of_100() {
    let found = found(1.0, RUNS, pair);
    assert!(found.iter().all(|found| *found <= 5), "{found:?}");
}

#[test]
fn runs_needed_to_find_five_percent_follow_from_the_spread_of_the_runs() {
    let mut dice = SplitMix64::new(3);
    let mut data = Data::default();
    let place = Place::new(Platform::Bare, Mode::Vanilla, 8, 8);
    for block in 0..150_u64 {
        for arm in [Arm::Main, Arm::Control] {
            let mut run = run("a", "w", place, arm, time(&mut dice, 7.0));
            run.block = Some(block);
            data.runs.push(run);
        }
    }
    let noise = instrument::noise(&data, "w");
    assert_eq!(noise.len(), 150);
    let enough = instrument::runs_to_find(&noise).unwrap();
    assert!((6..=2 * RUNS).contains(&enough), "{enough}");
    let found = found(1.05, enough, pair);
    let mean = found.iter().sum::<usize>() / found.len();
    assert!(mean >= 85, "{enough} pairs: {found:?}");
    data.runs.truncate(10);
    let noise = instrument::noise(&data, "w");
    assert_eq!(instrument::runs_to_find(&noise), None);
}

pub(crate) fn run(host: &str, workload: &str, place: Place, arm: Arm, time: f64) -> Run {
    Run {
        sample: "run".into(),
        host: host.into(),
        host_cpus: 8,
        cell: Cell {
            workload: workload.into(),
            place,
            arm,
        },
        round: 1,
        block: None,
        warm_up: false,
        value: Some(time),
        unit: "s".into(),
        time: Some(time),
        failure: None,
        wall_s: time,
        took_s: time,
        observed: Observed::default(),
        engine: None,
    }
}

/// Overheads made of a constant of the VM and a falling part of the container.
pub(crate) fn made(hosts: &[(&str, f64)]) -> Data {
    let mut dice = SplitMix64::new(7);
    let mut data = Data::default();
    for (host, speed) in hosts {
        for size in [1, 2, 4, 8] {
            for (platform, mode, overhead) in [
                (Platform::Bare, Mode::Vanilla, 0.0),
                (Platform::Vm, Mode::Vanilla, 0.30),
                (Platform::Container, Mode::Vanilla, 0.40 / f64::from(size)),
                (Platform::Container, Mode::Pinned, 0.0),
            ] {
                let place = Place::new(platform, mode, size, 8);
                for _ in 0..RUNS {
                    let mean = speed / f64::from(size) * (1.0 + overhead);
                    let normal = time(&mut dice, mean).min(mean * 1.1);
                    data.runs.push(run(host, "w", place, Arm::Main, normal));
                }
            }
        }
    }
    data
}

#[test]
fn a_made_overhead_is_split_into_what_it_was_made_of() {
    let data = made(&[("a", 10.0)]);
    let vm = fit::split(&data, "w", Platform::Vm, Mode::Vanilla).unwrap();
    assert!((vm.constant.value - 30.0).abs() < 3.0, "{vm:?}");
    assert!(!vm.constant.differs_from(30.0), "{vm:?}");
    assert!(vm.constant.differs_from(25.0), "{vm:?}");
    let container = fit::split(&data, "w", Platform::Container, Mode::Vanilla).unwrap();
    let (size, falling) = container.falling[0];
    assert_eq!(size, 1);
    assert!((falling.value - 40.0).abs() < 4.0, "{container:?}");
    assert!(container.constant.value.abs() < 3.0, "{container:?}");
    let gain = |size| analysis::pin_gain(&data, "w", Platform::Container, size).unwrap();
    let (what, small) = gain(1);
    assert_eq!(what, Pinning::QuotaToSet);
    assert!(
        (small.value - 40.0).abs() < 4.0 && small.differs_from(0.0),
        "{small:?}"
    );
    assert_eq!(gain(8).0, Pinning::Control);
}

#[test]
fn pairs_hold_what_changes_slowly_out_of_a_difference() {
    let place = Place::new(Platform::Bare, Mode::Vanilla, 8, 8);
    let mut data = Data::default();
    for block in 0..20_u64 {
        // The machine gets slower and slower, and the second arm takes 3 % longer.
        let slower = 1.0 + block as f64 / 10.0;
        for (arm, mean) in [(Arm::Main, 1.03), (Arm::Unobserved, 1.0)] {
            let mut run = run("a", "w", place, arm, mean * slower);
            (run.block, run.warm_up) = (Some(block), block == 0 && arm == Arm::Main);
            data.runs.push(run);
        }
    }
    let comparison = instrument::against_baseline(&data, "w", Arm::Unobserved).remove(0);
    let ratio = comparison.ratio;
    assert_eq!(ratio.n, 19);
    assert!((ratio.value - 1.03).abs() < 1e-9, "{ratio:?}");
    let interval = ratio.interval.unwrap();
    assert!((interval.high - interval.low) < 1e-9, "{ratio:?}");
    assert!(comparison.differs(), "{comparison:?}");
    let costs = figures::figures(&data, &[]);
    let cost = costs.iter().find(|f| f.name == "observer_cost_pct.w");
    assert!((cost.unwrap().value - 3.0).abs() < 1e-6, "{cost:?}");
}

#[test]
fn one_size_cannot_be_split() {
    let mut data = made(&[("a", 1.0)]);
    data.runs.retain(|run| run.cell.place.size == 2);
    assert_eq!(fit::split(&data, "w", Platform::Vm, Mode::Vanilla), None);
}

#[test]
fn two_sizes_cannot_be_split() {
    let mut data = made(&[("a", 1.0)]);
    data.runs.retain(|run| run.cell.place.size < 4);
    let split = |platform| fit::split(&data, "w", platform, Mode::Vanilla);
    assert_eq!(split(Platform::Vm), None);
    assert_eq!(split(Platform::Container), None);
    // Nor can those of two hosts, which are the same two.
    let mut data = made(&[("a", 1.0), ("b", 2.0)]);
    data.runs.retain(|run| run.cell.place.size < 4);
    let two = fit::split(&data, "w", Platform::Vm, Mode::Vanilla);
    assert_eq!(two, None);
    let names: Vec<String> = figures::figures(&data, &[])
        .into_iter()
        .map(|f| f.name)
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.starts_with("pto_") || name.starts_with("pso_"))
    );
}

#[test]
fn a_ratio_with_one_run_has_no_interval_and_decides_nothing() {
    let one = estimate::ratio(&[1.8], &[1.0, 1.01, 0.99]).unwrap();
    assert_eq!((one.interval, one.n), (None, 1));
    assert!(!one.differs_from(1.0));
    let six = [1.8, 1.9, 1.85, 1.8, 1.9, 1.85];
    let several = estimate::ratio(&six, &six.map(|time| time / 1.8)).unwrap();
    assert!(several.interval.is_some() && several.differs_from(1.0));
    let both = estimate::together(&[one, one]).unwrap();
    assert_eq!(both.interval, None);
}

/// The host's size holds vanilla and pinned containers alike, and below it one is held by
/// quota: neither says what pinning gains.
#[test]
fn quota_and_sets_of_cpus_are_never_pooled() {
    let mut data = made(&[("a", 1.0)]);
    data.runs.retain(|run| run.cell.place.size > 2);
    let figures = figures::figures(&data, &[]);
    let names: Vec<&str> = figures.iter().map(|f| f.name.as_str()).collect();
    assert!(
        names.contains(&"quota_to_set_pct.w.container.4"),
        "{names:?}"
    );
    assert!(
        names.contains(&"pin_control_pct.w.container.8"),
        "{names:?}"
    );
    assert!(
        !names
            .iter()
            .any(|name| name.starts_with("pin_gain_pct.w.container"))
    );
}

#[test]
fn a_quota_that_stopped_nothing_did_not_bind() {
    let mut data = made(&[("a", 1.0)]);
    let place = Place::new(Platform::Container, Mode::Vanilla, 1, 8);
    assert_eq!(analysis::quota_bound(&data, "w", place), None);
    let set = |data: &mut Data, us| {
        for run in data.runs.iter_mut().filter(|run| run.cell.place == place) {
            run.observed.throttled_us = Some(us);
        }
    };
    set(&mut data, 0);
    assert_eq!(analysis::quota_bound(&data, "w", place), Some(false));
    // A limit that did not bind is not a size, so three of four are left for the fit.
    set(&mut data, 500_000);
    assert_eq!(analysis::quota_bound(&data, "w", place), Some(true));
}

#[test]
fn hosts_of_different_speed_are_merged_by_their_ratios() {
    let data = made(&[("slow", 30.0), ("fast", 1.0)]);
    let place = Place::new(Platform::Vm, Mode::Vanilla, 4, 8);
    let ratio = analysis::overhead(&data, "w", place).unwrap();
    assert!((ratio.value - 1.3).abs() < 0.03, "{ratio:?}");
}

#[test]
fn a_record_is_read_back_without_its_torn_end() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::new(Platform::Container, Mode::Vanilla, 1, 8);
    let run = run("a", "w,\"x\"", place, Arm::Control, 0.5);
    let line = serde_json::to_string(&run).unwrap();
    let text = format!("{{\"sample\":\"plan\"}}\n{line}\n{}", &line[..40]);
    std::fs::write(dir.path().join("raw.jsonl"), text).unwrap();
    let mut data = Data::default();
    assert_eq!(data.read(dir.path()).unwrap(), 1);
    assert_eq!(data.runs, [run]);
    assert!(
        data.csv()
            .contains("a,\"w,\"\"x\"\"\",container,vanilla,1,quota,control,1,")
    );
}

#[test]
fn charges_of_the_runs_that_counted_them_are_in_the_table_of_runs() {
    let place = Place::new(Platform::Container, Mode::Vanilla, 8, 8);
    let counted = |charges: Option<u64>| {
        let mut run = run("a", "w", place, Arm::Main, 0.5);
        run.warm_up = charges.is_some();
        run.observed.sched = Some(Sched {
            migrations: 7,
            charges,
            charged_groups: charges.map(|_| 3),
            ..Sched::default()
        });
        run
    };
    let mut data = Data::default();
    data.runs = vec![counted(Some(1_234)), counted(None)];
    let csv = data.csv();
    let columns = |row: usize| {
        let head = csv.lines().next().unwrap().split(',');
        let row = csv.lines().nth(row).unwrap().split(',');
        let named = head.zip(row).filter(|(name, _)| {
            matches!(
                *name,
                "warm_up" | "migrations" | "charges" | "charged_groups"
            )
        });
        named.map(|(_, value)| value.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(columns(1), ["true", "7", "1234", "3"]);
    assert_eq!(columns(2), ["false", "7", "", ""]);
    let width = |line: &str| line.split(',').count();
    let widths: Vec<usize> = csv.lines().map(width).collect();
    assert!(widths.iter().all(|it| *it == widths[0]), "{widths:?}");
}

fn configured(depth: Depth, options: PlatformOptions) -> Result<Platforms, WeighError> {
    let mut platforms = Platforms {
        options,
        ..Platforms::new(depth)
    };
    let configured = platforms.configure();
    configured.map(|()| platforms)
}

#[test]
fn a_budget_without_time_is_refused() {
    let with = |minutes: u64| {
        let options = PlatformOptions {
            budget: Some(std::time::Duration::from_secs(minutes * 60)),
            ..PlatformOptions::default()
        };
        configured(Depth::Quick, options).map(drop)
    };
    let error = with(0).unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Usage);
    let said = error.to_string();
    assert_eq!(
        said,
        "--budget 0 leaves no time for a run: give at least 1 minute"
    );
    with(1).unwrap();
}

/// A record of `runs` in its own directory, begun by `plan`.
fn recorded(runs: &[Run], plan: &serde_json::Value) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let line = serde_json::json!({
        "sample": "plan", "experiment": "platforms", "plan": plan, "revision": "abc",
        "started": "2026-01-01T00:00:00Z", "machine": tare_lab::kit::HostFacts::default(),
    });
    let mut text = format!("{line}\n");
    for run in runs {
        text += &serde_json::to_string(run).unwrap();
        text.push('\n');
    }
    std::fs::write(dir.path().join("raw.jsonl"), text).unwrap();
    dir
}

#[test]
fn a_host_of_earlier_records_is_the_one_of_later_ones() {
    let place = Place::new(Platform::Bare, Mode::Vanilla, 8, 8);
    let of = |host: &str, time: f64| [run(host, "w", place, Arm::Main, time)];
    let none = serde_json::json!({});
    let (old, new) = (
        recorded(&of("a", 1.0), &none),
        recorded(&of("a#1", 1.1), &none),
    );
    let other = recorded(&of("a#2", 1.2), &none);
    let hosts = |records: &[&tempfile::TempDir]| {
        let mut data = Data::default();
        for record in records {
            data.read(record.path()).unwrap();
        }
        data.hosts()
            .into_iter()
            .map(|host| host.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(hosts(&[&old, &new]), ["a#1"]);
    assert_eq!(hosts(&[&new, &old, &old]), ["a#1"]);
    assert_eq!(hosts(&[&old, &new, &other]), ["a#1", "a#2"]);
    assert_eq!(
        hosts(&[&new, &other, &old]),
        ["a", "a#1", "a#2"],
        "either could be it"
    );
    let path = other.path().join("raw.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"cpu\":\"\"", "\"cpu\":\"x\"")).unwrap();
    assert_eq!(hosts(&[&other, &old]), ["a", "a#2"], "another processor");
    let mut data = Data::default();
    data.read(old.path()).unwrap();
    data.adopt("a#1");
    assert_eq!(data.hosts(), [("a#1".to_owned(), 8)]);
}

#[test]
fn a_report_made_again_is_of_its_own_run_and_host() {
    let place = Place::new(Platform::Bare, Mode::Vanilla, 8, 8);
    let runs = [run("a", "w", place, Arm::Main, 1.0)];
    let plan = serde_json::json!({"seed": 7, "online_cpus": 16, "container_engine": "podman"});
    let dir = recorded(&runs, &plan);
    let record = tare_lab::kit::Record::read(dir.path()).unwrap();
    let mut platforms = Platforms::new(Depth::Quick);
    platforms.replan(&plan);
    platforms.replay(&record).unwrap();
    let text = platforms.report(&[]);
    let says = |sentences: &[String], what: &str| sentences.iter().any(|it| it.contains(what));
    assert!(says(&text.method, "(seed 7)"), "{:?}", text.method);
    assert!(says(&text.limitations, "8 of this host's 16 CPUs"));
    assert!(says(&text.limitations, "Containers are podman's"));
    // Earlier records know neither.
    platforms.replan(&serde_json::json!({}));
    let text = platforms.report(&[]);
    assert!(!says(&text.limitations, "of this host's"));
}

#[test]
fn the_same_record_is_merged_once_and_keeps_its_machine() {
    let place = Place::new(Platform::Bare, Mode::Vanilla, 8, 8);
    let runs = [1.0, 1.1].map(|time| run("a", "w", place, Arm::Main, time));
    let dir = recorded(&runs, &serde_json::json!({}));
    let merged = |dirs: &[&std::path::Path]| {
        let merge = dirs.iter().map(|dir| dir.to_path_buf()).collect();
        let options = PlatformOptions {
            merge,
            ..PlatformOptions::default()
        };
        configured(Depth::Quick, options)
    };
    let platforms = merged(&[dir.path()]).unwrap();
    assert_eq!(platforms.data.runs.len(), 2);
    assert_eq!(platforms.merged().unwrap().revision, "abc");
    let Err(error) = merged(&[dir.path(), dir.path()]) else {
        panic!("a record counts once");
    };
    assert!(error.to_string().contains("adds no runs"), "{error}");
    assert_eq!(error.exit_code(), ExitCode::Usage);
    let nothing = recorded(&[], &serde_json::json!({}));
    assert!(merged(&[nothing.path()]).is_err(), "a record without runs");
}

/// What a record's runs say does not depend on the machine that reads them.
#[test]
fn findings_of_a_merged_record_are_those_of_its_host() {
    let dir = recorded(&made(&[("a", 10.0)]).runs, &serde_json::json!({}));
    let merged = |cpus| {
        let options = PlatformOptions {
            merge: vec![dir.path().to_owned()],
            ..PlatformOptions::default()
        };
        let mut platforms = Platforms {
            host_cpus: cpus,
            ..configured(Depth::Quick, options).unwrap()
        };
        // Tare has no file of "w": what it waits for is not known.
        platforms.workloads.clear();
        let mut evidence = platforms.evidence();
        evidence.kinds = vec![("w".to_owned(), tare_platform::workload::WorkloadKind::Cpu)];
        (super::findings::table(&evidence), platforms.limitations())
    };
    let (table, limitations) = merged(8);
    assert_eq!(merged(2).0, table);
    assert_eq!(merged(16).0, table);
    assert_eq!(merged(1), (table, limitations));
}

#[test]
fn the_pairs_of_all_hosts_are_tested() {
    let place = Place::new(Platform::Vm, Mode::Vanilla, 8, 8);
    let mut data = made(&[("a", 1.0)]);
    assert_eq!(
        analysis::tested_against_bare(&data, "w", place),
        None,
        "no pairs"
    );
    let bare = Place::new(Platform::Bare, Mode::Vanilla, 8, 8);
    for block in 0..20_u64 {
        let longer = 1.2 + block as f64 / 100.0;
        for (place, time) in [(bare, 1.0), (place, longer)] {
            let mut run = run("b", "w", place, Arm::Main, time);
            run.block = Some(block);
            data.runs.push(run);
        }
    }
    let p = analysis::tested_against_bare(&data, "w", place);
    assert!(p.is_some_and(|p| p < 0.001), "{p:?}");
    assert_eq!(analysis::tested_against_bare(&data, "w", bare), None);
}

#[test]
fn a_workload_that_was_edited_is_not_continued() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let built_in = tare_platform::workload::find("ffmpeg").unwrap();
    std::fs::write(&file, built_in.text.replace("about = \"", "about = \"my ")).unwrap();
    let plan = |sha: &str| {
        serde_json::json!({
            "form": "quick", "container_engine": "runc", "workload_sha256": {"mine": sha},
        })
    };
    let resumed = |sha: &str| {
        let record = recorded(&[], &plan(sha));
        let options = PlatformOptions {
            resume: Some(record.path().to_owned()),
            workloads: vec![file.to_string_lossy().into_owned()],
            ..PlatformOptions::default()
        };
        configured(Depth::Quick, options).map(drop)
    };
    let same = tare_lab::kit::sha256_of_text(&std::fs::read_to_string(&file).unwrap());
    resumed(&same).unwrap();
    let error = resumed("other").unwrap_err();
    assert!(
        error.to_string().contains("mine has been edited"),
        "{error}"
    );
}

/// Each start of a weighing adds its plan to the record: the last one holds.
#[test]
fn a_record_of_another_form_engine_or_platforms_is_not_continued() {
    let dir = tempfile::tempdir().unwrap();
    let plan = |form: &str, engine: &str| {
        let plan = serde_json::json!({"form": form, "container_engine": engine});
        serde_json::json!({"sample": "plan", "plan": plan}).to_string()
    };
    let text = format!(
        "{}\n{}\n{{\"pla",
        plan("full", "runc"),
        plan("quick", "podman")
    );
    std::fs::write(dir.path().join("raw.jsonl"), text).unwrap();
    let resumed = |depth, engine| {
        let options = PlatformOptions {
            resume: Some(dir.path().to_owned()),
            container_engine: engine,
            ..PlatformOptions::default()
        };
        let configured = configured(depth, options).map(drop);
        configured.map_err(|error| (error.to_string(), error.exit_code()))
    };
    let (said, code) = resumed(Depth::Full, ContainerEngine::Podman).unwrap_err();
    assert!(
        said.contains("form quick, and this weighing full"),
        "{said}"
    );
    assert_eq!(code, ExitCode::Usage);
    let (said, _) = resumed(Depth::Quick, ContainerEngine::Runc).unwrap_err();
    assert!(said.contains("container_engine podman, and this"), "{said}");
    resumed(Depth::Quick, ContainerEngine::Podman).unwrap();
    // That record is from before there was a choice: it is of all platforms.
    let (said, code) = resumed_on(Platform::Vm, dir.path()).unwrap_err();
    assert!(
        said.contains(
            "platforms bare, container, vm, vm-container, appliance, and this weighing vm:"
        ),
        "{said}"
    );
    assert_eq!(code, ExitCode::Usage);
    let plan = serde_json::json!({"sample": "plan", "plan": {"platforms": ["vm"]}});
    std::fs::write(dir.path().join("raw.jsonl"), plan.to_string()).unwrap();
    let (said, _) = resumed_on(Platform::Bare, dir.path()).unwrap_err();
    assert!(
        said.contains("platforms vm, and this weighing bare:"),
        "{said}"
    );
    resumed_on(Platform::Vm, dir.path()).unwrap();
}

fn resumed_on(platform: Platform, dir: &std::path::Path) -> Result<(), (String, ExitCode)> {
    let options = PlatformOptions {
        resume: Some(dir.to_owned()),
        container_engine: ContainerEngine::Podman,
        platforms: vec![platform],
        ..PlatformOptions::default()
    };
    let configured = configured(Depth::Quick, options).map(drop);
    configured.map_err(|error| (error.to_string(), error.exit_code()))
}

#[test]
fn what_there_was_no_time_for_is_said() {
    let cell = |mode, arm| Cell {
        workload: "w".to_owned(),
        place: Place::new(Platform::Vm, mode, 2, 2),
        arm,
    };
    let cells = [
        cell(Mode::Vanilla, Arm::Main),
        cell(Mode::Pinned, Arm::Main),
        cell(Mode::Vanilla, Arm::Control),
    ];
    let mut platforms = Platforms::new(Depth::Quick);
    let said = |platforms: &Platforms| platforms.skipped(cells.iter());
    let begin = "no time was left for runs that count of w on vm.vanilla.2";
    let nothing = said(&platforms).unwrap();
    assert!(
        nothing.starts_with(&format!("{begin}, w on vm.pinned.2;")),
        "{nothing}"
    );
    let mut first = run("a", "w", cells[0].place, Arm::Main, 1.0);
    first.warm_up = true;
    platforms.data.runs.push(first.clone());
    // What failed has said so.
    let mut failed = run("a", "w", cells[1].place, Arm::Main, 1.0);
    (failed.time, failed.failure) = (None, Some("it ran longer than 5 s".to_owned()));
    platforms.data.runs.push(failed);
    let warmed = said(&platforms).unwrap();
    assert!(
        warmed.starts_with(&format!("{begin} (one, to warm up);")),
        "{warmed}"
    );
    first.warm_up = false;
    platforms.data.runs.push(first);
    assert_eq!(said(&platforms), None);
}

/// Of one leg, which a busy host disturbed, and of a second that was killed.
#[test]
fn what_failed_before_and_how_busy_the_host_was_is_of_the_whole_record() {
    let place = Place::new(Platform::Bare, Mode::Vanilla, 2, 8);
    let mut failed = run("a", "w", place, Arm::Main, 1.0);
    (failed.time, failed.failure) = (None, Some("it ran longer than 30 s".to_owned()));
    let dir = recorded(&[failed.clone(), failed], &serde_json::json!({}));
    let raw = dir.path().join("raw.jsonl");
    let mut text = std::fs::read_to_string(&raw).unwrap();
    let end = serde_json::json!({"sample": "end", "own_wait_pct": 60.0, "others_cpu_pct": 70.0});
    text += &format!("{end}\n");
    std::fs::write(&raw, &text).unwrap();
    let merge = PlatformOptions {
        merge: vec![dir.path().to_owned()],
        ..PlatformOptions::default()
    };
    let merged = configured(Depth::Quick, merge).unwrap();
    let why = "w on bare.vanilla.2: it ran longer than 30 s (2 times)";
    assert_eq!(merged.failures(), [why]);
    let machine = &merged.merged().unwrap().machine;
    assert_eq!(machine.own_wait_pct, Some(60.0));
    assert_eq!(machine.others_cpu_pct, Some(70.0));
    let record = tare_lab::kit::Record::read(dir.path()).unwrap();
    assert!(record.end().is_some());
    text += &format!("{}\n", serde_json::json!({"sample": "plan", "plan": {}}));
    std::fs::write(&raw, text).unwrap();
    let record = tare_lab::kit::Record::read(dir.path()).unwrap();
    assert!(record.end().is_none());
    assert_eq!(record.greatest("own_wait_pct"), Some(60.0));
}

#[test]
fn outliers_are_named_and_kept() {
    let samples = [1.0, 1.1, 0.9, 1.0, 1.05, 9.0];
    assert_eq!(analysis::outliers(&samples), [9.0]);
    let same = [1.0; 6];
    assert!(analysis::outliers(&same).is_empty());
}
