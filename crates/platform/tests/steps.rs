//! Steps that go wrong, on the bare machine: a chroot of a few programs of this host.
//! Needs root and the freezer's groups.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use support::Stage;
use tare_platform::{Validity, Watch};

/// Takes its time to get ready.
struct Slow(PathBuf);

impl Watch for Slow {
    fn begin(&mut self) {
        std::thread::sleep(Duration::from_millis(200));
        fs::write(&self.0, "").unwrap();
    }
    fn end(&mut self) {}
    fn stop(&self) -> bool {
        false
    }
}

#[test]
fn a_run_that_is_right_counts_with_its_time() {
    let Some(mut stage) = Stage::new("sleep 0.1", "true") else {
        return;
    };
    let report = stage.run();
    let Validity::Valid(seconds) = report.validity else {
        panic!("{report:?}");
    };
    assert!((0.1..2.0).contains(&seconds), "{seconds}");
}

#[test]
fn a_run_that_hangs_fails_or_fails_its_check_does_not_count_and_says_so() {
    for (run, check, expected) in [
        ("sleep 60", "true", "it ran longer than 2 s"),
        ("trap '' TERM; sleep 60", "true", "it ran longer than 2 s"),
        ("exit 3", "true", "its run ended with status 3"),
        (
            "bash -c 'kill -9 $$'",
            "true",
            "a program of its run was killed: out of memory perhaps",
        ),
        // As on a full disk.
        (
            "echo lost > /dev/full",
            "true",
            "its run ended with status 1",
        ),
        (
            "true",
            "echo 3 frames are missing >&2; false",
            "its check failed: 3 frames are missing",
        ),
    ] {
        let Some(mut stage) = Stage::new(run, check) else {
            return;
        };
        let report = stage.run();
        assert_eq!(
            report.validity,
            Validity::Invalid(expected.to_owned()),
            "{run}"
        );
    }
}

#[test]
fn processes_that_a_run_leaves_are_ended() {
    let run = "setsid sleep 300 & echo $! > /scratch/left";
    let Some(mut stage) = Stage::new(run, "true") else {
        return;
    };
    let report = stage.run();
    assert!(matches!(report.validity, Validity::Valid(_)), "{report:?}");
    let left = fs::read_to_string(stage.dir.path().join("scratch/left")).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", left.trim()));
    // Gone, or not yet looked at by whoever adopted it.
    let lives = stat.is_ok_and(|stat| !stat.contains(") Z "));
    assert!(!lives, "process {left} still runs");
}

#[test]
fn a_run_waits_until_whoever_looks_on_is_ready() {
    let Some(mut stage) = Stage::new("[ -e /scratch/ready ]", "true") else {
        return;
    };
    let ready = stage.dir.path().join("scratch/ready");
    let report = stage.run_before(&mut Slow(ready));
    assert!(matches!(report.validity, Validity::Valid(_)), "{report:?}");
}

#[test]
fn a_run_has_nothing_of_the_environment_of_the_weighing() {
    // Cargo sets it for the tests.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let Some(mut stage) = Stage::new("[ -z \"${CARGO_MANIFEST_DIR-}\" ]", "true") else {
        return;
    };
    let report = stage.run();
    assert!(matches!(report.validity, Validity::Valid(_)), "{report:?}");
}
