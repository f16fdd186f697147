//! `scripts/setup.sh` with programs that stand for those of a distribution: nothing is installed.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// What the script uses and every distribution has.
const USUAL: [&str; 16] = [
    "bash", "env", "cat", "chmod", "cut", "dirname", "du", "grep", "head", "mkdir", "mktemp",
    "realpath", "rm", "sed", "sort", "tail",
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
        // Never through a link to the real one.
        let _ = fs::remove_file(&path);
        fs::write(&path, format!("#!/bin/sh\n{commands}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn setup(&self, goal: &str) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/setup.sh");
        self.run(&script, goal, self.dir.path())
    }

    /// The same from a copy of the scripts in a directory that nothing was built in; also gives the
    /// directory for temporary files.
    fn setup_of_copy(&self, goal: &str) -> (PathBuf, Output) {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
        let root = self.dir.path().join("root");
        fs::create_dir_all(root.join("scripts")).unwrap();
        for name in ["setup.sh", "target-dir.sh"] {
            fs::copy(scripts.join(name), root.join("scripts").join(name)).unwrap();
        }
        fs::copy(scripts.join("../Cargo.toml"), root.join("Cargo.toml")).unwrap();
        let temporary = root.join("tmp");
        fs::create_dir(&temporary).unwrap();
        let output = self.run(&root.join("scripts/setup.sh"), goal, &temporary);
        (temporary, output)
    }

    fn run(&self, script: &Path, goal: &str, temporary: &Path) -> Output {
        let mut command = Command::new("/bin/bash");
        let command = command.arg(script).arg(goal).env_clear();
        command
            .env("PATH", self.dir.path())
            .env("TMPDIR", temporary)
            .output()
            .unwrap()
    }

    fn lines(&self, log: &str) -> usize {
        let text = fs::read_to_string(self.dir.path().join(log));
        text.unwrap_or_default().lines().count()
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

#[test]
fn an_old_cargo_that_stays_first_on_path_is_named() {
    let place = Distribution::new();
    place.has("cargo", "echo cargo 1.60.0");
    // Where packages are looked up, and where they are not.
    for has_packages in [false, true] {
        if has_packages {
            place.has("dpkg-query", "echo install ok installed");
        }
        let output = place.setup("compile");
        let told = told(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        let sentence = format!(
            "setup: {}/cargo has version 1.60.0, and ",
            place.dir.path().display()
        );
        assert!(told.contains(&sentence), "{told}");
        assert!(told.contains("rustup update"), "{told}");
    }
}

#[test]
fn the_lists_of_packages_are_updated_when_another_apt_has_ended() {
    let place = Distribution::new();
    place.has("dpkg-query", "exit 1");
    // Locked twice.
    let locked = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)";
    place.has(
        "apt-get",
        &format!(
            "[ $1 = update ] || exit 0
            echo >> $0.log
            [ $(grep -c '' $0.log) -gt 2 ] || {{ echo '{locked}' >&2; exit 100; }}"
        ),
    );
    let output = place.setup("build");
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    assert_eq!(told.matches("waiting for another apt").count(), 1, "{told}");
    assert_eq!(
        (place.lines("apt-get.log"), place.lines("sleep.log")),
        (3, 2)
    );
}

#[test]
fn a_lock_that_stays_and_other_failures_end_the_setup_with_apts_words() {
    for (words, tries) in [("E: Could not get lock /x", 121), ("E: no network", 1)] {
        let place = Distribution::new();
        place.has("dpkg-query", "exit 1");
        place.has(
            "apt-get",
            &format!("echo >> $0.log; echo '{words}' >&2; exit 100"),
        );
        let output = place.setup("compile");
        let told = told(&output);
        assert!(!output.status.success(), "{told}");
        assert!(told.ends_with(&format!("{words}\n")), "{told}");
        assert_eq!(place.lines("apt-get.log"), tries, "{told}");
    }
}

#[test]
fn an_interrupted_setup_leaves_no_temporary_directory() {
    let place = Distribution::new();
    place.has("dpkg-query", "echo install ok installed");
    // The end of a session, in the middle of fetching a source.
    place.has(
        "apt-get",
        "[ $1 = indextargets ] || kill -TERM $PPID; exit 1",
    );
    place.has("go", "exit 0");
    place.has("df", "echo Avail; echo 99999999");
    let (temporary, output) = place.setup_of_copy("test");
    let told = told(&output);
    assert!(told.contains("fetching the source of memcached"), "{told}");
    assert!(!output.status.success(), "{told}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{told}");
}

#[test]
fn a_disk_with_too_little_space_is_an_error_before_anything_is_installed() {
    let place = Distribution::new();
    place.has("dpkg-query", "exit 1");
    place.has("apt-get", "echo >> $0.log");
    place.has("df", "echo Avail; echo 5242880");
    let (_, output) = place.setup_of_copy("test");
    let told = told(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains("20 GiB into ") && told.contains(" and 5 are free"),
        "{told}"
    );
    // What compiles the guests comes first.
    assert_eq!(place.lines("apt-get.log"), 2, "{told}");
}
