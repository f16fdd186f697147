//! `tare why --compare A B`: what changed between two documents of `--json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tare_control::exit::ExitCode;
use tare_host::printable::printable;
use tare_why::text::{interval, known_percent, list, percent};
use tare_why::{Basis, Breakdown};

use crate::failure::Explain;

/// Smallest change of a share of a core that is listed. Documents list no finding of less
/// ([`tare_why::WORTH_SAYING`]).
const CHANGED: f64 = 0.002;
/// The cause whose findings name the largest kinds alone: the breakdown has all of them.
const EXITS: &str = "exits";

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
    breakdown: Breakdown,
    /// Null if it is not known, and absent in documents of earlier versions.
    #[serde(default)]
    breakdown_interval: Option<[Breakdown; 2]>,
    findings: Vec<Found>,
    account: Counted,
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
    /// By how much parts of the breakdown may be larger than they are there.
    margins: Margins,
}

/// Of the parts that are divided by counts.
#[derive(Clone, Copy, Debug, Default)]
struct Margins {
    interrupts: f64,
    polling: f64,
    guest: f64,
}

/// The share of a cause, with its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    share: f64,
    low: f64,
    high: f64,
    is_listed: bool,
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
        Share::listed(self.share, [low, high])
    }
}

impl MachineShares {
    /// All exits. Several kinds that are too small to be listed are a part of them, too.
    fn exits(&self) -> Share {
        Share::listed(self.breakdown.exits, self.ends(|it| it.exits))
    }

    fn margins(&self) -> Margins {
        let margin =
            |part: fn(&Breakdown) -> f64| (self.ends(part)[1] - part(&self.breakdown)).max(0.0);
        Margins {
            interrupts: margin(|it| it.interrupts),
            polling: margin(|it| it.polling),
            guest: margin(|it| it.guest),
        }
    }

    /// A part of the breakdown at its lowest and at its highest.
    fn ends(&self, part: impl Fn(&Breakdown) -> f64) -> [f64; 2] {
        match &self.breakdown_interval {
            Some(ends) => ends.each_ref().map(part),
            None if self.account.counted_share >= 1.0 => [part(&self.breakdown); 2],
            None => [0.0, f64::INFINITY],
        }
    }
}

impl Shares {
    fn add(&mut self, cause: String, share: Share) {
        let sum = self
            .causes
            .entry(cause)
            .or_insert(Share::listed(0.0, [0.0; 2]));
        *sum = sum.and(share);
    }

    /// The share of a cause. A document does not list less than [`CHANGED`]; where events were counted
    /// for a part of the time, the share may be larger by the margin of the part that it is of.
    fn of(&self, cause: &str) -> Share {
        let margin = match cause {
            "hpet" | "pit" | "rtc" | "periodic_tick" | "ipi_storm" | "self_ipis"
            | "device_interrupts" => self.margins.interrupts,
            "polling" | "polling_loses" => self.margins.polling,
            "guest" | "guest_spins" => self.margins.guest,
            _ => 0.0,
        };
        let listed = self.causes.get(cause).copied();
        listed.unwrap_or(Share {
            share: 0.0,
            low: 0.0,
            high: CHANGED + margin,
            is_listed: false,
        })
    }
}

impl Share {
    fn listed(share: f64, [low, high]: [f64; 2]) -> Self {
        Self {
            share,
            low,
            high,
            is_listed: true,
        }
    }

