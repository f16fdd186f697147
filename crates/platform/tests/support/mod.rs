//! A chroot of a few programs of this host with one workload in it.

#![allow(clippy::unwrap_used, dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tare_platform::cgroup::{self, Groups};
use tare_platform::step::PROGRAM;
use tare_platform::{Journal, Report, Step, Watch, bare};

/// What the step and the scripts below call.
const PROGRAMS: &[&str] = &[
    "bash",
    "rm",
    "mkdir",
    "sed",
    "tail",
    "head",
    "timeout",
    "sleep",
    "setsid",
    "awk",
    "true",
    "nproc",
    "cat",
    "chroot",
    "touch",
    "mount",
    "mountpoint",
    "sync",
];

/// Looks at nothing.
pub(crate) struct Blind;

impl Watch for Blind {
    fn begin(&mut self) {}
    fn end(&mut self) {}
    fn stop(&self) -> bool {
        false
    }
}

/// A tree with one workload, and what its runs need of this host.
pub(crate) struct Stage {
    pub dir: tempfile::TempDir,
    pub journal: Journal,
}

impl Stage {
    pub(crate) fn new(run: &str, check: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !cgroup::available("freezer") {
            tare_vmtest::lacks("needs root and the freezer's groups");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        let scripts = tree.join("tare/workloads/w");
        for name in [
            "bin",
            "proc",
            "sys",
            "dev",
            "tmp",
            "run",
            "scratch",
            "tare/host",
        ] {
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

    pub(crate) fn run(&mut self) -> Report {
        self.run_before(&mut Blind)
    }

    pub(crate) fn run_before(&mut self, watch: &mut dyn Watch) -> Report {
        let own = self.dir.path().file_name().unwrap().display();
        let name = format!("tare-test-{own}");
        let groups = Groups::make(&mut self.journal, &name, None, None).unwrap();
        let step = step("wall").within(Duration::from_secs(2));
        let (tree, scratch) = (self.tree(), self.scratch());
        bare::run(&tree, &scratch, &groups, &step, watch).unwrap()
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    pub(crate) fn scratch(&self) -> PathBuf {
        self.dir.path().join("scratch")
    }
}

/// A run whose value comes from `source`.
pub(crate) fn step(source: &str) -> Step {
    let variables = [("SOURCE", source), ("FORM", "quick")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let limit = Duration::from_secs(60);
    let step = Step {
        workload: "w".to_owned(),
        variables: BTreeMap::from(variables),
        limit,
    };
    step.within(limit)
}

/// Copies a program of this host with its libraries.
fn copy(tree: &Path, name: &str) {
    let places = ["/bin", "/usr/bin", "/usr/sbin"].map(|dir| Path::new(dir).join(name));
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
