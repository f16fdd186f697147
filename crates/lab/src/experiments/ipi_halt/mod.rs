//! The IPI benchmark of KVM Message Passing 2015: from the command that
//! sends an interrupt to the first instruction of its handler on a CPU that
//! halted about 100 µs ago.
//!
//! Arms in rotated order, each turn a machine of its own: KVM that never polls
//! on a halt (with the image in ring 0 and in ring 3), KVM that polls for 200 µs, KVM that
//! polls within a budget, a CPU that halts by itself, QEMU with KVM as the kernel has it,
//! and two threads of the host.

mod host;
mod report;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Value, json};
use tare_account::Account;
use tare_control::stats::Kvm;

use self::host::HostError;
use super::guest_bench::{self, ArmRound, Data};
use crate::appliance::GuestSpec;
use crate::bench::{Bench, RunError};
use crate::experiment::Experiment;
use crate::figure::{Figure, median};
use crate::goal::Goal;
use crate::report::ReportText;
use crate::request::Depth;

/// Time from the halt to the interrupt, as in KVM Message Passing 2015.
const GAP: Duration = Duration::from_micros(100);
/// What a turn is planned to take.
const TURN: Duration = Duration::from_millis(900);
/// The same in QEMU.
const QEMU_TURN: Duration = Duration::from_secs(7);
/// The quantiles of KVM Message Passing 2015's table, and p90.
const QUANTILES: [(&str, f64); 5] = [
    ("min", 0.0),
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("max", 1.0),
];
/// Distribution of wake-ups, in cycles (of the host's arm in ns).
const WAKE: &str = "wake_cycles";
/// The median wake-up of each turn, by arm and round.
const TURN_MEDIAN: &str = "wake_cycles_turn";
/// What sending took, in cycles.
const SEND: &str = "send_cycles";

/// KVM Message Passing 2015: polling wakes in 1/3.5 of the time of scheduling.
const GOALS: &[Goal] = &[
    Goal {
        figure: "wake_poll_to_never",
        at_most: 0.2857,
        on: &[Kvm::Hardware],
    },
    Goal {
        figure: "wake_ring_3_to_ring_0",
        at_most: 1.3,
        on: &[Kvm::Emulated],
    },
];

/// Who is woken, and how it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Never,
    Ring3,
    Poll,
    Budget,
    Dedicated,
    Qemu,
    Host,
}

impl Arm {
    const ALL: [Self; 7] = [
        Self::Never,
        Self::Ring3,
        Self::Poll,
        Self::Budget,
        Self::Dedicated,
        Self::Qemu,
        Self::Host,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Ring3 => "ring3",
            Self::Poll => "poll",
            Self::Budget => "budget",
            Self::Dedicated => "dedicated",
            Self::Qemu => "qemu",
            Self::Host => "host",
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Self::Never => "never: Tare, KVM schedules on a halt",
            Self::Ring3 => "ring3: the same with the image in ring 3",
            Self::Poll => "poll: Tare, KVM polls for 200 µs",
            Self::Budget => "budget: Tare, KVM polls for at most 1 % of a CPU",
            Self::Dedicated => "dedicated: Tare, halts that KVM takes no part in",
            Self::Qemu => "qemu: QEMU on the same KVM, as the kernel is set",
            Self::Host => "host: two threads, futex wake to running",
        }
    }
}

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
    /// Dedicated vCPUs are not available here.
    refused: bool,
    /// Frequency of the guest's counter.
    khz: Option<f64>,
}

