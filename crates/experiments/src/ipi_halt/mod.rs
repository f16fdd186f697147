//! The IPI benchmark of KVM Message Passing 2015: from the command that
//! sends an interrupt to the first instruction of its handler on a CPU that
//! halted about 100 µs ago.
//!
//! Arms in rotated order, a new machine for each turn: KVM that never polls
//! on a halt (with the image in ring 0 and in ring 3), KVM that polls for 200 µs, KVM that
//! polls within a budget, a CPU that halts by itself, QEMU with KVM as the kernel has it,
//! and two threads of the host.

mod report;
#[cfg(test)]
pub(super) mod tests;

use std::time::Duration;

use serde_json::{Value, json};
use tare_account::Account;
use tare_control::stats::Kvm;
use tare_lab::kit::{
    Bench, Data, Depth, Entry, Experiment, Figure, Goal, Make, Metric, ReportText, RunError, Turn,
    has_data, median, metrics, optional, replanned, rounds, times,
};

use super::guest_bench::{self, Arm, RunsIn, Settings, cpus};

/// Time from the halt to the interrupt, as in KVM Message Passing 2015.
const GAP: Duration = Duration::from_micros(100);
/// What a turn is planned to take.
const TURN: Duration = Duration::from_millis(900);
/// The same in QEMU.
const QEMU_TURN: Duration = Duration::from_secs(7);
/// Distribution of wake-ups, in cycles (of the host's arm in ns).
const WAKE: &str = "wake_cycles";
/// The median wake-up of each turn, by arm and round.
const TURN_MEDIAN: Metric = Metric::less("wake_cycles_turn", "cycles");
/// What sending took, in cycles.
const SEND: &str = "send_cycles";

metrics! {
    MIN: less("wake_cycles_min", "cycles");
    P50: less("wake_cycles_p50", "cycles");
    P90: less("wake_cycles_p90", "cycles");
    P99: less("wake_cycles_p99", "cycles");
    MAX: less("wake_cycles_max", "cycles");
    SEND_P50: less("send_cycles_p50", "cycles");
    STEP: less("step_ns_p50", "ns");
    POLL_TO_NEVER: neither("wake_poll_to_never", "1");
    RING_3_TO_RING_0: neither("wake_ring_3_to_ring_0", "1");
    POLLS: neither("polls_per_wake", "1");
}

/// The quantiles of KVM Message Passing 2015's table, and p90.
const QUANTILES: [(Metric, f64); 5] = [(MIN, 0.0), (P50, 0.5), (P90, 0.9), (P99, 0.99), (MAX, 1.0)];

/// KVM Message Passing 2015: polling wakes in 1/3.5 of the time of scheduling.
const GOALS: &[Goal] = &[
    Goal::on(&[Kvm::Hardware], POLL_TO_NEVER.name, 0.2857),
    Goal::on(&[Kvm::Emulated], RING_3_TO_RING_0.name, 1.3),
];

const NEVER: &str = "never";
const RING_3: &str = "ring3";
const POLL: &str = "poll";
const HOST: &str = "host";

const fn waiting(halt: &'static str, ring: &'static str) -> RunsIn {
    RunsIn::Tare(Settings {
        halt,
        ring,
        ..cpus(2)
    })
}

/// Who is woken, and how it waits.
static ARMS: [Arm; 7] = [
    Arm::new(
        NEVER,
        "never: Tare, KVM schedules on a halt",
        waiting("never", "0"),
    ),
    Arm::new(
        RING_3,
        "ring3: the same with the image in ring 3",
        waiting("never", "3"),
    ),
    Arm::new(
        POLL,
        "poll: Tare, KVM polls for 200 µs",
        waiting("poll=200000", "0"),
    ),
    Arm::new(
        "budget",
        "budget: Tare, KVM polls for at most 1 % of a CPU",
        waiting("budget=1", "0"),
    ),
    Arm::new(
        "dedicated",
        "dedicated: Tare, halts that KVM takes no part in",
        waiting("dedicated", "0"),
    ),
    Arm::new(
        "qemu",
        "qemu: QEMU on the same KVM, as the kernel is set",
        RunsIn::Qemu(cpus(2)),
    ),
    Arm::new(
        HOST,
        "host: two threads, futex wake to running",
        RunsIn::Host { cpus: 2 },
    ),
];

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "ipi-halt",
    about: "an interrupt to a halted CPU: cycles with and without halt polling",
    metrics: METRICS,
    goals: GOALS,
    make: Make::OfImage(|depth, image| Box::new(IpiHalt::new(depth, image))),
};

/// The experiment and what it has measured.
pub(crate) struct IpiHalt {
    depth: Depth,
    image: String,
    rounds: usize,
    samples: usize,
    data: Data,
    /// A turn that schedules on a halt, watched from outside.
    watched: Option<Account>,
    /// Turns in ring 3, and why those of them failed that did.
    ring_3: (usize, Vec<String>),
    /// Frequency of the guest's counter.
    khz: Option<f64>,
}

