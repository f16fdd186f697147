//! `tare why --compare A B`: what changed between two documents of `--json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tare_control::exit::ExitCode;
use tare_host::printable::printable;
use tare_why::text::percent;

use crate::failure::Explain;

/// Change of a share of a core from which it is listed.
const CHANGED: f64 = 0.002;

/// A document that cannot be compared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompareError {
    /// It cannot be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// It is not a document of `tare why --json`.
    #[error("{} is not a document of tare why --json", .0.display())]
    Parse(PathBuf, #[source] serde_json::Error),
}

impl Explain for CompareError {
    fn code(&self) -> ExitCode {
        ExitCode::Usage
    }
}

#[derive(Debug, Deserialize)]
struct Document {
    machines: Vec<MachineShares>,
}

#[derive(Debug, Deserialize)]
struct MachineShares {
    name: String,
    breakdown: Total,
    findings: Vec<Found>,
}

#[derive(Debug, Deserialize)]
struct Total {
    total: f64,
}

#[derive(Debug, Deserialize)]
struct Found {
    cause: String,
    share: f64,
}

/// The CPU time of a machine, in all and by cause.
#[derive(Debug, Default)]
struct Shares {
    total: f64,
    causes: BTreeMap<String, f64>,
}

/// What changed from the first document to the second.
pub(super) fn compare(before: &Path, after: &Path) -> Result<String, CompareError> {
    Ok(changes(&read(before)?, &read(after)?))
}

fn read(path: &Path) -> Result<BTreeMap<String, Shares>, CompareError> {
    let text = fs::read(path).map_err(|error| CompareError::Read(path.to_owned(), error))?;
    let document: Document = serde_json::from_slice(&text)
        .map_err(|error| CompareError::Parse(path.to_owned(), error))?;
    let mut machines: BTreeMap<String, Shares> = BTreeMap::new();
    for machine in document.machines {
        // Machines of one name are compared as one.
        let shares = machines.entry(machine.name).or_default();
        shares.total += machine.breakdown.total;
        for found in machine.findings {
            *shares.causes.entry(found.cause).or_default() += found.share;
        }
    }
    Ok(machines)
}

fn changes(before: &BTreeMap<String, Shares>, after: &BTreeMap<String, Shares>) -> String {
    let none = Shares::default();
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let mut changed: Vec<(f64, String)> = Vec::new();
    for name in &names {
        let (then, now) = (
            before.get(*name).unwrap_or(&none),
            after.get(*name).unwrap_or(&none),
        );
        let text = of_machine(then, now);
        let state = match (before.contains_key(*name), after.contains_key(*name)) {
            (false, true) => " (only in the second)",
            (true, false) => " (only in the first)",
            _ => "",
        };
        if !text.is_empty() || !state.is_empty() {
            let line = format!(
                "{}{state}: {} of a core, was {}\n{text}",
                printable(name),
                percent(now.total),
                percent(then.total)
            );
            changed.push(((now.total - then.total).abs(), line));
        }
    }
    changed.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut text: String = changed.iter().map(|(_, line)| line.as_str()).collect();
    let same = names.len() - changed.len();
    let _ = writeln!(text, "{same} of {} machines did not change.", names.len());
    text
}

fn of_machine(then: &Shares, now: &Shares) -> String {
    let mut causes: Vec<&String> = then.causes.keys().chain(now.causes.keys()).collect();
    causes.sort_unstable();
    causes.dedup();
    let share = |shares: &Shares, cause: &String| shares.causes.get(cause).copied().unwrap_or(0.0);
    let mut changed: Vec<_> = causes
        .into_iter()
        .map(|cause| (cause, share(then, cause), share(now, cause)))
        .filter(|(_, then, now)| (now - then).abs() >= CHANGED)
        .collect();
    changed.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()));
    let mut text = String::new();
    for (cause, then, now) in changed {
        let _ = writeln!(
            text,
            "  {:<20} {:>8} was {:>8}",
            printable(cause),
            percent(now),
            percent(then)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(total: f64, causes: &[(&str, f64)]) -> Shares {
        let causes = causes.iter();
        Shares {
            total,
            causes: causes
                .map(|(cause, share)| ((*cause).to_owned(), *share))
                .collect(),
        }
    }

    #[test]
    fn the_largest_change_comes_first_and_what_is_the_same_is_counted() {
        let before = BTreeMap::from([
            ("a".to_owned(), shares(0.30, &[("hpet", 0.28)])),
            ("b".to_owned(), shares(0.10, &[("guest", 0.10)])),
            ("gone".to_owned(), shares(0.01, &[])),
        ]);
        let after = BTreeMap::from([
            ("a".to_owned(), shares(0.02, &[("guest", 0.02)])),
            ("b".to_owned(), shares(0.10, &[("guest", 0.101)])),
        ]);
        let text = changes(&before, &after);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "a: 2.0 % of a core, was 30 %");
        assert!(
            lines[1].contains("hpet") && lines[1].contains("0.0 % was     28 %"),
            "{text}"
        );
        assert!(lines[3].starts_with("gone (only in the first)"), "{text}");
        assert_eq!(lines[4], "1 of 3 machines did not change.");
    }
}