impl IpiHalt {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let (rounds, samples) = match depth {
            Depth::Quick => (2, 100),
            Depth::Standard => (6, 200),
            Depth::Full => (10, 1000),
        };
        Self {
            depth,
            image: image.unwrap_or_else(|| "ipi-halt".to_owned()),
            rounds,
            samples,
            data: Data::default(),
            watched: None,
            ring_3: (0, Vec::new()),
            refused: false,
            khz: None,
        }
    }

    fn turn(&mut self, bench: &mut Bench<'_>, arm: Arm, round: usize) -> Result<(), RunError> {
        let place = ArmRound {
            arm: arm.name(),
            round,
        };
        let (engine, halt, ring) = match arm {
            Arm::Never => ("tare", "never", "0"),
            Arm::Ring3 => ("tare", "never", "3"),
            Arm::Poll => ("tare", "poll=200000", "0"),
            Arm::Budget => ("tare", "budget=1", "0"),
            Arm::Dedicated => ("tare", "dedicated", "0"),
            Arm::Qemu => ("qemu-kvm", "kernel", "0"),
            Arm::Host => return self.host(bench, place),
        };
        let samples = self.in_turn(arm);
        let cmdline = format!("samples={samples} gap_us={} hold", GAP.as_micros());
        let spec = GuestSpec {
            engine,
            halt,
            ring,
            ..place.machine(&self.image, 2, cmdline)
        };
        let (mut wakes, mut sends, mut khz) = (Vec::new(), Vec::new(), None);
        let snapshots = guest_bench::run(bench, place, &spec, |record| {
            wakes.extend(guest_bench::numbers(record, "wake"));
            sends.extend(guest_bench::numbers(record, "send"));
            khz = khz.or(record.get("khz").and_then(Value::as_f64));
        })?;
        self.khz = self.khz.or(khz);
        if let Some(figure) = median("turn", "cycles", &wakes) {
            let name = format!("{TURN_MEDIAN}.{}", arm.name());
            self.data.samples.enter_round(round);
            self.data.samples.add(&name, "cycles", figure.value);
        }
        self.data.extend(WAKE, arm.name(), wakes.into_iter());
        self.data.extend(SEND, arm.name(), sends.into_iter());
        if let Some(end) = &snapshots.end {
            self.data.count(arm.name(), None, end);
        }
        Ok(())
    }

    /// A turn under watch, for the steps of a wake-up that is scheduled.
    fn watch(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        let place = ArmRound {
            arm: Arm::Never.name(),
            round: self.rounds,
        };
        let (samples, gap_us) = (self.samples, GAP.as_micros());
        let cmdline = format!(
            "samples={samples} gap_us={gap_us} hold {}",
            guest_bench::PAUSE
        );
        let spec = GuestSpec {
            halt: "never",
            ..place.machine(&self.image, 2, cmdline)
        };
        bench.progress.step("the steps of a wake-up");
        self.watched = guest_bench::watch(bench, place, &spec)?;
        if self
            .watched
            .as_ref()
            .is_none_or(|account| guest_bench::steps(account).is_empty())
        {
            let why = self
                .watched
                .as_ref()
                .and_then(|account| account.unavailable.first());
            let why = why.map_or(
                "nothing was seen from outside".to_owned(),
                ToString::to_string,
            );
            self.data.missing.push(format!("steps of a wake-up: {why}"));
        }
        Ok(())
    }

    /// QEMU's firmware takes seconds under emulation: it has one turn with all
    /// samples.
    fn in_turn(&self, arm: Arm) -> usize {
        match arm {
            Arm::Qemu => self.samples * self.rounds,
            _ => self.samples,
        }
    }

    fn host(&mut self, bench: &mut Bench<'_>, place: ArmRound) -> Result<(), RunError> {
        if bench.executor.is_replay() {
            let record = bench
                .executor
                .recorded(place.arm, "host")
                .unwrap_or_default();
            let wakes: Vec<f64> = guest_bench::numbers(&record, "wake_ns").collect();
            self.data.extend(WAKE, place.arm, wakes.into_iter());
            return Ok(());
        }
        let wakes = match host::wakes(self.samples, GAP, bench.interrupt) {
            Ok(wakes) => wakes,
            Err(HostError::Interrupted(interrupted)) => return Err(interrupted.into()),
            Err(error) => {
                self.data.missing.push(format!("host: {error}"));
                return Ok(());
            }
        };
        guest_bench::keep(bench, place, "host", &json!({"wake_ns": wakes}))?;
        self.data.extend(WAKE, place.arm, wakes.into_iter());
        Ok(())
    }

    /// Cycles in a unit of an arm's samples; `None` while it is unknown.
    fn cycles(&self, arm: Arm) -> Option<f64> {
        match arm {
            Arm::Host => self.khz.map(|khz| khz / 1e6),
            _ => Some(1.0),
        }
    }

    fn in_order(round: usize) -> impl Iterator<Item = Arm> {
        guest_bench::rotated(&Arm::ALL, round).filter(move |arm| *arm != Arm::Qemu || round == 0)
    }
}

impl Experiment for IpiHalt {
    fn planned(&self) -> Duration {
        TURN * u32::try_from(self.rounds * 5).unwrap_or(u32::MAX) + QEMU_TURN
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "image": self.image, "rounds": self.rounds,
            "samples": self.samples, "gap_us": GAP.as_micros() as u64,
            "arms": Arm::ALL.map(Arm::about),
        })
    }

    fn replan(&mut self, plan: &Value) {
        let number = |name: &str| Some(plan.get(name)?.as_u64()? as usize);
        self.rounds = number("rounds").unwrap_or(self.rounds);
        self.samples = number("samples").unwrap_or(self.samples);
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        for round in 0..self.rounds {
            for arm in Self::in_order(round) {
                if arm == Arm::Dedicated && self.refused {
                    continue;
                }
                guest_bench::announce(bench, round, self.rounds, arm.name());
                let result = self.turn(bench, arm, round);
                match arm {
                    // Images of earlier records run in ring 0 only.
                    Arm::Ring3 => {
                        self.ring_3.0 += 1;
                        if let Some(why) = guest_bench::optional(result)? {
                            let arm = arm.name();
                            let why = guest_bench::failed(bench, ArmRound { arm, round }, why)?;
                            self.ring_3.1.push(why);
                        }
                        bench.progress.done(TURN);
                    }
                    Arm::Dedicated => {
                        let why = guest_bench::optional(result)?;
                        self.refused = why.is_some();
                        self.data.unavailable(arm.name(), why);
                    }
                    Arm::Qemu => {
                        let why = guest_bench::optional(result)?;
                        self.data.unavailable(arm.name(), why);
                        bench.progress.done(QEMU_TURN);
                    }
                    _ => {
                        result?;
                        bench.progress.done(TURN);
                    }
                }
            }
        }
        self.watch(bench)
    }

    fn kvm(&self) -> Kvm {
        self.data.kvm
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for which in QUANTILES {
            for arm in Arm::ALL {
                let Some(scale) = self.cycles(arm) else {
                    continue;
                };
                let of = self
                    .data
                    .quantiles(WAKE, arm.name(), "cycles", scale, &[which]);
                figures.extend(of);
            }
        }
        for arm in Arm::ALL.into_iter().filter(|arm| *arm != Arm::Host) {
            let of = self
                .data
                .quantiles(SEND, arm.name(), "cycles", 1.0, &[("p50", 0.5)]);
            figures.extend(of);
        }
        figures.extend(report::steps(self));
        figures.extend(report::ratios(&self.data));
        for arm in [Arm::Never, Arm::Ring3, Arm::Poll, Arm::Budget] {
            figures.extend(report::polling(&self.data, arm));
        }
        figures
    }

    fn goals(&self) -> &'static [Goal] {
        GOALS
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
