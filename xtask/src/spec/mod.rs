//! The specification: promises in `docs/spec/<crate>.toml`, each with the tests that keep it.
//!
//! `cargo xtask spec` renders them into `docs/SPEC.md`; `cargo xtask tidy` fails when that file
//! is stale, or when a named test is not a function with `#[test]` or a fuzz target.

mod render;
mod scan;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::shell::root;

/// Where the promises are.
const SOURCES: &str = "docs/spec";
/// The page that is made from them.
const PAGE: &str = "docs/SPEC.md";

/// One file of promises.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chapter {
    title: String,
    /// Directories that the promises are about.
    covers: Vec<String>,
    introduction: Option<String>,
    #[serde(default, rename = "promise")]
    promises: Vec<Promise>,
    goals: Option<GoalNotes>,
    #[serde(default, rename = "goal")]
    goal_rows: Vec<Goal>,
}

/// What a user may rely on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Promise {
    text: String,
    /// Functions with `#[test]`, or fuzz targets.
    #[serde(default)]
    tests: Vec<String>,
    /// How it is known where no test keeps it.
    by_hand: Option<String>,
    /// A limit of the tests, or how they do it.
    note: Option<String>,
}

/// A figure that is measured instead of tested.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Goal {
    text: String,
    figures: Vec<String>,
    #[serde(rename = "where")]
    place: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GoalNotes {
    introduction: String,
    note: Option<String>,
}

/// Writes the page.
pub(crate) fn write() -> Result<()> {
    let chapters = load(&root().join(SOURCES))?;
    let path = root().join(PAGE);
    fs::write(&path, render::page(&chapters)).with_context(|| format!("cannot write {PAGE}"))?;
    let promises: usize = chapters.iter().map(|chapter| chapter.promises.len()).sum();
    eprintln!("{PAGE}: {promises} promises");
    Ok(())
}

/// What is wrong with promises and page; `files` are the tracked files.
pub(crate) fn violations(files: &[String]) -> Result<Vec<String>> {
    let chapters = load(&root().join(SOURCES))?;
    let known = known_tests(files);
    let mut found = missing_tests(&chapters, &known);
    if fs::read_to_string(root().join(PAGE))? != render::page(&chapters) {
        found.push(format!("{PAGE} is stale: run cargo xtask spec"));
    }
    Ok(found)
}

fn missing_tests(chapters: &[Chapter], known: &HashSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for promise in chapters.iter().flat_map(|chapter| &chapter.promises) {
        if promise.tests.is_empty() && promise.by_hand.is_none() {
            found.push(format!(
                "{SOURCES}: no test and no by_hand: {}",
                promise.text
            ));
        }
        for test in promise.tests.iter().filter(|test| !known.contains(*test)) {
            found.push(format!(
                "{SOURCES}: {test} is not a #[test] function or fuzz target"
            ));
        }
    }
    found
}

/// Names of all tests and fuzz targets in `files`.
fn known_tests(files: &[String]) -> HashSet<String> {
    let mut known = HashSet::new();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        if let Some(target) = file.strip_prefix("fuzz/fuzz_targets/") {
            known.insert(target.trim_end_matches(".rs").to_owned());
        }
        if let Ok(source) = fs::read_to_string(root().join(file)) {
            known.extend(scan::tests(&source).map(str::to_owned));
        }
    }
    known
}

/// The chapters in `dir`, in the order of their files' names.
fn load(dir: &Path) -> Result<Vec<Chapter>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {SOURCES}"))? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        bail!("{SOURCES} has no promises");
    }
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let name = path.display();
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
            toml::from_str(&text).with_context(|| format!("{name} is not a chapter"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chapter(text: &str) -> Chapter {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_promise_whose_test_does_not_exist_is_a_violation() {
        let text = "title = 'T'\ncovers = ['crates/t']\n\
                    [[promise]]\ntext = 'It ends'\ntests = ['it_ends', 'it_does_not']\n";
        let known = HashSet::from(["it_ends".to_owned()]);
        let found = missing_tests(&[chapter(text)], &known);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("it_does_not"));
    }

    #[test]
    fn a_promise_needs_a_test_or_a_word_on_how_it_is_known() {
        let head = "title = 'T'\ncovers = []\n[[promise]]\ntext = 'It ends'\n";
        let none = missing_tests(&[chapter(head)], &HashSet::new());
        assert_eq!(none.len(), 1);
        let by_hand = format!("{head}by_hand = 'by eye'\n");
        assert!(missing_tests(&[chapter(&by_hand)], &HashSet::new()).is_empty());
    }

    #[test]
    fn a_misspelt_field_of_a_promise_is_refused() {
        let text = "title = 'T'\ncovers = []\n[[promise]]\ntext = 'It'\ntest = ['a']\n";
        assert!(toml::from_str::<Chapter>(text).is_err());
    }
}
