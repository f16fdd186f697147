//! The data against itself and against the kernel's sources.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

#[test]
fn every_data_file_is_well_formed() {
    assert!(read_all().unwrap().len() > 80);
}

#[test]
fn a_mistake_in_a_data_file_is_named_with_its_place() {
    let no_trigger = "[[row]]\nneeds = [\"NET\"]\nsource = []\n";
    let error = row::read("x.toml", no_trigger).unwrap_err();
    assert_eq!(
        error.to_string(),
        "x.toml: row 1 has 0 triggers, a row has one"
    );
    let two = "[[row]]\ncalls = [\"a\"]\nioctls = [\"b\"]\nneeds = []\nsource = []\n";
    let error = row::read("x.toml", two).unwrap_err();
    assert!(error.to_string().contains("has 2 triggers"), "{error}");
    let wrong = "[[row]]\ncall = [\"a\"]\n";
    let error = row::read("x.toml", wrong).unwrap_err();
    let place = std::error::Error::source(&error).unwrap().to_string();
    assert!(place.contains("line 2, column 1"), "{place}");
}

/// A tree with the kernel's sources.
fn tree() -> Option<PathBuf> {
    crate::testing::tree().map(|tree| tree.dir().to_owned())
}

#[test]
fn every_symbol_is_in_the_files_that_its_row_names() {
    let Some(tree) = tree() else { return };
    let mut texts = BTreeMap::new();
    let mut unfounded = Vec::new();
    for row in rows() {
        let sources: String = row
            .source
            .iter()
            .map(|file| {
                texts
                    .entry(file.clone())
                    .or_insert_with(|| {
                        fs::read_to_string(tree.join(file))
                            .unwrap_or_else(|error| panic!("{file}: {error}"))
                    })
                    .clone()
            })
            .collect();
        for symbol in &row.needs {
            let is_mentioned = sources.lines().any(|line| mentions(line, symbol));
            if !is_mentioned {
                unfounded.push(format!("{symbol} is not in {:?}", row.source));
            }
        }
    }
    assert_eq!(unfounded, Vec::<String>::new());
}

/// `CONFIG_X` in code, `config X` in a Kconfig file.
fn mentions(line: &str, symbol: &Symbol) -> bool {
    let is_word =
        |word: &str| word == symbol.name() || word.strip_prefix("CONFIG_") == Some(symbol.name());
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .any(is_word)
}

#[test]
fn every_call_that_a_kernel_may_lack_has_one_row() {
    let Some(tree) = tree() else { return };
    let calls = calls_of_x86_64(&tree);
    let lacking: BTreeSet<String> = conditional(&tree.join("kernel/sys_ni.c"), "COND_SYSCALL(")
        .chain(conditional(
            &tree.join("kernel/time/posix-stubs.c"),
            "SYS_NI(",
        ))
        .filter(|name| calls.contains(name))
        .collect();
    let mut listed = BTreeSet::new();
    for row in rows() {
        if let Trigger::Calls(calls) = &row.trigger {
            for call in calls {
                assert!(listed.insert(call.clone()), "{call} has two rows");
            }
        }
    }
    let missing: Vec<_> = lacking.difference(&listed).collect();
    let too_many: Vec<_> = listed.difference(&lacking).collect();
    assert_eq!((missing, too_many), (vec![], vec![]));
}

/// Names in the table of x86-64's calls, without x32's.
fn calls_of_x86_64(tree: &Path) -> BTreeSet<String> {
    let table = tree.join("arch/x86/entry/syscalls/syscall_64.tbl");
    let text = fs::read_to_string(table).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words.get(1) != Some(&"x32")).then(|| words.get(2).map(ToString::to_string))?
        })
        .collect()
}

fn conditional(file: &Path, call: &'static str) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(file).unwrap();
    let names: Vec<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix(call)?.strip_suffix(");"))
        .map(str::to_owned)
        .collect();
    names.into_iter()
}
