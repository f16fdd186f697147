//! The verbs about machines where none runs, and the ones about this host.

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use rustix::process::Signal;
use support::{TestDir, end, eventually, process};
use tare_control::rundir::RunRoot;

#[test]
fn no_machine_is_an_empty_list() {
    let place = TestDir::new();
    let listed = place.run(&["ps"]);
    listed.expect(0, "NAME");
    assert_eq!(listed.out.lines().count(), 1);
    assert_eq!(place.run(&["ps", "--json"]).out, "[]\n");
}

#[test]
fn a_machine_that_does_not_run_is_named() {
    let place = TestDir::new();
    for args in [
        &["stop", "web"] as &[&str],
        &["logs", "web"],
        &["logs", "-f", "web"],
        &["stats", "web"],
        &["set", "web", "disk0.coalesce=off"],
    ] {
        place
            .run(args)
            .expect(51, "no machine named \"web\" is running");
    }
}

#[test]
fn a_name_that_leaves_the_directory_is_refused() {
    TestDir::new()
        .run(&["stop", "../web"])
        .expect(2, "invalid machine name");
}

#[test]
fn a_setting_that_does_not_exist_is_refused_before_anybody_is_asked() {
    let place = TestDir::new();
    for (word, sentence) in [
        ("coalesce", "\"coalesce\" is not KEY=VALUE"),
        ("disk0.speed=1", "disk0.speed: unknown setting"),
        ("disk0.coalesce=5/4", "invalid coalescing \"5/4\""),
    ] {
        let ended = place.run(&["set", "web", word]);
        ended.expect(2, sentence);
        ended.expect(2, "`tare set NAME` lists the settings");
    }
}

#[test]
fn every_machine_that_cannot_be_stopped_is_said() {
    let ended = TestDir::new().run(&["stop", "a", "b"]);
    ended.expect(51, "\"a\"");
    ended.expect(51, "\"b\"");
}

#[test]
fn a_machine_that_does_not_answer_is_a_control_failure() {
    let place = TestDir::new();
    let root = RunRoot::open(place.run_root()).unwrap();
    let (_dir, _lock) = root.create("mute").unwrap();
    place
        .run(&["stats", "mute"])
        .expect(52, "cannot query the machine");
    place
        .run(&["stop", "mute", "--time", "0"])
        .expect(52, "its process is unknown");
}

#[test]
fn doctor_says_a_line_for_each_thing_anywhere() {
    let place = TestDir::new();
    let text = place.run(&["doctor"]);
    assert!(matches!(text.code, Some(0 | 62)), "{text:#?}");
    for name in [
        "kvm",
        "huge pages",
        "passt",
        "tap",
        "qemu",
        "images",
        "bpf",
        "cpusets",
        "landlock",
    ] {
        assert!(text.out.contains(name), "{name}: {text:#?}");
    }
    assert!(
        text.out.lines().all(|line| line.chars().count() < 80),
        "{text:#?}"
    );
    let json = place.run(&["doctor", "--json"]).out;
    let findings: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert!(findings.len() >= 12, "{json}");
    for finding in findings {
        let status = finding["status"].as_str().unwrap();
        assert!(["ok", "limited", "missing"].contains(&status), "{finding}");
        let needs = status == "missing";
        assert!(
            !needs || finding["remedy"].is_string(),
            "no remedy: {finding}"
        );
    }
}

