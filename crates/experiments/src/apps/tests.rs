//! The weighing against fakes that answer as memcached does.

use std::path::Path;

use tare_lab::kit::Statistic;
use tare_machines::appliance::fake::{Fakes, Fault};

use super::*;
use crate::testing::{Run, figure};

fn short() -> Box<Apps> {
    Box::new(Apps {
        alone: Duration::from_millis(20),
        load: Duration::from_millis(50),
        settle: Duration::from_millis(20),
        idle: Duration::from_millis(20),
        ..Apps::new(Depth::Quick)
    })
}

fn run(fault: Fault) -> Run {
    Run::of("apps", short(), Fakes::new(Kvm::Emulated, fault))
}

#[test]
fn every_packaging_is_measured_and_what_is_missing_is_named() {
    let run = run(Fault::None);
    run.is_complete();
    assert_eq!(run.outcome.failures, [""; 0]);
    let summary = run.summary();
    for arm in ["tare", "process", "container", "tare_tcg", "linux_tcg"] {
        let of = |name: &str| figure(&summary, &format!("{name}.{arm}"));
        assert!(of("app_per_s.memcached_get").value > 0.0);
        assert!(of("app_p50_us.memcached_set").value > 0.0);
        let size = of("app_image_bytes.memcached");
        assert_eq!(
            (size.value, size.statistic),
            (124_456.0, Statistic::Exact),
            "the files and what the packaging adds"
        );
    }
    // Two boots; those in the translator have their turn in the first cycle.
    assert_eq!(figure(&summary, "app_per_s.memcached_get.tare").n, 2);
    assert_eq!(figure(&summary, "app_over_linux.memcached_get").n, 1);
    let slower = figure(&summary, "app_times_slower.memcached_get");
    assert_eq!((slower.n, slower.statistic), (2, Statistic::PairedRatio));
    assert_eq!(
        figure(&summary, "app_memory_beyond_mib.memcached").value,
        0.0
    );
    let idle = figure(&summary, "app_idle_exits_per_s.memcached.tare");
    assert_eq!((idle.value, idle.n), (0.0, 2));
    let report = run.text("report.md");
    for missing in [
        "memcached, gvisor: runsc is not installed (https://gvisor.dev",
        "memcached, linux: this KVM emulates ring 0",
        "redis, all packagings: the application's files are not available",
        "nginx, all packagings: ",
        "go, all packagings: ",
        "axum, all packagings: ",
        "No Linux guest had a tailored kernel",
    ] {
        assert!(report.contains(missing), "{missing}: {report}");
    }
    run.nothing_is_left();
}

