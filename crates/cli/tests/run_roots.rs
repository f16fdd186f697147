//! Run roots with contents that Tare did not make, or that others can change: no verb removes,
//! follows or waits for anything there.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use support::{TestDir, end, process};
use tare_control::rundir::{RunRoot, record_end};

/// Every verb that reads the root, for a machine of that name.
fn verbs(name: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["ps"],
        vec!["ps", "-a", "--json"],
        vec!["logs", name],
        vec!["stop", name],
        vec!["rm", name],
        vec!["stats", name],
        vec!["set", name],
        vec!["why", name, "--for", "1"],
        vec!["top", "--once"],
        vec!["pin", name, "--dry-run"],
        vec!["advise", name],
    ]
}

/// What a directory of the user's, or one that others may write to, can hold.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("photos/2026")).unwrap();
    fs::write(root.join("photos/2026/a.jpg"), "x").unwrap();
    fs::write(root.join("file"), "x").unwrap();
    symlink("photos", root.join("link")).unwrap();
    fs::create_dir(root.join("trap")).unwrap();
    let mode = Mode::from_raw_mode(0o600);
    for fifo in ["fifo", "trap/lock", "trap/run.json", "trap/console.log"] {
        mknodat(CWD, root.join(fifo), FileType::Fifo, mode, 0).unwrap();
    }
}

fn tree(root: &Path) -> Vec<PathBuf> {
    let mut paths = tare_vmtest::files_below(root);
    paths.retain(|path| !path.ends_with(".lock"));
    paths
}

#[test]
fn no_verb_removes_or_waits_for_what_tare_did_not_make() {
    let place = TestDir::new();
    let root = place.run_root();
    fs::create_dir(&root).unwrap();
    plant(&root);
    let before = tree(&root);
    for name in ["photos", "file", "link", "fifo", "trap"] {
        for args in verbs(name) {
            let ended = place.run(&args);
            assert!(ended.code.is_some(), "{args:?}: {ended:#?}");
            assert_eq!(tree(&root), before, "{args:?}: {ended:#?}");
        }
        place
            .run(&["logs", name])
            .expect(55, "was not created by tare");
        place
            .run(&["rm", name])
            .expect(55, "was not created by tare");
    }
    let listed = place.run(&["ps"]);
    listed.expect(0, "photos was not created by tare and is left alone");
    assert_eq!(listed.out.lines().count(), 1);
}

#[test]
fn a_machine_does_not_take_a_directory_that_tare_did_not_make() {
    let place = TestDir::new();
    let root = place.run_root();
    fs::create_dir(&root).unwrap();
    plant(&root);
    let before = tree(&root);
    let disk = place.file("disk.img", &[0; 1 << 20]);
    let socket = place.path().join("s");
    let socket = socket.to_str().unwrap();
    for name in ["photos", "file", "link", "trap"] {
        let args = ["blk", "--socket", socket, "--disk", &disk, "--name", name];
        place.run(&args).expect(55, "was not created by tare");
        assert_eq!(tree(&root), before);
    }
}

