//! `scripts/setup.sh` with programs that stand for those of a distribution: nothing is installed.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// What the script uses and every distribution has.
const USUAL: [&str; 13] = [
    "bash", "env", "cat", "chmod", "cut", "dirname", "grep", "head", "mkdir", "mktemp", "rm",
    "sed", "sort",
];
/// A cargo and a compiler that are new enough, with the guest's target.
const CARGO: &str = "echo cargo 1.999.0";
const RUSTC: &str = "echo $0.sysroot";

/// A directory with programs, which is all of PATH.
struct Distribution {
    dir: TempDir,
}

impl Distribution {
    fn new() -> Self {
        let place = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for name in USUAL {
            let found = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(name));
            let found = found.iter().find(|path| path.exists()).unwrap();
            symlink(found, place.dir.path().join(name)).unwrap();
        }
        let target = "rustc.sysroot/lib/rustlib/x86_64-unknown-none";
        fs::create_dir_all(place.dir.path().join(target)).unwrap();
        place.has("cargo", CARGO);
        place.has("rustc", RUSTC);
        place.has("id", "echo 0");
        place.has("sleep", "echo slept >> $0.log");
        place
    }

    /// Puts a program of shell commands in.
    fn has(&self, name: &str, commands: &str) {
        let path = self.dir.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{commands}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn setup(&self, goal: &str) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/setup.sh");
        let mut command = Command::new("/bin/bash");
        let command = command.arg(script).arg(goal).env_clear();
        command
            .env("PATH", self.dir.path())
            .env("TMPDIR", self.dir.path())
            .output()
            .unwrap()
    }
}

fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn another_distribution_gets_the_list_once_and_goes_on() {
    let fedora = Distribution::new();
    let output = fedora.setup("build");
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    let list = "setup: assuming these are installed: ca-certificates gcc libc6-dev clang\n";
    assert_eq!(told, list);
}
