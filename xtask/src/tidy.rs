//! The project's own rules, as far as a program can check them.

use std::fs;

use anyhow::{Result, bail};

use crate::shell::{self, root};
use crate::{circles, language, layers, links, qemus, results, spec, workspace};

/// Longest source file in lines, tests included.
const MAX_LINES: usize = 700;
/// Crates whose job is unsafe code.
const UNSAFE_CRATES: &[&str] = &["crates/hv/", "guest/hal/"];
/// Files elsewhere in which another crate or the system forces it. Kept short.
const UNSAFE_FILES: &[&str] = &[
    // A tap's ioctls, inherited descriptors by number, siginfo of SIGSYS.
    "crates/launch/src/tap.rs",
    "crates/host/src/tap_namespace.rs",
    // System calls between fork and exec.
    "crates/host/src/child.rs",
    // Signal sets of threads.
    "crates/host/src/signals.rs",
    "crates/confine/src/violation.rs",
    "crates/daemon/src/heap.rs",
    "crates/daemon/src/jail/mod.rs",
    "crates/daemon/src/jail/restricted.rs",
    "crates/monitor/src/halt/timer.rs",
    "crates/monitor/src/inherit.rs",
    "crates/monitor/src/link/tap.rs",
    // A Linux guest's way to its exit port; its command's session and system calls.
    "crates/init/src/credentials.rs",
    "crates/init/src/end/port.rs",
    "crates/init/src/kill.rs",
    "crates/init/src/terminal.rs",
    "crates/init/src/watch.rs",
    // And its processor's clock.
    "crates/init/src/clock.rs",
    // io_uring and vectored I/O on guest memory, OFD locks.
    "crates/devices/src/blk/measure.rs",
    "crates/devices/src/blk/raw_io.rs",
    // Pages that replace those that a front-end took away.
    "crates/vhost/src/session/shortened.rs",
    // An io_uring's submission queue.
    "crates/vhost/src/session/signal.rs",
    // Descriptors that systemd passes by their numbers.
    "crates/vhost/src/activation.rs",
    // The application's exported symbol; buffers in queues of devices.
    "guest/libos/src/entry.rs",
    "guest/libos/src/ports/device.rs",
    "guest/libos/src/ports/input.rs",
    "guest/libos/src/ports/output.rs",
    "guest/libos/src/random/device.rs",
    "guest/libos/src/net/virtio/driver.rs",
    "guest/libos/src/block/virtio/driver.rs",
    "guest/libos/src/block/virtio/ring.rs",
    // An allocator that fails.
    "guest/web/tests/memory.rs",
    // Registers of devices, which it tells nonsense.
    "guests/hostile/src/devices/wire.rs",
];
/// Where a SAFETY comment numbers its arguments.
const NUMBERED: &str = "guest/hal/";
/// Imports that group modules; a `use` line names one module.
const GROUPED: &[&str] = &["use std::{", "use core::{", "use alloc::{"];
/// Words that mean unfinished work.
const UNFINISHED: &[&str] = &["TODO", "FIXME", "XXX"];
/// Begins of paths that exist on one machine only.
const MACHINE_PATHS: &[&str] = &["/work/", "/root/", "/home/"];

/// Macros that panic where standard error is closed or full.
const PANICKING: &[&str] = &["eprintln!(", "eprint!("];

/// Checks every rule and lists all violations.
pub(crate) fn run() -> Result<()> {
    let files = tracked()?;
    let mut found = Vec::new();
    for file in &files {
        let Ok(text) = fs::read_to_string(root().join(file)) else {
            continue;
        };
        found.extend(any_file(file, &text));
        found.extend(language::violations(file, &text));
        found.extend(links::violations(file, &text));
        if file.ends_with(".rs") {
            found.extend(rust_file(file, &text));
        }
    }
    found.extend(spec::violations(&files)?);
    found.extend(results::violations()?);
    found.extend(qemus::violations(&files)?);
    let packages = workspace::metadata()?.packages;
    for package in packages.iter().filter(|package| package.source.is_none()) {
        found.extend(layers::violations(package));
        found.extend(circles::violations(package)?);
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
        found.push(format!("{file}: no //! comment at the top"));
    }
    for (number, line) in text.lines().enumerate() {
        if GROUPED
            .iter()
            .any(|group| line.trim_start().starts_with(group))
        {
            let line = number + 1;
            found.push(format!(
                "{file}:{line}: one `use` line for each module of std"
            ));
        }
    }
    let may = UNSAFE_CRATES.iter().any(|path| file.starts_with(path))
        || UNSAFE_FILES.contains(&file)
        || file == "xtask/src/tidy.rs";
    if !may && text.contains("allow(unsafe_code)") {
        found.push(format!(
            "{file}: unsafe code outside the files that may have it"
        ));
    }
    if file.starts_with("crates/") && !is_test {
        found.extend(messages_that_panic(file, text));
    }
    if file.starts_with(NUMBERED) {
        found.extend(arguments_without_numbers(file, text));
    }
    found
}

