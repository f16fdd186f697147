//! Which files start QEMU, and what confines it there: each is in a table of `docs/security.md`.
//!
//! A file starts QEMU if it makes a command and names QEMU's program, or makes a command line of
//! `tare_qemu`. Limits: it is the text that is read; tests are left out.

use std::fs;

use anyhow::Result;

use crate::shell::root;

/// The document with the table.
const DOCUMENT: &str = "docs/security.md";
/// Files, or directories of them. A new one is confined by `tare_launch::jailed_guest`, and not here.
const PLACES: &[&str] = &[
    "crates/launch/src",
    "crates/platform/src/machine",
    "crates/cli/src/doctor/programs.rs",
    "crates/machines/src/versions.rs",
    "crates/vmtest/src",
];
/// QEMU's program, as `tare_qemu` or the command itself calls it.
const NAMES: &[&str] = &["qemu::PROGRAM", "MachineType, PROGRAM", "\"qemu-system"];
const COMMAND: &str = "Command::new(";
const COMMAND_LINE: &str = "CommandLine::new(";
/// Where `CommandLine` is.
const OWN: &str = "crates/qemu/";

/// Files that start QEMU outside of these places, and places that are not in the table.
pub(crate) fn violations(files: &[String]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut used = Vec::new();
    for file in files.iter().filter(|file| is_program(file)) {
        if !starts_qemu(&fs::read_to_string(root().join(file))?) {
            continue;
        }
        match PLACES.iter().find(|place| file.starts_with(**place)) {
            Some(place) => used.push(*place),
            None => found.push(format!(
                "{file}: starts QEMU by itself: use tare_launch::jailed_guest"
            )),
        }
    }
    let document = fs::read_to_string(root().join(DOCUMENT))?;
    for place in PLACES {
        if !used.contains(place) {
            found.push(format!("xtask/src/qemus.rs: {place} starts no QEMU"));
        }
        if !document.contains(&format!("| `{place}` |")) {
            found.push(format!("{DOCUMENT}: no row for {place}, which starts QEMU"));
        }
    }
    Ok(found)
}

/// Whether a file is part of a program, and no test.
fn is_program(file: &str) -> bool {
    let is_source = file.starts_with("crates/") && file.ends_with(".rs");
    let is_test = file.contains("/tests") || file.contains("/benches/");
    is_source && !is_test && !file.starts_with(OWN)
}

fn starts_qemu(text: &str) -> bool {
    let text = text.split("\nmod tests {").next().unwrap_or_default();
    let names = NAMES.iter().any(|name| text.contains(name));
    let line = text.contains("tare_qemu") && text.contains(COMMAND_LINE);
    line || (names && text.contains(COMMAND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_starts_qemu_is_found_and_its_tests_are_not() {
        let starts = "let mut command = Command::new(qemu::PROGRAM);\n";
        assert!(starts_qemu(starts));
        let line = "use tare_qemu::CommandLine;\nCommandLine::new(machine, tcg, guest, 1)";
        assert!(starts_qemu(line));
        assert!(!starts_qemu("find_program(qemu::PROGRAM)"));
        assert!(!starts_qemu("Command::new(\"cc\")"));
        assert!(!starts_qemu(&format!(
            "#[cfg(test)]\nmod tests {{\n{starts}"
        )));
    }

    #[test]
    fn programs_are_looked_at_and_tests_are_not() {
        assert!(is_program("crates/machines/src/linux/machine.rs"));
        for other in [
            "crates/machines/src/linux/tests.rs",
            "crates/cli/tests/qemu.rs",
            "crates/qemu/src/command_line.rs",
            "crates/tailor/src/counter/counter.c",
        ] {
            assert!(!is_program(other), "{other}");
        }
    }
}
