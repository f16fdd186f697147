//! `tare why --compare A B`: what changed between two documents of `--json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tare_control::exit::ExitCode;
use tare_host::printable::printable;
use tare_why::Basis;
use tare_why::text::{interval, known_percent, list, percent};

use crate::failure::Explain;

/// Smallest change of a share of a core that is listed.
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
    account: Counted,
}

#[derive(Debug, Deserialize)]
struct Total {
    total: f64,
}

#[derive(Debug, Deserialize)]
struct Found {
    cause: String,
    basis: Basis,
    share: f64,
    /// Absent in documents of earlier versions.
    #[serde(default)]
    share_interval: Option<[f64; 2]>,
}

#[derive(Debug, Deserialize)]
struct Counted {
    #[serde(default = "whole")]
    counted_share: f64,
}

fn whole() -> f64 {
    1.0
}

/// The CPU time of a machine, in total and by cause.
#[derive(Debug, Default)]
struct Shares {
    total: f64,
    causes: BTreeMap<String, Share>,
}

/// The share of a cause, with its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    share: f64,
    low: f64,
    high: f64,
}

/// The change of a cause between two documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Same,
    Changed,
    /// It differs, and the intervals overlap.
    Unknown,
}

impl Found {
    /// The share; without a known interval it is unbounded.
    fn share(&self, counted_share: f64) -> Share {
        let is_exact = counted_share >= 1.0 || self.basis == Basis::Measured;
        let [low, high] = match self.share_interval {
            Some(interval) => interval,
            None if is_exact => [self.share; 2],
            None => [0.0, f64::INFINITY],
        };
        Share {
            share: self.share,
            low,
            high,
        }
    }
}

impl Share {
    /// For a cause that a document does not list: smaller shares are not listed.
    const NOT_LISTED: Self = Self {
        share: 0.0,
        low: 0.0,
        high: CHANGED,
    };

    /// As `tare why` prints it.
    fn text(self) -> String {
        if self == Self::NOT_LISTED {
            return format!("below {}", percent(CHANGED));
        }
        let ends = self.high.is_finite().then_some([self.low, self.high]);
        format!(
            "{}{}",
            known_percent(self.share, ends),
            interval(self.share, ends)
        )
    }

    fn and(self, other: Self) -> Self {
        Self {
            share: self.share + other.share,
            low: self.low + other.low,
            high: self.high + other.high,
        }
    }

    fn change(self, now: Self) -> Change {
        if (now.share - self.share).abs() < CHANGED {
            Change::Same
        } else if now.low > self.high || self.low > now.high {
            Change::Changed
        } else {
            Change::Unknown
        }
    }
}

/// The changes from the first document to the second.
pub(super) fn compare(before: &Path, after: &Path) -> Result<String, CompareError> {
    Ok(changes(&read(before)?, &read(after)?))
}

