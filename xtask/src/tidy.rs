//! The project's own rules, as far as a program can check them.

use std::fs;

use anyhow::{Result, bail};

use crate::shell::{self, root};
use crate::{rooms, spec, workspace};

/// Longest source file in lines, tests included.
const MAX_LINES: usize = 700;
/// Rooms whose job is unsafe code.
const UNSAFE_ROOMS: &[&str] = &["crates/hv/", "guest/hal/"];
/// Files elsewhere in which another crate or the system forces it. Kept short.
const UNSAFE_FILES: &[&str] = &[
    // A tap's ioctls, inherited descriptors by number, siginfo of SIGSYS.
    "crates/cli/src/run/tap.rs",
    "crates/daemon/src/confine/violation.rs",
    "crates/monitor/src/halt/cpu_timer.rs",
    "crates/monitor/src/inherit.rs",
    "crates/monitor/src/link/tap.rs",
    // A Linux guest's way to its exit port; its command's session and system calls.
    "crates/init/src/end/port.rs",
    "crates/init/src/terminal.rs",
    "crates/init/src/watch.rs",
    // And its processor's clock.
    "crates/init/src/clock.rs",
    // io_uring and vectored I/O on guest memory, OFD locks.
    "crates/devices/src/blk/raw_io.rs",
    // Pages in the place of those that a front-end took away.
    "crates/vhost/src/session/shortened.rs",
    // The application's exported symbol; virtio-drivers' queues.
    "guest/libos/src/entry.rs",
    "guest/libos/src/net/virtio/driver.rs",
    "guest/libos/src/block/virtio/driver.rs",
    "guest/libos/src/block/virtio/ring.rs",
];
/// Words that mean unfinished work.
const UNFINISHED: &[&str] = &["TODO", "FIXME", "XXX"];
/// Begins of paths that exist on one machine only.
const MACHINE_PATHS: &[&str] = &["/work/", "/root/", "/home/"];

/// Checks every rule and lists all violations.
pub fn run() -> Result<()> {
    let files = tracked()?;
    let mut found = Vec::new();
    for file in &files {
        let Ok(text) = fs::read_to_string(root().join(file)) else {
            continue;
        };
        found.extend(any_file(file, &text));
        if file.ends_with(".rs") {
            found.extend(rust_file(file, &text));
        }
    }
    found.extend(spec::violations(&files)?);
    let packages = workspace::metadata()?.packages;
    for package in packages.iter().filter(|package| package.source.is_none()) {
        found.extend(rooms::violations(package));
        found.extend(manifest(package));
    }
    if !found.is_empty() {
        bail!("tidy:\n  {}", found.join("\n  "));
    }
    eprintln!("tidy: {} files", files.len());
    Ok(())
}

fn tracked() -> Result<Vec<String>> {
    let listed = shell::output(
        std::process::Command::new("git")
            .arg("ls-files")
            .current_dir(root()),
    )?;
    Ok(listed
        .lines()
        .filter(|file| root().join(file).is_file())
        .map(str::to_owned)
        .collect())
}

fn any_file(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let generated = file == "Cargo.lock" || file.starts_with("lab/runs/");
    for (number, line) in text.lines().enumerate() {
        let place = || format!("{file}:{}", number + 1);
        if line.ends_with([' ', '\t']) && !keeps_blanks(file) {
            found.push(format!("{}: blanks at the end of the line", place()));
        }
        if file == "xtask/src/tidy.rs" || generated {
            continue;
        }
        if let Some(word) = UNFINISHED.iter().find(|word| has_word(line, word)) {
            found.push(format!("{}: {word}: finish it or open an issue", place()));
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| has_path(line, path)) {
            found.push(format!("{}: {path} is a path of one machine", place()));
        }
    }
    found
}

/// Bytes that are not ours to change: an empty line of a patch's context is a
/// blank.
fn keeps_blanks(file: &str) -> bool {
    file.starts_with("fuzz/corpus/") || file.ends_with(".patch") || file == "LICENSE"
}

/// Whether a path in `line` begins with `begin`.
fn has_path(line: &str, begin: &str) -> bool {
    line.match_indices(begin)
        .any(|(at, _)| !line[..at].ends_with(|before: char| before.is_alphanumeric()))
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric())
        .any(|have| have == word)
}

fn rust_file(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        found.push(format!("{file}: {lines} lines, at most {MAX_LINES}"));
    }
    let is_test = file.ends_with("/tests.rs") || file.contains("/tests/");
    if !text.starts_with("//!") && !file.ends_with("build.rs") && !is_test {
        found.push(format!("{file}: begins without saying what it is (//!)"));
    }
    let may = UNSAFE_ROOMS.iter().any(|room| file.starts_with(room))
        || UNSAFE_FILES.contains(&file)
        || file == "xtask/src/tidy.rs";
    if !may && text.contains("allow(unsafe_code)") {
        found.push(format!("{file}: unsafe code outside its rooms"));
    }
    found
}

fn manifest(package: &workspace::Package) -> Option<String> {
    let text = fs::read_to_string(&package.manifest_path).ok()?;
    let lints = text.contains("[lints]\nworkspace = true");
    (!lints).then(|| format!("{}: does not take the workspace's lints", package.name))
}
