//! One machine's diagnosis as a document (`--json`) and as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::prices::Prices;
use serde::Serialize;
use tare_account::Account;
use tare_control::shell::quoted;
use tare_why::words::{percent, rate};
use tare_why::{Diagnosis, Execution, Finding, Load, Monitor, diagnose};

/// Widest line printed.
const WIDTH: usize = 79;
/// Smallest share of a core that is printed as a part of the whole.
const SHOWN: f64 = 0.0005;
/// Version of the document; a field that changes its meaning changes it.
pub(super) const SCHEMA: u32 = 1;

/// What was found out about one machine (`docs/why.md`).
#[derive(Debug, Serialize)]
pub(super) struct Report {
    name: String,
    pid: u32,
    monitor: Monitor,
    execution: Execution,
    vcpus: usize,
    seconds: f64,
    ended: bool,
    #[serde(flatten)]
    diagnosis: Diagnosis,
    unavailable: Vec<String>,
    observer_share: f64,
    account: Account,
}

impl Report {
    /// From an account.
    pub(super) fn of(account: Account, prices: &Prices) -> Self {
        let load = Load::from(&account);
        let diagnosis = named(diagnose(&load, prices.measured()), &account.vm.name);
        Self {
            name: account.vm.name.clone(),
            pid: account.vm.pid,
            monitor: load.monitor,
            execution: load.execution,
            vcpus: load.vcpus.len(),
            seconds: account.window_ns as f64 / 1e9,
            ended: account.ended,
            diagnosis,
            unavailable: account
                .unavailable
                .iter()
                .map(ToString::to_string)
                .collect(),
            observer_share: account.share(account.observer.total_ns()),
            account,
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = self.title();
        if self.diagnosis.findings.is_empty() {
            text.push_str("Nothing burns CPU time here.\n");
        }
        for (number, finding) in self.diagnosis.findings.iter().enumerate() {
            text.push('\n');
            paragraph(number + 1, finding, &mut text);
        }
        text.push('\n');
        self.breakdown(&mut text);
        text
    }

    fn title(&self) -> String {
        let cpus = match self.vcpus {
            1 => "1 vCPU".to_owned(),
            count => format!("{count} vCPUs"),
        };
        let emulated = match self.execution {
            Execution::Emulated => " on an emulating KVM",
            Execution::Hardware => "",
        };
        let title = format!(
            "{}: {}{emulated}, process {}, {cpus}; {} of a core over {:.1} s{}.",
            self.name,
            self.monitor.name(),
            self.pid,
            percent(self.diagnosis.breakdown.total),
            self.seconds,
            if self.ended { ", then it ended" } else { "" },
        );
        fill(&title, "", "")
    }

    fn breakdown(&self, text: &mut String) {
        let parts = &self.diagnosis.breakdown;
        let parts = [
            ("guest", parts.guest),
            ("interrupts", parts.interrupts),
            ("exits", parts.exits),
            ("polling", parts.polling),
            ("emulator threads", parts.emulator_threads),
            ("I/O threads", parts.io_threads),
            ("kernel threads", parts.kernel_threads),
        ];
        let parts = parts.into_iter().filter(|(_, share)| *share >= SHOWN);
        let parts: Vec<_> = parts
            .map(|(name, share)| format!("{name} {}", percent(share)))
            .collect();
        if parts.is_empty() {
            return;
        }
        let line = format!("Where the CPU time went: {}.", parts.join(", "));
        text.push_str(&fill(&line, "", ""));
        let exits: Vec<_> = self.busiest_exits();
        if !exits.is_empty() {
            let line = format!("Most frequent exits: {}.", exits.join(", "));
            text.push_str(&fill(&line, "", ""));
        }
    }

    fn busiest_exits(&self) -> Vec<String> {
        let load = Load::from(&self.account);
        let mut exits: BTreeMap<_, f64> = BTreeMap::new();
        for (exit, hz) in load.vcpus.iter().flat_map(|vcpu| &vcpu.exits) {
            *exits.entry(*exit).or_default() += hz;
        }
        let mut exits: Vec<_> = exits.into_iter().filter(|(_, hz)| *hz >= 1.0).collect();
        exits.sort_by(|a, b| b.1.total_cmp(&a.1));
        let shown = exits.into_iter().take(3);
        shown
            .map(|(exit, hz)| format!("{} {}", exit.name(), rate(hz)))
            .collect()
    }
}

/// What concerns all machines: what could not be observed, where prices are from,
/// and the cost.
pub(super) fn notes(reports: &[Report], prices: &Prices) -> String {
    let missing: BTreeSet<&String> = reports.iter().flat_map(|r| &r.unavailable).collect();
    let mut text = String::new();
    for missing in missing {
        text.push_str(&fill(&format!("{missing}."), "", "  "));
    }
    let counted = reports.iter().map(|report| report.account.counted_share);
    let counted = counted.fold(1.0, f64::min);
    if counted < 1.0 {
        let line = format!(
            "So many events come that they were counted for {} of the time, and scaled.",
            percent(counted)
        );
        text.push_str(&fill(&line, "", ""));
    }
    text.push_str(&fill(&prices.sentence(), "", "  "));
    let cost = reports.iter().map(|report| report.observer_share);
    let cost = percent(cost.fold(0.0, f64::max));
    let _ = writeln!(text, "Watching cost {cost} of a core.");
    text
}

/// The diagnosis with commands that can be pasted.
fn named(diagnosis: Diagnosis, machine: &str) -> Diagnosis {
    diagnosis.of_machine(&quoted(machine))
}

/// The sentence, then its evidence.
fn paragraph(number: usize, finding: &Finding, text: &mut String) {
    let first = format!("{number:>2}. ");
    text.push_str(&fill(&format!("{}.", finding.sentence()), &first, "    "));
    for evidence in &finding.evidence {
        text.push_str(&fill(evidence, "    - ", "      "));
    }
}

fn fill(text: &str, first: &str, others: &str) -> String {
    let options = textwrap::Options::new(WIDTH)
        .initial_indent(first)
        .subsequent_indent(others);
    textwrap::fill(text, options) + "\n"
}

#[cfg(test)]
mod tests {
    use tare_why::{Basis, Breakdown, Cause};

    use super::*;

    #[test]
    fn commands_of_remedies_name_the_machine() {
        let remedied = |remedy: &str, name: &str| {
            let finding = Finding {
                cause: Cause::Steal,
                share: 0.1,
                basis: Basis::Measured,
                what: String::new(),
                evidence: Vec::new(),
                remedy: remedy.to_owned(),
            };
            let diagnosis = Diagnosis {
                breakdown: Breakdown::default(),
                findings: vec![finding],
            };
            let mut named = super::named(diagnosis, name).findings;
            named.pop().map(|finding| finding.remedy)
        };
        let cases = [
            ("tare pin NAME, or", "web", "tare pin web, or"),
            ("virsh vcpupin DOMAIN 0 1", "web", "virsh vcpupin web 0 1"),
            (
                "virsh schedinfo DOMAIN",
                "it's 1",
                "virsh schedinfo 'it'\\''s 1'",
            ),
            ("-machine hpet=off", "web", "-machine hpet=off"),
        ];
        for (remedy, name, named) in cases {
            assert_eq!(remedied(remedy, name).as_deref(), Some(named));
        }
    }
}