impl IpiHalt {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let (rounds, samples) = depth.of([(2, 100), (6, 200), (10, 1000)]);
        Self {
            depth,
            image: image.unwrap_or_else(|| "ipi-halt".to_owned()),
            rounds,
            samples,
            data: Data::default(),
            watched: None,
            ring_3: (0, Vec::new()),
            khz: None,
        }
    }

    fn cmdline(&self, samples: usize) -> String {
        format!("samples={samples} gap_us={} hold", GAP.as_micros())
    }

    fn guest(&mut self, bench: &mut Bench<'_>, arm: &Arm, round: usize) -> Result<(), RunError> {
        // QEMU has one turn with all samples.
        let turns = self.rounds / arm.turns(self.rounds).max(1);
        let spec = arm.machine(round, &self.image, &self.cmdline(self.samples * turns));
        let (mut wakes, mut sends, mut khz) = (Vec::new(), Vec::new(), None);
        let snapshots = guest_bench::run(bench, arm.round(round), &spec, |record| {
            wakes.extend(guest_bench::numbers(record, "wake"));
            sends.extend(guest_bench::numbers(record, "send"));
            khz = khz.or(record.get("khz").and_then(Value::as_f64));
        })?;
        self.khz = self.khz.or(khz);
        if let Some(figure) = median("turn", "cycles", &wakes) {
            self.data.samples.enter_round(round);
            self.data.samples.put(TURN_MEDIAN, arm.name, figure.value);
        }
        if let Some(end) = &snapshots.end {
            let vcpus = end.vcpus.iter();
            let polled = vcpus.filter_map(|vcpu| vcpu.kvm.get("halt_successful_poll"));
            let polled: Vec<f64> = polled.map(|count| *count as f64).collect();
            if !polled.is_empty() {
                let each = polled.iter().sum::<f64>() / wakes.len() as f64;
                self.data.samples.put(POLLS, arm.name, each);
            }
            self.data.count(arm.name, None, end);
        }
        self.data.extend(WAKE, arm.name, wakes.into_iter());
        self.data.extend(SEND, arm.name, sends.into_iter());
        Ok(())
    }

    /// A turn in ring 3, in which images of earlier records did not run: one that fails is counted.
    fn in_ring_3(
        &mut self,
        bench: &mut Bench<'_>,
        arm: &Arm,
        round: usize,
    ) -> Result<(), RunError> {
        self.ring_3.0 += 1;
        if let Some(why) = optional(self.guest(bench, arm, round))? {
            let why = guest_bench::failed(bench, arm.round(round), why)?;
            self.ring_3.1.push(why);
        }
        Ok(())
    }

    /// A turn under watch, for the steps of a wake-up that is scheduled.
    fn watch(&mut self, bench: &mut Bench<'_>, arm: &Arm) -> Result<(), RunError> {
        let cmdline = format!("{} {}", self.cmdline(self.samples), guest_bench::PAUSE);
        let spec = arm.machine(self.rounds, &self.image, &cmdline);
        self.watched = guest_bench::watch(bench, arm.round(self.rounds), &spec)?;
        let watched = self.watched.as_ref();
        if watched.is_none_or(|account| guest_bench::steps(account).is_empty()) {
            let why = watched
                .and_then(|account| account.unavailable.first())
                .map_or("nothing was seen from outside".into(), ToString::to_string);
            self.data.missing.push(format!("steps of a wake-up: {why}"));
        }
        Ok(())
    }

    /// Cycles in a unit of an arm's samples; `None` while it is unknown.
    fn cycles(&self, arm: &Arm) -> Option<f64> {
        match arm.name {
            HOST => self.khz.map(|khz| khz / 1e6),
            _ => Some(1.0),
        }
    }
}

impl Experiment for IpiHalt {
    has_data!();

    fn planned(&self) -> Duration {
        times(TURN, self.rounds * 5) + QEMU_TURN
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "image": self.image, "rounds": self.rounds,
            "samples": self.samples, "gap_us": GAP.as_micros() as u64,
            "arms": ARMS.each_ref().map(|arm| arm.about),
        })
    }

    fn replan(&mut self, plan: &Value) {
        replanned(plan, "rounds", &mut self.rounds);
        replanned(plan, "samples", &mut self.samples);
    }

    fn turns(&self) -> Vec<Turn> {
        let turn = |_, index: usize, round| {
            let arm: &Arm = &ARMS[index];
            let planned = match arm.runs_in {
                RunsIn::Qemu(_) => QEMU_TURN,
                _ => TURN,
            };
            let turn = Turn::new(index, arm.name, planned).if_fails(arm.if_fails());
            (round < arm.turns(self.rounds)).then_some(turn)
        };
        let mut turns = rounds(self.rounds, &[ARMS.len()], 1, turn);
        turns.push(Turn {
            round: self.rounds,
            step: "the steps of a wake-up".to_owned(),
            ..Turn::new(0, NEVER, Duration::ZERO)
        });
        turns
    }

    fn take_turn(&mut self, bench: &mut Bench<'_>, turn: &Turn) -> Result<(), RunError> {
        let arm = &ARMS[turn.index];
        match (arm.runs_in, arm.name) {
            _ if turn.round == self.rounds => self.watch(bench, arm),
            (RunsIn::Host { cpus }, _) => {
                let measure = || tare_load::wake_ups::measure(self.samples, GAP, cpus);
                let place = arm.round(turn.round);
                let wakes = guest_bench::on_host(bench, place, "wake_ns", measure)?;
                self.data.extend(WAKE, arm.name, wakes.into_iter());
                Ok(())
            }
            (_, RING_3) => self.in_ring_3(bench, arm, turn.round),
            _ => self.guest(bench, arm, turn.round),
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (metric, q) in QUANTILES {
            figures.extend(ARMS.iter().filter_map(|arm| {
                let wakes = self.data.groups(WAKE, arm.name);
                let figure = metric.quantile(arm.name, wakes, q)?;
                Some(figure.scaled(self.cycles(arm)?, metric.unit))
            }));
        }
        figures.extend(ARMS.iter().filter_map(|arm| {
            let sends = self.data.groups(SEND, arm.name);
            SEND_P50.quantile(arm.name, sends, 0.5)
        }));
        figures.extend(report::steps(self));
        figures.extend(report::ratios(&self.data));
        figures.extend(
            ARMS[..4]
                .iter()
                .filter_map(|arm| report::polling(&self.data, arm)),
        );
        figures
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
