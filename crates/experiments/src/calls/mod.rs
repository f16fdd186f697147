//! What a system call costs a program on the library OS: the same program as a process of this
//! host and in a machine of Tare.
//!
//! The sample is a boot (on the host: a start): the median of the calls of a kind. Both arms have
//! their turn in each round, and the difference is taken by rounds.

#[cfg(test)]
pub(super) mod tests;

use std::time::Duration;

use serde_json::{Value, json};
use tare_control::stats::Kvm;
use tare_lab::kit::{
    Bench, Data, Depth, Entry, Experiment, Figure, Goal, IfFails, Make, ReportText, RunError,
    Template, Turn, has_data, metrics, replanned, rounds, row, times,
};
use tare_load::calls::{KINDS, measure};
use tare_machines::appliance::{GuestSpec, LinuxGuest};

use super::guest_bench::{self, Arm, RunsIn, cpus, numbers};

/// The program beside `tare`.
const PROGRAM: &str = "tare-calls";
/// What starting a machine is planned to take.
const START: Duration = Duration::from_millis(600);
/// What a call is planned to take.
const CALL: Duration = Duration::from_micros(100);

metrics! {
    CALL_NS: less("call_ns", "ns");
    OVER_HOST: less("call_over_host_ns", "ns");
    FIRST_NS: less("call_first_ns", "ns");
}

/// The cheapest call, beyond what the host's Linux takes for it.
const GOALS: &[Goal] = &[
    Goal::on(&[Kvm::Emulated], "call_over_host_ns.getppid", 1_500.0),
    Goal::on(&[Kvm::Hardware], "call_over_host_ns.getppid", 150.0),
];

const TARE: &str = "tare";
const HOST: &str = "host";

static ARMS: [Arm; 2] = [
    Arm::new(TARE, "a program on the library OS", RunsIn::Tare(cpus(1))),
    Arm::new(HOST, "a process of this host", RunsIn::Host { cpus: 1 }),
];

/// The kinds of calls in words, in the order of [`KINDS`].
const ABOUT: [&str; KINDS.len()] = [
    "getppid",
    "read of a byte of /dev/zero",
    "write of a byte to /dev/null",
    "stat of /dev/null",
    "open and close of /dev/null",
    "a byte through a connection of the loopback, sent and received by one thread",
];

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "calls",
    about: "system calls of a program: on the library OS and on the host",
    metrics: METRICS,
    goals: GOALS,
    make: Make::Other(|depth| Box::new(Calls::new(depth))),
};

/// The experiment and what it has measured.
pub(crate) struct Calls {
    depth: Depth,
    rounds: usize,
    /// Calls of each kind in a turn.
    count: usize,
    data: Data,
}

impl Calls {
    /// Planned for a depth.
    pub(crate) fn new(depth: Depth) -> Self {
        let (rounds, count) = depth.of([(2, 200), (8, 500), (20, 2_000)]);
        Self {
            depth,
            rounds,
            count,
            data: Data::default(),
        }
    }

    fn in_tare(&mut self, bench: &mut Bench<'_>, arm: &Arm, round: usize) -> Result<(), RunError> {
        let root = tempfile::tempdir().map_err(RunError::Root)?;
        let program = bench.executor.fill(root.path(), PROGRAM)?;
        let spec = GuestSpec {
            linux: Some(LinuxGuest {
                kernel: None,
                root: root.path().to_owned(),
                command: vec![program, self.count.to_string(), "hold".to_owned()],
            }),
            ..arm.machine(round, "linux", "")
        };
        let mut records = Vec::new();
        let snapshots = guest_bench::run(bench, arm.round(round), &spec, |record| {
            records.push(record.clone());
        })?;
        if let Some(end) = snapshots.end {
            self.data.kvm = end.kvm;
        }
        for kind in KINDS {
            let times = records.iter().flat_map(|record| numbers(record, kind));
            self.put(kind, arm, &times.collect::<Vec<_>>());
        }
        Ok(())
    }

    fn on_host(&mut self, bench: &mut Bench<'_>, arm: &Arm, round: usize) -> Result<(), RunError> {
        for kind in KINDS {
            let measured = || {
                let times = measure(kind, self.count)?;
                Ok(times.into_iter().map(|ns| ns as f64).collect())
            };
            let times = guest_bench::on_host(bench, arm.round(round), kind, measured)?;
            self.put(kind, arm, &times);
        }
        Ok(())
    }

    fn put(&mut self, kind: &str, arm: &Arm, times: &[f64]) {
        let place = format!("{kind}.{}", arm.name);
        let samples = &mut self.data.samples;
        if let Some((summary, first)) = tare_stats::summarize(times).zip(times.first()) {
            samples.put(CALL_NS, &place, summary.median);
            samples.put(FIRST_NS, &place, *first);
        }
    }
}

impl Experiment for Calls {
    has_data!();

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "rounds": self.rounds, "count": self.count,
            "arms": ARMS.each_ref().map(|arm| arm.about), "kinds": KINDS,
        })
    }

    fn replan(&mut self, plan: &Value) {
        replanned(plan, "rounds", &mut self.rounds);
        replanned(plan, "count", &mut self.count);
    }

    fn turns(&self) -> Vec<Turn> {
        let calls = times(CALL, self.count * KINDS.len());
        rounds(self.rounds, &[ARMS.len()], 1, |_, index, _| {
            let arm: &Arm = &ARMS[index];
            let planned = match arm.runs_in {
                RunsIn::Host { .. } => Duration::ZERO,
                _ => START + calls,
            };
            Some(Turn::new(index, arm.name, planned).if_fails(IfFails::BreakOff))
        })
    }

    fn take_turn(&mut self, bench: &mut Bench<'_>, turn: &Turn) -> Result<(), RunError> {
        let arm = &ARMS[turn.index];
        self.data.samples.enter_round(turn.round);
        match arm.runs_in {
            RunsIn::Host { .. } => self.on_host(bench, arm, turn.round),
            _ => self.in_tare(bench, arm, turn.round),
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = self.data.samples.figures();
        figures.extend(KINDS.iter().filter_map(|kind| {
            let arms = [TARE, HOST].map(|arm| format!("{kind}.{arm}"));
            let pairs = self
                .data
                .samples
                .pairs(CALL_NS.name, arms.each_ref().map(String::as_str));
            let over: Vec<f64> = pairs.iter().map(|(tare, host)| tare - host).collect();
            OVER_HOST.median(kind, &over)
        }));
        figures
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        let text = Template::new(include_str!("report.md"), METRICS, figures)
            .set("rounds", self.rounds)
            .set("count", self.count)
            .only_if("emulated", self.data.kvm == Kvm::Emulated);
        let kinds = KINDS.iter().zip(ABOUT);
        let rows = kinds.map(|(kind, about)| row([("kind", *kind), ("about", about)]));
        text.report_with([], [text.tabled("costs", rows)], &self.data.missing)
    }
}