#[test]
fn a_tailored_kernel_is_measured_beside_debians_and_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let kernel = dir.path().join("bzImage");
    fs::write(&kernel, "kernel").unwrap();
    let configured = |kernels: &[(&str, Option<&Path>)]| {
        let of = |&(app, file): &(&str, Option<&Path>)| (app.to_owned(), file.map(Path::to_owned));
        let mut apps = short();
        apps.options.kernels = kernels.iter().map(of).collect();
        apps.configure().map(|()| apps)
    };
    let memcached = ("memcached", Some(kernel.as_path()));
    let apps = configured(&[memcached]).unwrap();
    let run = Run::of("apps", apps, Fakes::new(Kvm::Emulated, Fault::None));
    let summary = run.summary();
    assert!(figure(&summary, "app_per_s.memcached_get.tailored_tcg").value > 0.0);
    assert_eq!(
        figure(&summary, "app_tailored_over_linux.memcached_get").n,
        1
    );
    let plan = &run.lines("plan")[0];
    let digest = sha256_of_file(&kernel).unwrap();
    assert_eq!(
        plan["plan"]["kernels"],
        json!({ "memcached": digest }),
        "{plan}"
    );
    let report = run.text("report.md");
    assert!(report.contains("memcached, tailored: this KVM"), "{report}");
    assert!(!report.contains("No Linux guest had"), "{report}");
    run.is_rebuilt_from_its_samples();

    for (kernels, why) in [
        (
            &[("apache", None)][..],
            "--kernel apache: not an application of apps; there are: memc",
        ),
        (
            &[("redis", Some(Path::new("/none")))],
            "--kernel redis: cannot read /none: No such",
        ),
        (&[memcached, memcached], "--kernel memcached: given twice"),
    ] {
        let error = configured(kernels).map(drop).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn applications_that_were_not_chosen_are_neither_measured_nor_missing() {
    let configured = |apps: &[&str], kernels: &[&str]| {
        let mut experiment = short();
        experiment.options.apps = apps.iter().map(|name| (*name).to_owned()).collect();
        let kernels = kernels.iter().map(|name| ((*name).to_owned(), None));
        experiment.options.kernels = kernels.collect();
        experiment.configure().map(|()| experiment)
    };
    // Twice the same is once.
    let chosen = configured(&["memcached", "memcached"], &[]).unwrap();
    let run = Run::of("apps", chosen, Fakes::new(Kvm::Emulated, Fault::None));
    run.is_complete();
    assert!(figure(&run.summary(), "app_per_s.memcached_get.tare").value > 0.0);
    assert_eq!(run.lines("plan")[0]["plan"]["apps"], json!(["memcached"]));
    let report = run.text("report.md");
    assert!(!report.contains("redis, all packagings"), "{report}");
    run.is_rebuilt_from_its_samples();
    run.nothing_is_left();

    let mut experiment = short();
    experiment.options.apps = vec!["memcached".to_owned()];
    experiment.options.packagings = ["process", "tare"].map(str::to_owned).to_vec();
    experiment.configure().unwrap();
    let run = Run::of("apps", experiment, Fakes::new(Kvm::Emulated, Fault::None));
    run.is_complete();
    let arms: Vec<Value> = run
        .lines("boot")
        .iter()
        .map(|it| it["arm"].clone())
        .collect();
    assert_eq!(arms, ["tare", "process", "process", "tare"]);
    assert_eq!(
        figure(&run.summary(), "app_times_slower.memcached_get").n,
        2
    );
    run.is_rebuilt_from_its_samples();
    let mut experiment = short();
    experiment.options.packagings = vec!["vm".to_owned()];
    let unknown = experiment.configure().unwrap_err().to_string();
    assert!(
        unknown.contains("--packaging vm: there are: tare, process, "),
        "{unknown}"
    );

    let why = |apps, kernels| configured(apps, kernels).map(drop).unwrap_err().to_string();
    let unknown = why(&["apache"], &[]);
    assert!(
        unknown.contains("--app apache: not an application of apps; there are: memc"),
        "{unknown}"
    );
    let other = why(&["memcached"], &["redis"]);
    assert!(
        other.contains("--kernel redis: the application is not measured"),
        "{other}"
    );
}

#[test]
fn an_own_application_is_measured_in_every_packaging() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("files")).unwrap();
    for file in ["shop", "kib.txt"] {
        fs::write(place.path().join("files").join(file), "x".repeat(1024)).unwrap();
    }
    let file = place.path().join("my-shop.toml");
    let text = "root = 'files'\ncommand = ['/shop', '{port}']\n[[load]]\nname = 'item'\n\
                path = '/kib.txt'\n";
    fs::write(&file, text).unwrap();
    let mut experiment = short();
    experiment.options.apps = vec![file.display().to_string()];
    experiment.configure().unwrap();
    let run = Run::of("apps", experiment, Fakes::new(Kvm::Emulated, Fault::None));
    run.is_complete();
    assert_eq!(run.outcome.failures, [""; 0]);
    let summary = run.summary();
    for arm in ["tare", "process", "container", "linux_tcg"] {
        assert!(figure(&summary, &format!("app_per_s.my-shop_item.{arm}")).value > 0.0);
    }
    assert_eq!(figure(&summary, "app_times_slower.my-shop_item").n, 2);
    let report = run.text("report.md");
    assert!(report.contains("my-shop, item: Tare carries "), "{report}");
    assert!(
        report.contains("the paths of my-shop are those"),
        "{report}"
    );
    assert!(!report.contains("redis: Tare carries"), "{report}");
    run.is_rebuilt_from_its_samples();
    run.nothing_is_left();

    let refused = |apps: Vec<String>| {
        let mut experiment = short();
        experiment.options.apps = apps;
        experiment.configure().unwrap_err().to_string()
    };
    let twice = refused(vec![file.display().to_string(); 2]);
    assert!(
        twice.ends_with("two data files are named my-shop"),
        "{twice}"
    );
    let error = refused(vec!["/none/shop.toml".to_owned()]);
    assert!(
        error.contains("--app cannot use /none/shop.toml"),
        "{error}"
    );
}

#[test]
fn the_applications_of_a_record_are_the_catalogs_or_have_valid_loads() {
    let plan = json!({
        "apps": ["redis", "mine", "wrong", "unknown"],
        "own": {
            "mine": [{"name": "all", "path": "/"}],
            "wrong": [{"name": "<b>", "path": "/"}],
        },
    });
    let names: Vec<String> = recorded(&plan)
        .iter()
        .map(|it| it.name.to_string())
        .collect();
    assert_eq!(names, ["redis", "mine"]);
    let mut apps = Apps::new(Depth::Quick);
    apps.replan(&plan);
    assert_eq!(
        apps.plan()["own"],
        json!({"mine": [{"name": "all", "path": "/"}]})
    );
}

#[test]
fn a_packaging_that_ends_is_named_once_and_one_of_tares_fails_the_run() {
    // The second server is the bare process, which is not tried in the second cycle.
    let process = run(Fault::Ends(2));
    process.is_complete();
    assert_eq!(process.outcome.failures, [""; 0]);
    let report = process.text("report.md");
    assert_eq!(
        report.matches("memcached, process: ").count(),
        1,
        "{report}"
    );
    let names = process.summary().figures;
    let of_process = |it: &Figure| it.name.ends_with(".process");
    assert!(!names.iter().any(of_process));
    process.nothing_is_left();

    let tare = run(Fault::Ends(1));
    let failures = &tare.outcome.failures;
    assert!(failures[0].starts_with("memcached, tare: "), "{failures:?}");
    assert!(failures[0].contains("did something"), "{failures:?}");
    figure(&tare.summary(), "app_per_s.memcached_get.container");
}

