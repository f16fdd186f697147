//! `make run` with scripts and a `tare` that stand for those of a build.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn program(path: &Path, commands: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{commands}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A directory with the makefile, and a build in another one with a blank in its name.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::copy(repository().join("Makefile"), at("Makefile")).unwrap();
    for script in ["setup.sh", "next.sh"] {
        program(&at("scripts").join(script), "");
    }
    program(
        &at("scripts/target-dir.sh"),
        &format!("echo '{}'", at("else where").display()),
    );
    program(
        &at("else where/release/tare"),
        "for word; do echo \"[$word]\"; done",
    );
    place
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn make_run_starts_what_cargo_built_and_passes_its_directory_on() {
    let place = place();
    let make = |words: &[&str]| {
        let mut command = Command::new("make");
        let command = command.args(["--no-print-directory", "run", "CARGO=true"]);
        let command = command.args(words).current_dir(place.path());
        stdout(&command.env_remove("OUT").output().unwrap())
    };
    let without = "[doctor]\n[weigh]\n[http-bursts]\n";
    assert_eq!(make(&[]), without);
    assert_eq!(make(&["OUT="]), without);
    for out in ["a b", "it's"] {
        let right = format!("{without}[--out]\n[{out}]\n");
        assert_eq!(make(&[&format!("OUT={out}")]), right);
    }
}

#[test]
fn the_scripts_ask_cargo_where_it_builds() {
    let script = |name: &str| Command::new(repository().join("scripts").join(name));
    for variable in ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"] {
        let mut command = script("target-dir.sh");
        command.env_remove("CARGO_TARGET_DIR");
        let output = command.env(variable, "/else/where").output().unwrap();
        assert_eq!(stdout(&output), "/else/where\n", "{variable}");
        let mut command = script("next.sh");
        command.env_remove("CARGO_TARGET_DIR");
        let output = command.env(variable, "/else/where").output().unwrap();
        let told = stdout(&output);
        assert!(told.contains("\n  /else/where/release/tare why"), "{told}");
    }
    // As where root has no cargo.
    let mut command = script("target-dir.sh");
    command
        .env("CARGO", "/none")
        .env("CARGO_TARGET_DIR", "/set");
    assert_eq!(stdout(&command.output().unwrap()), "/set\n");
}
