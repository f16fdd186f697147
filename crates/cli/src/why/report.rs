//! One machine's diagnosis as a document (`--json`) and as text.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::SystemTime;

use super::cost::RunCost;
use super::prices::Prices;
use super::secrets::masked;
use crate::output::width;
use serde::Serialize;
use tare_account::{Account, Source, Unavailable};
use tare_host::printable::printable;
use tare_host::shell::quoted;
use tare_why::text::{interval, known_percent, percent};
use tare_why::{
    Diagnosis, Execution, Finding, Load, Monitor, WORTH_SAYING, diagnose, program_timers,
};

/// Smallest share of a core that is printed as a part of the whole.
const SHOWN: f64 = 0.0005;
/// Version of the document. It changes when the meaning of a field changes.
pub(super) const SCHEMA: u32 = 1;

/// The findings about one machine (`docs/why.md`).
#[derive(Debug, Serialize)]
pub(super) struct Report {
    name: String,
    pid: u32,
    monitor: Monitor,
    execution: Execution,
    vcpus: usize,
    seconds: f64,
    /// The end of the window, RFC 3339.
    time: String,
    ended: bool,
    #[serde(flatten)]
    diagnosis: Diagnosis,
    unavailable: Vec<String>,
    observer_share: f64,
    #[serde(skip)]
    busiest_exits: Vec<String>,
    /// What runs out in the program.
    #[serde(skip)]
    timers: Option<String>,
    account: Account,
}

