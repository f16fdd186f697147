//! Steps that go wrong, on the bare machine: a chroot of a few programs of this host.
//! Needs root and the freezer's groups.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tare_platform::cgroup::{self, Groups};
use tare_platform::step::PROGRAM;
use tare_platform::{Journal, Report, Step, Verdict, Watch, bare};

/// What the step and the scripts below call.
const PROGRAMS: &[&str] = &[
    "bash", "rm", "mkdir", "sed", "tail", "head", "timeout", "sleep", "setsid", "awk",
];

/// Looks at nothing.
struct Blind;

impl Watch for Blind {
    fn begin(&mut self) {}
    fn end(&mut self) {}
    fn stop(&self) -> bool {
        false
    }
}

/// A tree with one workload, and what its runs need of this host.
struct Stage {
    dir: tempfile::TempDir,
    journal: Journal,
}

impl Stage {
    fn new(run: &str, check: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !cgroup::available("freezer") {
            eprintln!("SKIP: needs root and the freezer's groups");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        let scripts = tree.join("tare/workloads/w");
        for name in ["bin", "proc", "sys", "dev", "tmp", "run", "scratch"] {
            fs::create_dir_all(tree.join(name)).unwrap();
        }
        fs::create_dir_all(&scripts).unwrap();
        fs::create_dir(dir.path().join("scratch")).unwrap();
        PROGRAMS.iter().for_each(|name| copy(&tree, name));
        fs::write(tree.join("tare/step"), PROGRAM).unwrap();
        fs::write(scripts.join("run"), run).unwrap();
        fs::write(scripts.join("check"), check).unwrap();
        let (journal, _) = Journal::begin(&dir.path().join("journal")).unwrap();
        Some(Self { dir, journal })
    }

    fn run(&mut self) -> Report {
        let own = self.dir.path().file_name().unwrap().display();
        let name = format!("tare-test-{own}");
        let groups = Groups::make(&mut self.journal, &name, None, None).unwrap();
        let variables = [("SOURCE", "wall"), ("FORM", "quick")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let step = Step {
            workload: "w".to_owned(),
            variables: BTreeMap::from(variables),
            limit: Duration::from_secs(60),
        };
        let step = step.within(Duration::from_secs(2));
        let below = |name| self.dir.path().join(name);
        let report = bare::run(
            &below("tree"),
            &below("scratch"),
            &groups,
            &step,
            &mut Blind,
        );
        report.unwrap()
    }
}

/// Copies a program of this host with its libraries.
fn copy(tree: &Path, name: &str) {
    let places = ["/bin", "/usr/bin"].map(|dir| Path::new(dir).join(name));
    let path = places.iter().find(|path| path.exists()).unwrap();
    fs::copy(path, tree.join("bin").join(name)).unwrap();
    let said = Command::new("ldd").arg(path).output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    for library in said.split_whitespace().filter(|word| word.starts_with('/')) {
        let place: PathBuf = tree.join(library.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(library, place).unwrap();
    }
}

#[test]
fn a_run_that_is_right_counts_with_its_time() {
    let Some(mut stage) = Stage::new("sleep 0.1", "true") else {
        return;
    };
    let report = stage.run();
    let Verdict::Counts(seconds) = report.verdict else {
        panic!("{report:?}");
    };
    assert!((0.1..2.0).contains(&seconds), "{seconds}");
}

#[test]
fn a_run_that_hangs_fails_or_fails_its_check_does_not_count_and_says_so() {
    for (run, check, expected) in [
        ("sleep 60", "true", "it ran longer than 2 s"),
        ("exit 3", "true", "its run ended with status 3"),
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
        assert_eq!(report.verdict, Verdict::Not(expected.to_owned()), "{run}");
    }
}

#[test]
fn processes_that_a_run_leaves_are_ended() {
    let run = "setsid sleep 300 & echo $! > /scratch/left";
    let Some(mut stage) = Stage::new(run, "true") else {
        return;
    };
    let report = stage.run();
    assert!(matches!(report.verdict, Verdict::Counts(_)), "{report:?}");
    let left = fs::read_to_string(stage.dir.path().join("scratch/left")).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", left.trim()));
    // Gone, or not yet looked at by whoever adopted it.
    let lives = stat.is_ok_and(|stat| !stat.contains(") Z "));
    assert!(!lives, "process {left} still runs");
}