/// The journal is as a weighing leaves it that was killed during this boot.
#[test]
fn doctor_names_what_a_killed_weighing_left_and_puts_it_back() {
    let place = TestDir::new();
    let cache = place.path().join("cache");
    let doctor = |args: &[&str]| {
        let mut tare = place.tare(&[&["doctor"], args].concat());
        end(tare.env("TARE_CACHE", &cache).spawn().unwrap())
    };
    let line = doctor(&[]).out;
    assert!(
        line.contains("killed benchmark runs left nothing behind"),
        "{line}"
    );
    let setting = place.path().join("setting");
    fs::write(&setting, "0\n").unwrap();
    let journals = cache.join("platforms/journal");
    fs::create_dir_all(&journals).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let changes = [
        serde_json::json!({"did": "boot", "id": boot.trim()}),
        serde_json::json!({"did": "setting", "path": setting, "was": "1"}),
    ];
    let text = changes.map(|change| format!("{change}\n")).concat();
    fs::write(journals.join("1-0.journal"), text).unwrap();
    let said = doctor(&[]).out;
    let named = format!("{} (was 1)", setting.display());
    let flat = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&named), "{said}");
    assert!(flat.contains("tare doctor --clean puts it back"), "{said}");
    let cleaned = doctor(&["--clean"]);
    cleaned.expect(0, "");
    assert!(cleaned.out.contains(&named), "{cleaned:#?}");
    assert_eq!(fs::read_to_string(&setting).unwrap(), "1");
    assert!(fs::read_dir(&journals).unwrap().next().is_none());
    let line = doctor(&[]).out;
    assert!(
        line.contains("killed benchmark runs left nothing behind"),
        "{line}"
    );
}

#[test]
fn an_unknown_experiment_is_named_and_those_that_exist_are_listed() {
    let place = TestDir::new();
    place.run(&["weigh", "feathers"]).expect(2, "'feathers'");
    place
        .run(&["weigh", "http-burst"])
        .expect(2, "'http-bursts'");
    place.run(&["weigh"]).expect(2, "http-bursts");
}

#[test]
fn an_experiment_has_its_own_options_and_refuses_those_of_others() {
    let place = TestDir::new();
    for (experiment, own, other) in [
        ("http-bursts", "--image", "--seed"),
        ("tcp", "--quick", "--image"),
        ("tailor", "--cuts", "--image"),
        ("platforms", "--seed", "--cuts"),
    ] {
        let help = place.run(&["weigh", experiment, "--help"]).out;
        assert!(help.contains(own) && !help.contains(other), "{help}");
        let wrong = ["weigh", experiment, &format!("{other}=1")];
        place.run(&wrong).expect(2, "unexpected argument");
    }
}

#[test]
fn what_a_run_is_compared_with_is_checked_before_it_runs() {
    let place = TestDir::new();
    let none = place.path().join("none");
    let none = none.to_str().unwrap();
    let out = place.path().join("out");
    let weigh = ["weigh", "kv", "--out", out.to_str().unwrap(), "--against"];
    let against = |dir: &str| place.run(&[&weigh[..], &[dir]].concat());
    against(none).expect(2, "cannot read");
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../lab/runs/2026-11-21-vic-quick"
    );
    against(kept).expect(2, "of vic and kv");
    let redis = kept.replace("2026-11-21-vic", "2026-11-29-tailor-redis");
    let lighttpd = [
        "weigh",
        "tailor",
        "--out",
        out.to_str().unwrap(),
        "--against",
    ];
    let refused = place.run(&[&lighttpd[..], &[&redis]].concat());
    refused.expect(2, "measured redis and lighttpd");
    assert!(!out.exists(), "nothing was measured");
    for bad in ["nan", "-1", "inf", "x"] {
        let limit = format!("--fail-on={bad}");
        place
            .run(&["compare", kept, kept, &limit])
            .expect(2, "not a percentage");
    }
}

#[test]
fn a_comparison_that_cannot_be_decided_does_not_pass() {
    let place = TestDir::new();
    let runs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/runs");
    let kept = format!("{runs}/2026-11-26-vic");
    let compare = |after: &str| place.run(&["compare", after, after, "--fail-on", "3%"]);
    compare(&kept).expect(0, "");
    compare(&format!("{runs}/2026-11-26-kv-quick")).expect(77, "has an interval in both runs");
    let text = std::fs::read_to_string(format!("{kept}/summary.json")).unwrap();
    let text = text.replace("\"status\": \"complete\"", "\"status\": \"interrupted\"");
    let cut = place.path().join("summary.json");
    std::fs::write(&cut, text).unwrap();
    compare(cut.to_str().unwrap()).expect(77, "the second run is interrupted");
}