    /// As `tare why` prints it.
    fn text(self) -> String {
        if !self.is_listed {
            // Not rounded down: it is a bound.
            return format!("below {}", percent((self.high * 1e3 - 1e-9).ceil() / 1e3));
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
            is_listed: self.is_listed || other.is_listed,
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
    Ok(shares_of(document))
}

fn shares_of(document: Document) -> BTreeMap<String, Shares> {
    let mut machines: BTreeMap<String, Shares> = BTreeMap::new();
    for machine in document.machines {
        let (exits, margins) = (machine.exits(), machine.margins());
        // Machines with the same name are compared as one.
        let shares = machines.entry(machine.name).or_default();
        shares.total += machine.breakdown.total;
        shares.margins.interrupts += margins.interrupts;
        shares.margins.polling += margins.polling;
        shares.margins.guest += margins.guest;
        shares.add(EXITS.to_owned(), exits);
        for found in machine.findings {
            if found.cause != EXITS {
                let share = found.share(machine.account.counted_share);
                shares.add(found.cause, share);
            }
        }
    }
    machines
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
    let mut compared: Vec<_> = causes
        .into_iter()
        .map(|cause| {
            let (then, now) = (then.of(cause), now.of(cause));
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
    use tare_why::{
        Cause, CommandLine, Diagnosis, Events, Execution, Exit, Load, Monitor, TimerLine, Vcpu,
        diagnose,
    };

    use super::*;

    fn shares(total: f64, causes: &[(&str, f64)]) -> Shares {
        let causes = causes.iter();
        Shares {
            total,
            causes: causes
                .map(|(cause, share)| ((*cause).to_owned(), exact(*share)))
                .collect(),
            ..Shares::default()
        }
    }

    fn exact(share: f64) -> Share {
        Share::listed(share, [share; 2])
    }

    fn between(low: f64, share: f64, high: f64) -> Share {
        Share::listed(share, [low, high])
    }

    fn machine(cause: &str, share: Share) -> BTreeMap<String, Shares> {
        let shares = Shares {
            total: 1.0,
            causes: BTreeMap::from([(cause.to_owned(), share)]),
            ..Shares::default()
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

    /// A machine of half a core of which exits of these kinds take `exits` together, in equal parts.
    fn load(kinds: &[Exit], exits: f64) -> Load {
        Load {
            name: "m".to_owned(),
            pid: 4711,
            seconds: 2.0,
            monitor: Monitor::Other,
            qemu: CommandLine::default(),
            events: Events::Counted,
            counted_seconds: 2.0,
            timer_line: TimerLine::Certain,
            execution: Execution::Hardware,
            host_cpus: 4,
            vcpus: vec![Vcpu {
                cpu: 0.5,
                guest: Some(0.5 - exits),
                exits: kinds.iter().map(|kind| (*kind, 1000.0)).collect(),
                ..Vcpu::default()
            }],
            threads: Vec::new(),
            raised: BTreeMap::new(),
            sent_ipis: 0.0,
            throttled: Vec::new(),
            cpusets: Vec::new(),
            margins: tare_why::Margins::default(),
            expiries: Vec::new(),
        }
    }

    fn document(diagnosis: &Diagnosis, counted_share: f64) -> BTreeMap<String, Shares> {
        let mut machine = serde_json::to_value(diagnosis).unwrap();
        machine["name"] = "m".into();
        machine["account"] = serde_json::json!({ "counted_share": counted_share });
        let document = serde_json::json!({ "machines": [machine] });
        shares_of(serde_json::from_value(document).unwrap())
    }

    #[test]
    fn exits_of_small_kinds_count_although_none_is_listed() {
        let small = diagnose(&load(&[Exit::Cpuid, Exit::Hypercall], 0.0038), None);
        let is_exits = |found: &tare_why::Finding| found.cause == Cause::Exits;
        assert!(!small.findings.iter().any(is_exits), "{small:#?}");
        let large = diagnose(&load(&[Exit::Cpuid], 0.007), None);
        let text = changes(&document(&small, 1.0), &document(&large, 1.0));
        assert!(
            text.contains("exits") && text.contains("0.7 %, was 0.4 %"),
            "{text}"
        );
        let near = diagnose(&load(&[Exit::Cpuid], 0.0045), None);
        let text = changes(&document(&small, 1.0), &document(&near, 1.0));
        assert_eq!(text, "1 of 1 machines did not change.\n");
    }

    #[test]
    fn a_cause_that_is_not_listed_is_bounded_by_what_was_counted() {
        let mut sampled = diagnose(&load(&[], 0.0), None);
        let mut high = sampled.breakdown;
        high.interrupts += 0.0101;
        sampled.breakdown_interval = Some([sampled.breakdown, high]);
        let then = document(&sampled, 0.1);
        assert_eq!(then["m"].of("hpet").text(), "below 1.3 %");
        assert_eq!(then["m"].of("steal").text(), "below 0.2 %");
        assert_eq!(then["m"].of("hpet").change(exact(0.01)), Change::Unknown);
        assert_eq!(then["m"].of("hpet").change(exact(0.02)), Change::Changed);
        // Of an earlier version: nothing bounds it.
        sampled.breakdown_interval = None;
        let then = document(&sampled, 0.1);
        assert_eq!(then["m"].of("hpet").change(exact(0.5)), Change::Unknown);
        let whole = document(&sampled, 1.0);
        assert_eq!(whole["m"].of("hpet").text(), "below 0.2 %");
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