#[test]
fn a_root_that_others_can_change_is_refused_by_every_verb() {
    let place = TestDir::new();
    let root = place.run_root();
    fs::create_dir(&root).unwrap();
    plant(&root);
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
    for args in [
        &["ps"] as &[&str],
        &["logs", "trap"],
        &["stop", "trap"],
        &["rm", "trap"],
        &["stats", "trap"],
        &["set", "trap"],
    ] {
        place
            .run(args)
            .expect(54, "is writable by other users (mode 0777)");
    }
    for args in verbs("trap") {
        assert!(place.run(&args).code.is_some(), "{args:?}");
    }
    fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_machine_that_ended_keeps_its_log_until_it_is_removed() {
    let place = TestDir::new();
    let root = RunRoot::open(place.run_root()).unwrap();
    for (name, code) in [("panicked", Some(70)), ("killed", None)] {
        let (dir, lock) = root.create(name).unwrap();
        fs::write(dir.console_log(), "the guest's last line\n").unwrap();
        let record = r#"{"engine":"tare","pid":1,"image":"x","cpus":1,
            "memory_mib":64,"ports":[],"started_s":1}"#;
        fs::write(dir.run_json(), record).unwrap();
        if let Some(code) = code {
            record_end(&lock, code).unwrap();
        }
    }
    assert_eq!(place.run(&["ps"]).out.lines().count(), 1);
    let all = place.run(&["ps", "-a"]);
    all.expect(0, "exit 70");
    all.expect(0, "killed");
    let json = place.run(&["ps", "-a", "--json"]).out;
    assert!(json.contains("\"exit_code\": 70"), "{json}");
    for name in ["panicked", "killed"] {
        place
            .run(&["logs", name])
            .expect(0, "the guest's last line");
        place
            .run(&["logs", "-f", name])
            .expect(0, "the guest's last line");
        place.run(&["stop", name]).expect(51, "is running");
        place.run(&["rm", name]).expect(0, "");
        place.run(&["logs", name]).expect(51, name);
    }
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_machine_that_runs_is_not_removed() {
    let place = TestDir::new();
    let root = RunRoot::open(place.run_root()).unwrap();
    let (_dir, _lock) = root.create("web").unwrap();
    place.run(&["rm", "web"]).expect(50, "stop it first");
    assert_eq!(place.run_directories(), ["web"]);
}

/// The number in a record may be another process's by now.
#[test]
fn a_process_that_took_the_number_of_a_machine_is_not_killed() {
    let place = TestDir::new();
    let root = RunRoot::open(place.run_root()).unwrap();
    let (dir, _lock) = root.create("web").unwrap();
    let mut other = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let record = format!(
        r#"{{"engine":"tare","pid":{},"start_time":1,"image":"x","cpus":1,
            "memory_mib":64,"ports":[],"started_s":1}}"#,
        other.id()
    );
    fs::write(dir.run_json(), record).unwrap();
    place
        .run(&["stop", "web", "--time", "0"])
        .expect(52, "its process is unknown");
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn names_and_records_of_others_cannot_command_a_terminal() {
    let place = TestDir::new();
    let root = RunRoot::open(place.run_root()).unwrap();
    let (dir, _lock) = root.create("web").unwrap();
    let record = r#"{"engine":"tare","pid":1,"image":"\u001b]0;t\u0007","cpus":1,
        "memory_mib":64,"ports":["\u001b]52;c;eA==\u0007"],"started_s":1}"#;
    fs::write(dir.run_json(), record).unwrap();
    fs::create_dir(place.run_root().join("evil\x1b]0;title\x07")).unwrap();
    fs::write(place.run_root().join("evil\x1b]0;title\x07/x"), "").unwrap();
    let evil = "evil\x1b]0;title\x07";
    for args in verbs("web").into_iter().chain(verbs(evil)) {
        let ended = place.run(&args);
        for text in [&ended.out, &ended.err] {
            let active = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
            assert!(!text.contains(active), "{args:?}: {ended:#?}");
        }
    }
}

/// As on a run root that became full when the machine was started.
#[test]
fn a_machine_without_a_record_is_listed_as_unknown() {
    let place = TestDir::new();
    let root = RunRoot::open(place.run_root()).unwrap();
    let (dir, _lock) = root.create("web").unwrap();
    assert_eq!(
        place.run(&["ps", "--json"]).out,
        "[]\n",
        "it may be about to start"
    );
    let long_ago = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    let directory = fs::File::open(dir.path()).unwrap();
    directory.set_times(long_ago).unwrap();
    let listed = place.run(&["ps"]);
    let line = listed.out.lines().nth(1).unwrap();
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>(),
        ["web", "unknown"]
    );
    let json = place.run(&["ps", "--json"]).out;
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        rows,
        serde_json::json!([{ "name": "web", "state": "unknown" }])
    );
}

/// After `su`, which leaves the variable as it was.
#[test]
fn the_runtime_directory_of_another_user_refuses_no_verb() {
    if !process::can_do_without() {
        return;
    }
    let place = TestDir::new();
    // For root alone.
    let others = tempfile::tempdir().unwrap();
    let mut tare = place.tare(&["ps"]);
    tare.env_remove("TARE_RUN_ROOT")
        .env("XDG_RUNTIME_DIR", others.path())
        .env("TMPDIR", place.path());
    let listed = process::as_user(place.path(), &tare).spawn().unwrap();
    end(listed).expect(0, "NAME");
}