#[test]
fn a_history_is_written_of_stored_runs() {
    let place = TestDir::new();
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/runs");
    let page = place.path().join("pages/vic.html");
    let history = |experiment| {
        let out = page.to_str().unwrap();
        place.run(&["report", "--history", experiment, kept, "--out", out])
    };
    history("feathers").expect(2, "no runs of feathers");
    assert!(!page.exists());
    history("vic").expect(0, "vic.html");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("vic over ") && text.contains("2026-11-21-vic-quick"));
    place.run(&["report"]).expect(2, "DIR");
}

#[test]
fn a_full_disk_behind_standard_output_is_said() {
    let place = TestDir::new();
    let root = RunRoot::open(place.run_root()).unwrap();
    let (dir, _lock) = root.create("web").unwrap();
    std::fs::write(dir.console_log(), "hello\n").unwrap();
    for args in [&["ps"] as &[&str], &["exit-codes"], &["logs", "web"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let command = place.tare(args).stdout(full).spawn().unwrap();
        end(command).expect(76, "cannot write to standard output: No space left");
    }
}

#[test]
fn standard_error_that_cannot_be_written_changes_no_exit_code() {
    let place = TestDir::new();
    // One verb warns of this, the other one fails.
    std::fs::create_dir_all(place.run_root().join("photos/2026")).unwrap();
    for (args, code) in [(&["ps"] as &[&str], 0), (&["logs", "web"], 51)] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let (reader, closed) = UnixStream::pair().unwrap();
        drop(reader);
        for stderr in [std::os::fd::OwnedFd::from(full), closed.into()] {
            let command = place.tare(args).stderr(stderr).spawn().unwrap();
            let ended = end(command);
            assert_eq!(ended.code, Some(code), "{args:?}: {ended:#?}");
        }
    }
}

/// Of this machine in QEMU the control socket alone answers; no guest reads its disk.
#[test]
fn a_signal_ends_a_reload_and_withdraws_it() {
    const RECORD: &str = r#"{"engine":"qemu","pid":1,"image":"http","cpus":1,"memory_mib":64,
        "ports":[],"started_s":1,"reload":{"disk":0,"has_site":false}}"#;
    const QMP: &[u8] = b"{\"QMP\": {}}\n{\"return\": {}}\n{\"return\": {}}\n";
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = TestDir::new();
        let root = RunRoot::open(place.run_root()).unwrap();
        let (dir, _lock) = root.create("web").unwrap();
        dir.write_file(&dir.run_json(), RECORD.as_bytes()).unwrap();
        let disk = dir.reload_disk();
        dir.write_file(&disk, &[0; 4096]).unwrap();
        let socket = UnixListener::bind(dir.control_socket()).unwrap();
        let qemu = thread::spawn(move || {
            let mut client = socket.accept().unwrap().0;
            let _ = client.write_all(QMP);
            let _ = client.read_to_end(&mut Vec::new());
        });
        let site = place.path().join("site");
        fs::create_dir(&site).unwrap();
        fs::write(site.join("index.html"), [b'x'; 1 << 16]).unwrap();
        let site = site.to_str().unwrap();
        let args = ["reload", "web", "--root", site, "--time", "86400"];
        let mut reload = process::ends_with_terminal(&place.tare(&args));
        let reload = reload.spawn().unwrap();
        let requested = || {
            fs::read(&disk).unwrap()[..512]
                .iter()
                .any(|byte| *byte != 0)
        };
        eventually("the root is on the disk", requested);
        process::signal(&reload, signal);
        let ended = end(reload);
        assert_eq!(ended.code, Some(code), "{ended:#?}");
        assert!(!requested());
        // No archive either.
        let blocks = fs::metadata(&disk).unwrap().blocks();
        assert!(blocks * 512 <= 4096, "{blocks} blocks");
        // A signal may come before it has connected.
        drop(UnixStream::connect(dir.control_socket()));
        qemu.join().unwrap();
    }
}

#[test]
fn why_prints_what_there_is_when_a_signal_ends_its_window() {
    for (signal, code) in [(Signal::INT, 0), (Signal::TERM, 143)] {
        let place = TestDir::new();
        let args = ["why", "--json", "--seconds", "86400"];
        let why = place.tare(&args).spawn().unwrap();
        process::handles(why.id(), signal);
        process::signal(&why, signal);
        end(why).expect(code, "\"machines\": [");
    }
}
