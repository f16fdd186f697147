//! `docs/why-thresholds.md` has every number by which the rules decide, with its value.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// Constants that decide nothing: units, registers and lines of a PC, digits of figures.
const NO_THRESHOLDS: [&str; 6] = [
    "NS_IN_S",
    "RTC_LINE",
    "LEAST_PERCENT",
    "PLAYS_A_PART",
    "TSC_DEADLINE",
    "LEAST_HZ in `rate.rs`",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
    files.retain(|path| !path.to_string_lossy().contains("tests"));
    files
}

/// Names, values and files of the numeric constants.
fn constants() -> Vec<(String, String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for path in sources(&root) {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        for line in fs::read_to_string(&path).unwrap().lines() {
            let line = line.trim_start();
            let public = ["pub(crate) ", "pub "].map(|it| line.strip_prefix(it));
            let line = public.into_iter().flatten().next().unwrap_or(line);
            let parts = line
                .strip_prefix("const ")
                .and_then(|it| it.split_once(": "));
            let Some((name, rest)) = parts else { continue };
            let Some((kind, value)) = rest.split_once(" = ") else {
                continue;
            };
            if matches!(kind, "f64" | "u32" | "u64" | "usize") {
                let value = value.split(';').next().unwrap();
                found.push((name.to_owned(), value.to_owned(), file.clone()));
            }
        }
    }
    found
}

fn table() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/why-thresholds.md");
    fs::read_to_string(page).unwrap()
}

#[test]
fn every_threshold_is_in_the_table_with_its_value() {
    let table = table();
    let all = constants();
    assert!(all.len() > 25, "{all:?}");
    for (name, value, file) in &all {
        let is_register = value.starts_with("0x");
        let by_file = format!("{name} in `{file}`");
        let is_known = |it: &&str| *it == name || *it == by_file;
        if is_register || NO_THRESHOLDS.iter().any(is_known) {
            continue;
        }
        let same = all.iter().filter(|(other, ..)| other == name).count();
        let row = if same > 1 {
            format!("| `{name}` in `{file}` | {value} |")
        } else {
            format!("| `{name}` | {value} |")
        };
        assert!(table.contains(&row), "docs/why-thresholds.md lacks {row}");
    }
}

#[test]
fn every_price_is_in_the_table_with_its_values() {
    let table = table();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/price.rs");
    let source = fs::read_to_string(source).unwrap();
    let prices = |name: &str| -> Vec<(String, String)> {
        let begin = source.find(&format!("const {name}: BuiltIn")).unwrap();
        let block = source[begin..].split("};").next().unwrap();
        let fields = block
            .lines()
            .filter_map(|line| line.trim().split_once(": "))
            .filter(|(name, _)| !name.starts_with("const"));
        fields
            .map(|(name, value)| (name.to_owned(), value.trim_end_matches(',').to_owned()))
            .collect()
    };
    let both = prices("HARDWARE").into_iter().zip(prices("EMULATED"));
    let mut count = 0;
    for ((name, hardware), (_, emulated)) in both {
        let row = format!("| `{name}` | {hardware} | {emulated} |");
        assert!(table.contains(&row), "docs/why-thresholds.md lacks {row}");
        count += 1;
    }
    assert_eq!(count, 7);
}
