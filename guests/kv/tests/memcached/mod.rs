//! memcached's own test suite, which speaks to a server by wire: memcached 1.6.18, the version whose
//! protocol `kv` has. `scripts/setup.sh test` fetches its source; without it this prints SKIP.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const RUN: &str = include_str!("run.pl");

/// The suite's directory, if set-up has fetched it.
pub(crate) fn suite() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let suite = root.join("target/sources/memcached-1.6.18/t");
    if suite.is_dir() {
        return suite.canonicalize().ok();
    }
    tare_vmtest::lacks("no source of memcached 1.6.18 in target/sources (scripts/setup.sh test)");
    None
}

/// Names of its files.
pub(crate) fn files(suite: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(suite).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".t")).collect()
}

/// Puts programs where the suite looks for memcached, in `place`: `memcached-debug` is a shell script of
/// these lines.
pub(crate) fn put_program(place: &Path, lines: &str) {
    for (name, lines) in [
        ("memcached-debug", lines),
        // Of what it starts, the suite limits the time: TIMEOUT PROGRAM ARGS.
        ("timedrun", "shift\nexec \"$@\"\n"),
    ] {
        let program = place.join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{lines}")).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, executable).unwrap();
    }
}

/// Runs a file in a `place` with programs, of which the `known` cases fail: how many pass, or what it
/// printed if it went otherwise.
pub(crate) fn run(
    suite: &Path,
    file: &str,
    known: &[u32],
    place: &Path,
    environment: &[(OsString, OsString)],
) -> Result<usize, String> {
    let output = Command::new("perl")
        .arg("-I")
        .arg(suite.join("lib"))
        .args(["-e", RUN])
        .arg(suite.join(file))
        .current_dir(place)
        .env_remove("SSL_TEST")
        .envs(environment.iter().map(|(name, value)| (name, value)))
        // At its end it signals the memcached that it has not started: maybe its group.
        .process_group(0)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("perl cannot be started: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let number = |line: &str| line.split(' ').next()?.parse::<u32>().ok();
    let numbers = |start: &str| -> Vec<u32> {
        let lines = printed.lines().filter_map(|line| line.strip_prefix(start));
        lines.filter_map(number).collect()
    };
    let (passed, failed) = (numbers("ok "), numbers("not ok "));
    // The status is the number of failures, or says that the file did not come to its end.
    let ended = output.status.code() == Some(known.len() as i32);
    // A file without a case has skipped itself.
    if ended && failed == known && !passed.is_empty() {
        return Ok(passed.len());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = errors.lines().take(20).collect();
    let (status, passed) = (output.status, passed.len());
    Err(format!(
        "{status}, {passed} ok, failed: {failed:?}, {errors:#?}"
    ))
}