impl Report {
    /// From an account.
    pub(super) fn of(mut account: Account, prices: &Prices) -> Self {
        let load = Load::from(&account);
        let diagnosis = diagnose(&load, prices.measured()).rendered(quoted);
        account.vm.command = masked(&account.vm.command);
        Self {
            name: account.vm.name.clone(),
            pid: account.vm.pid,
            monitor: load.monitor,
            execution: load.execution,
            vcpus: load.vcpus.len(),
            seconds: account.window_ns as f64 / 1e9,
            time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            ended: account.ended,
            busiest_exits: busiest_exits(&load),
            timers: program_timers(&load.expiries),
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

    /// CPU time and time lost waiting, as a share of a core: the sort key of machines.
    pub(super) fn burn(&self) -> f64 {
        let findings = self.diagnosis.findings.iter();
        let lost = findings.filter(|found| found.parts.total == 0.0);
        self.diagnosis.breakdown.total + lost.map(|found| found.share).sum::<f64>()
    }

    /// Whether it has no finding worth printing.
    pub(super) fn is_quiet(&self) -> bool {
        self.diagnosis.findings.is_empty()
    }

    pub(super) fn name(&self) -> Cow<'_, str> {
        printable(&self.name)
    }

    /// As text.
    pub(super) fn text(&self) -> String {
        let mut text = self.title();
        if self.is_quiet() {
            let least = percent(WORTH_SAYING);
            let _ = writeln!(text, "No finding: no cause takes {least} of a core.");
        }
        for (number, finding) in self.diagnosis.findings.iter().enumerate() {
            text.push('\n');
            paragraph(number + 1, finding, &mut text);
        }
        text.push('\n');
        self.breakdown(&mut text);
        if let Some(timers) = &self.timers {
            let line = format!("Time limits and timers of the program that ran out: {timers}.");
            text.push_str(&fill(&line, "", ""));
        }
        text
    }

    fn title(&self) -> String {
        let cpus = plural(self.vcpus, "vCPU");
        let emulated = match self.execution {
            Execution::Emulated => " on a KVM that emulates ring 0",
            Execution::Hardware => "",
        };
        let title = format!(
            "{}: {}{emulated}, process {}, {cpus}; {} of a core over {:.1} s{}.",
            self.name(),
            self.monitor.name(),
            self.pid,
            percent(self.diagnosis.breakdown.total),
            self.seconds,
            if self.ended { ", then it ended" } else { "" },
        );
        fill(&title, "", "")
    }

    fn breakdown(&self, text: &mut String) {
        let ends = self
            .diagnosis
            .breakdown_interval
            .map(|ends| ends.map(|end| end.parts()));
        let parts = self
            .diagnosis
            .breakdown
            .parts()
            .into_iter()
            .enumerate()
            .filter(|(_, (_, share))| *share >= SHOWN);
        let parts: Vec<_> = parts
            .map(|(index, (name, share))| {
                let Some(ends) = ends.map(|ends| ends.map(|parts| parts[index].1)) else {
                    return format!("{name} {}", percent(share));
                };
                let known = known_percent(share, Some(ends));
                format!("{name} {known}{}", interval(share, Some(ends)))
            })
            .collect();
        if parts.is_empty() {
            return;
        }
        let line = format!("Where the CPU time went: {}.", parts.join(", "));
        text.push_str(&fill(&line, "", ""));
        if !self.busiest_exits.is_empty() {
            let line = format!("Most frequent exits: {}.", self.busiest_exits.join(", "));
            text.push_str(&fill(&line, "", ""));
        }
    }
}

fn busiest_exits(load: &Load) -> Vec<String> {
    let mut exits: BTreeMap<_, f64> = BTreeMap::new();
    for (exit, hz) in load.vcpus.iter().flat_map(|vcpu| &vcpu.exits) {
        *exits.entry(*exit).or_default() += hz;
    }
    let mut exits: Vec<_> = exits.into_iter().filter(|(_, hz)| *hz >= 1.0).collect();
    exits.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shown = exits.into_iter().take(3);
    shown
        .map(|(exit, _)| format!("{} {}", exit.name(), load.exit_rate(&exit)))
        .collect()
}

/// Machines without a finding, in one line.
pub(super) fn quiet(reports: &[&Report]) -> String {
    /// Most names in the line.
    const NAMED: usize = 8;
    let mut names: Vec<_> = reports.iter().take(NAMED).map(|r| r.name()).collect();
    if reports.len() > NAMED {
        names.push(format!("{} more", reports.len() - NAMED).into());
    }
    let machines = plural(reports.len(), "machine");
    fill(
        &format!("{machines} without a finding: {}.", names.join(", ")),
        "",
        "  ",
    )
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}

/// Notes for all machines: what could not be observed, the origin of costs, and the cost of the
/// run.
pub(super) fn notes(reports: &[Report], prices: &Prices, run: RunCost) -> String {
    let missing: BTreeSet<String> = reports
        .iter()
        .flat_map(|report| &report.account.unavailable)
        .filter(|it| matters(it))
        .map(ToString::to_string)
        .collect();
    let mut text = String::new();
    for missing in missing {
        text.push_str(&fill(&format!("{missing}."), "", "  "));
    }
    let counted = reports
        .iter()
        .map(|report| report.account.counted_share)
        .fold(1.0, f64::min);
    if counted > 0.0 && counted < 0.9 {
        let line = format!(
            "Events were sampled {} of the time; counts are extrapolated, and 19 of 20 \
             intervals hold what there was.",
            percent(counted)
        );
        text.push_str(&fill(&line, "", ""));
    }
    text.push_str(&fill(&prices.sentence(), "", "  "));
    let most = |of: fn(&Report) -> f64| percent(reports.iter().map(of).fold(0.0, f64::max));
    let programs = |report: &Report| {
        let account = &report.account;
        account.share(account.observer.bpf_ns.unwrap_or(0))
    };
    let cost = format!(
        "Overhead of tare why itself: {} of a core in the window; {} of it on the CPUs of what \
         is watched. Its start took {:.0} ms of CPU time, the whole run {} of a core over {:.1} s.",
        most(|report| report.observer_share),
        most(programs),
        run.start_cpu_ms,
        percent(run.run_share),
        run.run_seconds,
    );
    text.push_str(&fill(&cost, "", "  "));
    text
}

/// Sources that others replace: exits by type, and the threads' files.
const QUIET: [&str; 2] = ["kvm:kvm_exit", "on_task"];

/// Whether a missing source changes a conclusion: estimates of exits and sampled events are marked
/// where they are used.
fn matters(missing: &Unavailable) -> bool {
    !matches!(
        missing.source,
        Source::KvmExit | Source::KvmStatistics | Source::BpfRunTime
    ) && !QUIET.contains(&missing.name.as_str())
}

/// The headline, its evidence, then the remedies, one line each so that a command stays whole.
fn paragraph(number: usize, finding: &Finding, text: &mut String) {
    let first = format!("{number:>2}. ");
    let headline = format!("{}.", finding.headline());
    text.push_str(&fill(&headline, &first, "    "));
    for evidence in &finding.evidence {
        text.push_str(&fill(evidence, "    - ", "      "));
    }
    for remedy in &finding.remedies {
        let remedy = remedy.render(quoted);
        let _ = writeln!(text, "    Fix: {}", printable(&remedy));
    }
}

/// Wraps text, without control characters: most sentences contain text of others.
fn fill(text: &str, first: &str, others: &str) -> String {
    let options = textwrap::Options::new(width())
        .initial_indent(first)
        .subsequent_indent(others);
    textwrap::fill(&printable(text), options) + "\n"
}