/// Messages that end a program of the host whose standard error cannot be written, outside its tests.
fn messages_that_panic(file: &str, text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().enumerate();
    let code = lines.take_while(|(_, line)| *line != "mod tests {");
    code.filter_map(move |(number, line)| {
        let is_comment = line.trim_start().starts_with("//");
        let panics = !is_comment && PANICKING.iter().any(|name| line.contains(name));
        let line = number + 1;
        panics.then(|| format!("{file}:{line}: write with tare_host::stderr, which does not panic"))
    })
}

/// SAFETY comments whose arguments have no numbers: each says who establishes what, and where.
fn arguments_without_numbers(file: &str, text: &str) -> impl Iterator<Item = String> {
    text.lines().enumerate().filter_map(move |(number, line)| {
        let argument = line.trim_start().strip_prefix("// SAFETY")?;
        let line = number + 1;
        (!argument.starts_with(": 1. "))
            .then(|| format!("{file}:{line}: write `// SAFETY: 1. ...`, one number an argument"))
    })
}

fn manifest(package: &workspace::Package) -> Option<String> {
    let text = fs::read_to_string(&package.manifest_path).ok()?;
    let lints = text.contains("[lints]\nworkspace = true");
    (!lints).then(|| format!("{}: no `[lints] workspace = true`", package.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_work_and_trailing_blanks_are_found_by_line() {
        let found = any_file("crates/t/src/a.rs", "fine\n// TODO later\nblank \n");
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("crates/t/src/a.rs:2: TODO"));
        assert!(found[1].starts_with("crates/t/src/a.rs:3: blanks"));
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_a_part_of_another_is_not() {
        assert_eq!(any_file("a.md", "see /root/x\n").len(), 1);
        assert!(any_file("a.md", "see guest/root/x\n").is_empty());
    }

    #[test]
    fn patches_keep_their_blanks() {
        assert!(any_file("docs/adr/a.patch", " \n").is_empty());
    }

    #[test]
    fn a_source_file_needs_a_header_and_a_bounded_length() {
        let long = format!("//! Header.\n{}", "x();\n".repeat(MAX_LINES));
        assert_eq!(rust_file("crates/t/src/a.rs", &long).len(), 1);
        assert_eq!(rust_file("crates/t/src/a.rs", "fn a() {}\n").len(), 1);
        assert!(rust_file("crates/t/src/tests.rs", "fn a() {}\n").is_empty());
    }

    #[test]
    fn arguments_for_unsafe_code_of_the_guest_have_numbers() {
        let source = |comment: &str| format!("//! Header.\n    {comment}\n");
        for (file, comment, count) in [
            ("guest/hal/src/a.rs", "// SAFETY: 1. As above.", 0),
            ("guest/hal/src/a.rs", "// SAFETY: as above.", 1),
            ("guest/hal/src/a.rs", "// SAFETY (all): 1. As above.", 1),
            ("crates/t/src/a.rs", "// SAFETY: as above.", 0),
        ] {
            let found = rust_file(file, &source(comment));
            assert_eq!(found.len(), count, "{comment}: {found:?}");
        }
    }

    #[test]
    fn messages_of_programs_do_not_panic_and_those_of_tests_may() {
        let source = "//! Header.\n/// As `eprintln!()`.\n    eprintln!(\"a\");\n\
                      eprint!(\nmod tests {\n    eprintln!()\n}\n";
        let found = rust_file("crates/t/src/a.rs", source);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/t/src/a.rs:3: "));
        for test in [
            "crates/t/tests/a.rs",
            "crates/t/src/tests.rs",
            "xtask/src/a.rs",
        ] {
            assert!(rust_file(test, source).is_empty(), "{test}");
        }
    }

    #[test]
    fn a_use_line_names_one_module_of_std() {
        let found = |line: &str| rust_file("a.rs", &format!("//! Header.\n{line}\n"));
        assert!(found("    use std::{fs, io};")[0].starts_with("a.rs:2: "));
        assert!(found("use std::sync::{Arc, Mutex};").is_empty());
    }

    #[test]
    fn unsafe_code_is_allowed_in_listed_files_only() {
        let text = "//! Header.\n#![allow(unsafe_code)]\n";
        assert_eq!(rust_file("crates/t/src/a.rs", text).len(), 1);
        assert!(rust_file("guest/hal/src/a.rs", text).is_empty());
        assert!(rust_file(UNSAFE_FILES[0], text).is_empty());
    }

    #[test]
    fn every_file_that_may_have_unsafe_code_exists() {
        for file in UNSAFE_FILES {
            assert!(root().join(file).is_file(), "{file} is gone");
        }
    }
}