#[test]
fn the_report_of_apps_is_made_again_from_raw_samples() {
    let run = run(Fault::None);
    run.is_rebuilt_from_its_samples();
    let report = run.text("report.md");
    assert!(report.contains("runsc is not installed"), "{report}");
}

#[test]
fn the_earlier_run_is_beside_the_later_one_on_its_page() {
    let earlier = run(Fault::None);
    assert!(!earlier.text("report.html").contains("Beside the earlier"));
    let request = tare_lab::WeighRequest {
        against: Some(tare_lab::KeptRun::read(&earlier.path()).unwrap()),
        ..Default::default()
    };
    let fakes = Fakes::new(Kvm::Emulated, Fault::None);
    let later = Run::requested("apps", request, short(), fakes, &Interrupt::default());
    let is_beside = || {
        let page = later.text("report.html");
        let (_, behind) = page.split_once("<h2>Beside the earlier run</h2>").unwrap();
        let (section, _) = behind.split_once("</section>").unwrap();
        // One count of both, which does not change.
        let row =
            "<tr class=\"soft\"><th scope=\"row\"><code>app_image_bytes.memcached.tare</code>";
        section.contains(row) && section.contains("cannot be told apart")
    };
    assert!(is_beside());
    tare_lab::rebuild(&later.path(), crate::ALL, tare_lab::Files::Page).unwrap();
    assert!(is_beside(), "made again");
}

#[test]
fn versions_of_what_was_run_are_in_record_summary_and_page() {
    let run = run(Fault::None);
    let lines = run.lines("program");
    assert_eq!(lines.len(), 1, "once: {lines:?}");
    let shown = || {
        let version = run.summary().versions["an-app"].clone();
        (version, run.text("report.html").contains("1:2.3-4</li>"))
    };
    let expected = ("1:2.3-4".to_owned(), true);
    assert_eq!(shown(), expected);
    run.rebuilt();
    assert_eq!(shown(), expected, "made again");
}

#[test]
fn a_record_gives_goals_ratios_and_what_weighs_least() {
    let boot = |arm: &str, cycle: usize, per_s: f64, memory: f64| {
        json!({
            "sample": "boot", "app": "redis", "arm": arm, "cycle": cycle,
            "kvm": if arm == "tare" { "emulated" } else { "none" },
            "values": {
                "app_per_s.redis_get": per_s + cycle as f64,
                "app_memory_mib.redis": memory,
                "app_first_answer_ms.redis": 100.0 + cycle as f64,
            },
            "idle": if arm == "tare" { json!([6.0, 3.0]) } else { Value::Null },
        })
    };
    let cycles = 0..6;
    let mut lines: Vec<Value> = cycles
        .flat_map(|cycle| {
            [
                boot("process", cycle, 2_000.0, 10.0),
                boot("container", cycle, 1_500.0, 15.0),
                boot("tare", cycle, 500.0, 40.0),
            ]
        })
        .collect();
    lines.push(
        json!({"sample": "boot", "app": "redis", "arm": "gvisor", "cycle": 0,
        "broken": "runsc is not installed"}),
    );
    lines.push(json!({"sample": "boot", "app": 7}));
    let mut apps = Apps::new(Depth::Standard);
    let dir = "record".into();
    apps.replay(&Record { dir, lines }).unwrap();
    let figures = apps.figures();
    let value = |name: &str| tare_lab::kit::value(&figures, name).unwrap();
    assert!((2.9..3.01).contains(&value("app_times_slower.redis_get")));
    assert!((0.7..0.8).contains(&value("app_rate_ratio.redis_get.container")));
    assert_eq!(value("app_memory_beyond_mib.redis"), 30.0);
    assert_eq!(value("app_idle_exits_per_s.redis.tare"), 2.0);
    let verdicts = tare_lab::results::verdicts(&figures, GOALS, apps.kvm());
    let word = |name: &str| {
        let found = verdicts.iter().find(|it| it.figure == name);
        found.map(|it| it.verdict.word())
    };
    assert_eq!(word("app_times_slower.redis_get"), Some("MISSED"));
    assert_eq!(word("app_first_answer_ms.redis.tare"), Some("met"));
    assert_eq!(word("app_memory_beyond_mib.redis"), Some("MISSED"));
    assert_eq!(word("app_idle_exits_per_s.redis.tare"), Some("met"));
    let report = apps.report(&figures);
    let least = &report.sections[0];
    assert!(least.html.contains("container"), "{}", least.html);
    assert!(
        report.limitations[0].contains("redis, gvisor: runsc is not installed"),
        "{:?}",
        report.limitations
    );
}
