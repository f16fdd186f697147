//! The tests of Go's own packages, from the sources that come with its compiler, in machines.
//! `suites/go.txt` names those that cannot run there, and why. SKIP without /dev/kvm, Go or the
//! image `linux`.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use support::needs::{built, kvm, skip};
use support::suites::{entries, expect_reasons, is_exempt};
use support::{TestDir, end_within, installed, output};

const EXEMPT: &str = include_str!("suites/go.txt");
/// The newest version with which the list was checked: later ones have tests that it lacks.
const NEWEST: u32 = 26;
/// Far beyond what the tests of a package take on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Where Go's sources are; None where its tests cannot run.
fn go_root() -> Option<PathBuf> {
    if !kvm() || built("linux").is_none() {
        return None;
    }
    if !installed("go") {
        skip("go is not installed");
        return None;
    }
    let said = output("go", &["env", "GOVERSION", "GOROOT"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let (version, root) = said.trim().split_once('\n').unwrap();
    let minor = version.strip_prefix("go1.")?.split('.').next()?;
    if minor.parse::<u32>().ok()? > NEWEST {
        tare_vmtest::lacks(format!("{version} is newer than the list of its tests"));
        return None;
    }
    Some(PathBuf::from(root))
}

/// The command, always with this version, and with what it compiles kept from run to run.
fn go(args: &[&str]) -> Command {
    let mut go = Command::new("go");
    go.args(args)
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "")
        .env(
            "GOCACHE",
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"),
        );
    go
}

/// The test program of a package, which begins in the package's directory as `go test` has it.
fn compile(place: &TestDir, directory: &Path, package: &str) -> PathBuf {
    let base = package.rsplit('/').next().unwrap();
    let directory = directory.to_str().unwrap();
    let begins = format!(
        "package {base}_test\n\nimport \"syscall\"\n\nfunc init() {{ syscall.Chdir(\"{directory}\") }}\n"
    );
    let begins = place.file("begins.go", begins.as_bytes());
    let overlay = format!("{{\"Replace\": {{\"{directory}/tare_begins_test.go\": \"{begins}\"}}}}");
    let overlay = place.file("overlay.json", overlay.as_bytes());
    let program = place.path().join(format!("{base}.test"));
    let mut go = go(&["test", "-c", "-vet=off", "-overlay", &overlay, "-o"]);
    // In the module of the sources, by the name that GOROOT has for it.
    go.arg(&program)
        .arg(".")
        .current_dir(directory)
        .env("PWD", directory);
    let built = go.output().unwrap();
    assert!(built.status.success(), "{package}: {built:?}");
    program
}

/// A root with the package's directory where it is here, and what else its tests read.
fn files(place: &TestDir, go_root: &Path, package: &str) -> PathBuf {
    let root = place.path().join("root");
    let sources = go_root.join("src");
    let copied = root.join(sources.strip_prefix("/").unwrap());
    for part in [package, "testdata", "go.mod"] {
        let to = copied.join(part);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let from = sources.join(part);
        if from.exists() {
            let copy = Command::new("cp").arg("-rL").arg(from).arg(to).status();
            assert!(copy.unwrap().success());
        }
    }
    for (file, text) in [
        ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("etc/group", "root:x:0:\n"),
        ("etc/services", "http 80/tcp # web\n\ndomain 53/udp\n"),
        ("usr/bin/one", ""),
        ("usr/bin/two", ""),
    ] {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// Runs the tests of a package, of which at least `fewest` pass.
fn passes(go_root: &Path, package: &str, fewest: usize) {
    let place = TestDir::new();
    let directory = go_root.join("src").join(package);
    let program = compile(&place, &directory, package);
    let program = program.to_str().unwrap();
    let all = output(program, &["-test.list", "^Test"]);
    let all = String::from_utf8_lossy(&all.stdout).into_owned();
    let tests: Vec<&str> = all
        .lines()
        .filter(|test| test.starts_with("Test") && !is_exempt(EXEMPT, package, test))
        .collect();
    let root = files(&place, go_root, package);
    let only = format!("^({})$", tests.join("|"));
    let args = [
        "run",
        program,
        "--net",
        "none",
        "--root",
        root.to_str().unwrap(),
        "--",
        "-test.short",
        "-test.v",
        "-test.run",
        &only,
    ];
    let ended = end_within(LIMIT, place.tare(&args).spawn().unwrap());
    let count = |what: &str| {
        let what = format!("--- {what}: ");
        ended
            .out
            .lines()
            .filter(|line| line.starts_with(&what))
            .count()
    };
    let failed: Vec<&str> = ended
        .out
        .lines()
        .filter(|line| line.contains("--- FAIL"))
        .collect();
    let last: Vec<&str> = ended.out.lines().rev().take(30).collect();
    assert_eq!(
        ended.code,
        Some(0),
        "{package}: {failed:#?} {last:#?} {}",
        ended.err
    );
    let (passed, skipped) = (count("PASS"), count("SKIP"));
    println!(
        "{package}: {passed} pass, {skipped} skip themselves, of {}",
        all.lines().count()
    );
    assert!(passed >= fewest, "{package}: {passed} of {fewest}");
}

#[test]
fn gos_tests_of_files_and_processes_pass() {
    if let Some(root) = go_root() {
        passes(&root, "os", 100);
    }
}

#[test]
fn gos_tests_of_sockets_pass() {
    if let Some(root) = go_root() {
        passes(&root, "net", 150);
    }
}

#[test]
fn gos_tests_of_signals_paths_and_calls_pass() {
    let Some(root) = go_root() else {
        return;
    };
    for (package, fewest) in [
        ("os/signal", 10),
        ("path/filepath", 30),
        ("io/fs", 10),
        ("syscall", 10),
    ] {
        passes(&root, package, fewest);
    }
}

#[test]
fn the_list_of_exempt_tests_gives_a_reason_for_each() {
    expect_reasons(EXEMPT);
    for line in entries(EXEMPT) {
        let name = line.split_whitespace().nth(1);
        assert!(name.is_some_and(|name| name.starts_with("Test")), "{line}");
    }
    assert!(is_exempt(EXEMPT, "os", "TestRootMultiOpen"));
    assert!(!is_exempt(EXEMPT, "os", "TestRootOpen"));
}