fn read(path: &Path) -> Result<BTreeMap<String, Shares>, CompareError> {
    let text = fs::read(path).map_err(|error| CompareError::Read(path.to_owned(), error))?;
    let document: Document = serde_json::from_slice(&text)
        .map_err(|error| CompareError::Parse(path.to_owned(), error))?;
    let mut machines: BTreeMap<String, Shares> = BTreeMap::new();
    for machine in document.machines {
        // Machines with the same name are compared as one.
        let shares = machines.entry(machine.name).or_default();
        shares.total += machine.breakdown.total;
        for found in machine.findings {
            let share = found.share(machine.account.counted_share);
            shares
                .causes
                .entry(found.cause)
                .and_modify(|sum| *sum = sum.and(share))
                .or_insert(share);
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
    let mut unknown = 0;
    for name in &names {
        let (then, now) = (
            before.get(*name).unwrap_or(&none),
            after.get(*name).unwrap_or(&none),
        );
        let state = match (before.contains_key(*name), after.contains_key(*name)) {
            (false, true) => " (only in the second)",
            (true, false) => " (only in the first)",
            _ => "",
        };
        let causes = causes(then, now, state.is_empty());
        let of = |wanted| causes.iter().filter(move |it| it.change == wanted);
        let text: String = of(Change::Changed).map(Compared::line).collect();
        let open: Vec<String> = of(Change::Unknown)
            .map(|it| printable(it.cause).into_owned())
            .collect();
        unknown += open.len();
        if !text.is_empty() || !state.is_empty() {
            let mut line = format!(
                "{}{state}: {} of a core, was {}\n{text}",
                printable(name),
                percent(now.total),
                percent(then.total)
            );
            if !open.is_empty() {
                let _ = writeln!(line, "  not known, intervals overlap: {}", list(&open));
            }
            changed.push(((now.total - then.total).abs(), line));
        }
    }
    changed.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut text: String = changed.iter().map(|(_, line)| line.as_str()).collect();
    let same = names.len() - changed.len();
    let _ = writeln!(text, "{same} of {} machines did not change.", names.len());
    if unknown > 0 {
        let differ = match unknown {
            1 => "1 cause differs, and its intervals overlap".to_owned(),
            more => format!("{more} causes differ, and their intervals overlap"),
        };
        let _ = writeln!(text, "{differ}: no change is known.");
    }
    text
}

/// A cause in both documents.
struct Compared<'a> {
    cause: &'a str,
    then: Share,
    now: Share,
    change: Change,
}

/// The causes of a machine, the largest difference first. In a document without the machine no
/// cause has a share.
fn causes<'a>(then: &'a Shares, now: &'a Shares, is_in_both: bool) -> Vec<Compared<'a>> {
    let mut causes: Vec<&String> = then.causes.keys().chain(now.causes.keys()).collect();
    causes.sort_unstable();
    causes.dedup();
    let share = |shares: &Shares, cause: &String| {
        let known = shares.causes.get(cause).copied();
        known.unwrap_or(Share::NOT_LISTED)
    };
    let mut compared: Vec<_> = causes
        .into_iter()
        .map(|cause| {
            let (then, now) = (share(then, cause), share(now, cause));
            let change = match then.change(now) {
                Change::Unknown if !is_in_both => Change::Changed,
                change => change,
            };
            Compared {
                cause,
                then,
                now,
                change,
            }
        })
        .collect();
    let by = |it: &Compared<'_>| (it.now.share - it.then.share).abs();
    compared.sort_by(|a, b| by(b).total_cmp(&by(a)));
    compared
}

impl Compared<'_> {
    fn line(&self) -> String {
        format!(
            "  {:<20} {:>8}, was {}\n",
            printable(self.cause),
            self.now.text(),
            self.then.text()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(total: f64, causes: &[(&str, f64)]) -> Shares {
        let causes = causes.iter();
        Shares {
            total,
            causes: causes
                .map(|(cause, share)| ((*cause).to_owned(), exact(*share)))
                .collect(),
        }
    }

    fn exact(share: f64) -> Share {
        Share {
            share,
            low: share,
            high: share,
        }
    }

    fn between(low: f64, share: f64, high: f64) -> Share {
        Share { share, low, high }
    }

    fn machine(cause: &str, share: Share) -> BTreeMap<String, Shares> {
        let shares = Shares {
            total: 1.0,
            causes: BTreeMap::from([(cause.to_owned(), share)]),
        };
        BTreeMap::from([("m".to_owned(), shares)])
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
            lines[1].contains("hpet") && lines[1].contains("below 0.2 %, was 28 %"),
            "{text}"
        );
        assert!(lines[3].starts_with("gone (only in the first)"), "{text}");
        assert_eq!(lines[4], "1 of 3 machines did not change.");
    }

    #[test]
    fn a_change_is_named_where_the_intervals_do_not_overlap() {
        let text = |then, now| changes(&machine("exits", then), &machine("exits", now));
        let apart = text(between(0.2, 0.3, 0.4), between(0.41, 0.5, 0.6));
        assert!(
            apart.contains("exits") && apart.contains("50 % (41 to 60 %), was 30 % (20 to 40 %)"),
            "{apart}"
        );
        let overlap = text(between(0.2, 0.3, 0.4), between(0.35, 0.5, 0.6));
        assert_eq!(
            overlap,
            "1 of 1 machines did not change.\n\
             1 cause differs, and its intervals overlap: no change is known.\n"
        );
        // A cause that was not listed may have been as large as that.
        let then = machine("guest", exact(0.1));
        let now = machine("exits", between(0.001, 0.03, 0.06));
        let new = changes(&then, &now);
        assert!(new.contains("guest"), "{new}");
        assert!(
            new.contains("  not known, intervals overlap: exits\n"),
            "{new}"
        );
    }

    #[test]
    fn a_sampled_share_without_an_interval_is_no_change() {
        let found = |basis, share_interval| Found {
            cause: "exits".to_owned(),
            basis,
            share: 0.5,
            share_interval,
        };
        let unknown = found(Basis::Estimated, None);
        let then = exact(0.1);
        assert_eq!(then.change(unknown.share(0.14)), Change::Unknown);
        assert_eq!(then.change(unknown.share(1.0)), Change::Changed);
        let by_clock = found(Basis::Measured, None);
        assert_eq!(then.change(by_clock.share(0.14)), Change::Changed);
        let known = found(Basis::Estimated, Some([0.4, 0.6]));
        assert_eq!(then.change(known.share(0.14)), Change::Changed);
        assert_eq!(exact(0.5).change(known.share(0.14)), Change::Same);
    }

    #[test]
    fn a_change_is_one_in_both_directions_and_only_where_intervals_are_apart() {
        let ends = [0.0, 0.01, 0.2, 1.0];
        let around = |share: f64| {
            let lows = ends.into_iter().map(move |below| (share - below).max(0.0));
            lows.flat_map(move |low| ends.map(|above| between(low, share, share + above)))
        };
        let all: Vec<Share> = [0.0, 0.001, 0.1, 0.35, 1.5]
            .into_iter()
            .flat_map(around)
            .collect();
        for a in &all {
            assert_eq!(a.change(*a), Change::Same);
            for b in &all {
                let change = a.change(*b);
                assert_eq!(change, b.change(*a), "{a:?} {b:?}");
                let overlap = a.low <= b.high && b.low <= a.high;
                assert!(!(overlap && change == Change::Changed), "{a:?} {b:?}");
                let is_small = (a.share - b.share).abs() < CHANGED;
                assert_eq!(change == Change::Same, is_small, "{a:?} {b:?}");
            }
        }
    }
}
