//! Ways for a halted vCPU to wait (KVM Message Passing 2015): what each costs and
//! how fast each wakes, over loads from idle to a loop of short sleeps, beside
//! the best possible for the waits as they were recorded.
//!
//! Arms in rotated order for each load, a new machine for each turn.

mod arms;
mod data;
mod report;
mod simulate;
#[cfg(test)]
pub(super) mod tests;
mod wakeups;

use std::time::Duration;

use serde_json::{Value, json};
use tare_lab::kit::{
    Bench, Data, Depth, Entry, Experiment, Figure, Goal, IfFails, Make, ReportText, RunError, Turn,
    rounds,
};
use tare_machines::appliance::GuestSpec;
use tare_policy::halt::Halt;

use self::arms::{Load, Policy};
use self::data::{METRICS, Measured, Turn as Measurement};
use self::wakeups::Wakeups;
use super::guest_bench::{self, ArmRound};

/// Start, boot and end of a machine.
const START: Duration = Duration::from_millis(900);
/// Over this time it is to be kept: a rule that takes turns is judged by no less.
const KEPT: Duration = Duration::from_secs(10);
/// The arm that never polls runs for no less: its waits are recorded.
const RECORDED: Duration = Duration::from_secs(2);

/// `budget` inside its budget, close to the best possible, free when idle.
const GOALS: &[Goal] = &[
    Goal::on_any_kvm("poll_share_pct.budget.idle", 1.0),
    Goal::on_any_kvm("poll_share_pct.budget.every100us", 1.0),
    Goal::on_any_kvm("poll_share_pct.budget.every1ms", 1.0),
    Goal::on_any_kvm("poll_share_pct.budget.bursts", 1.0),
    Goal::on_any_kvm("poll_share_pct.budget.sleep10us", 1.0),
    Goal::on_any_kvm("frontier_gap_pct.every100us", 10.0),
    Goal::on_any_kvm("frontier_gap_pct.every1ms", 10.0),
    Goal::on_any_kvm("frontier_gap_pct.bursts", 10.0),
    Goal::on_any_kvm("frontier_gap_pct.sleep10us", 10.0),
    Goal::on_any_kvm("reachable_gap_pct.every100us", 10.0),
    Goal::on_any_kvm("reachable_gap_pct.every1ms", 10.0),
    Goal::on_any_kvm("reachable_gap_pct.bursts", 10.0),
    Goal::on_any_kvm("reachable_gap_pct.sleep10us", 10.0),
    Goal::on_any_kvm("idle_extra_pct", 0.1),
    Goal::on_any_kvm("idle_extra_halts", 0.0),
];

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "halt-budget",
    about: "ways for a halted CPU to wait: CPU against wake-up time, and the best possible",
    metrics: METRICS,
    goals: GOALS,
    make: Make::OfImage(|depth, image| Box::new(HaltBudget::new(depth, image))),
};

/// The experiment and what it has measured.
pub(crate) struct HaltBudget {
    depth: Depth,
    image: String,
    rounds: usize,
    warm: Duration,
    time: Duration,
    measured: Measured,
}

impl HaltBudget {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let sizes = [(1, 400, 600), (6, 500, 1000), (6, 2000, 10_000)];
        let (rounds, warm_ms, time_ms) = depth.of(sizes);
        Self {
            depth,
            image: image.unwrap_or_else(|| "halt-load".to_owned()),
            rounds,
            warm: Duration::from_millis(warm_ms),
            time: Duration::from_millis(time_ms),
            measured: Measured::default(),
        }
    }

    fn machine(
        &mut self,
        bench: &mut Bench<'_>,
        policy: Policy,
        load: Load,
        round: usize,
    ) -> Result<(), RunError> {
        let place = ArmRound {
            arm: policy.name(),
            round,
        };
        let cmdline = format!(
            "{} warm_ms={} ms={} halt_spin_ns=0 hold",
            load.text(),
            self.warm.as_millis(),
            self.time(policy, load).as_millis()
        );
        let spec = GuestSpec {
            halt: policy.halt(),
            ring: policy.ring(),
            ..place.machine(&self.image, load.cpus(), cmdline)
        };
        // Waits as they are without polling, of each machine; those of a record are in it.
        let records = policy == Policy::Never;
        let is_replay = bench.executor.is_replay();
        let watches = records && !is_replay;
        let (mut wakes_us, mut recording, mut unrecorded) = (Vec::new(), None, None);
        let snapshots = guest_bench::run(bench, place, &spec, |record| {
            let wakes = guest_bench::numbers(record, "wake_ns");
            wakes_us.extend(wakes.map(|ns| ns / 1e3));
            if watches && record.get("begin").is_some() {
                match Wakeups::begin() {
                    Ok(begun) => recording = Some(begun),
                    Err(error) => unrecorded = Some(error.to_string()),
                }
            }
        })?;
        let (Some(begin), Some(end)) = (snapshots.begin, snapshots.end) else {
            return Ok(());
        };
        if records {
            let kept = match bench.executor.recorded(place.arm, "waits") {
                Some(kept) => Some(kept),
                // Earlier versions recorded them in the first round alone.
                None if is_replay && self.measured.has_waits(load) => None,
                None => {
                    let waits = data::waits(recording, &begin, &end);
                    let ns = |of: fn(&Halt) -> u64| waits.iter().map(of).collect::<Vec<_>>();
                    let kept = json!({
                        "load": load.name(), "busy_ns": ns(|halt| halt.busy_ns),
                        "wait_ns": ns(|halt| halt.wait_ns), "unrecorded": unrecorded,
                    });
                    guest_bench::keep(bench, place, "waits", &kept)?;
                    Some(kept)
                }
            };
            if let Some(kept) = kept {
                self.measured.keep_waits(load, round, &kept);
            }
        }
        let turn = Measurement::between(&begin, &end, &wakes_us);
        self.measured.add((load, policy), round, &end, turn);
        Ok(())
    }

    /// How long a machine is measured.
    fn time(&self, policy: Policy, load: Load) -> Duration {
        match (policy, load) {
            (_, Load::Idle) => self.time,
            (Policy::Budget, _) => self.time.max(KEPT),
            (Policy::Never, _) => self.time.max(RECORDED),
            _ => self.time,
        }
    }
}

impl Experiment for HaltBudget {
    fn data(&self) -> Option<&Data> {
        Some(&self.measured.data)
    }

    fn data_mut(&mut self) -> Option<&mut Data> {
        Some(&mut self.measured.data)
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "image": self.image, "rounds": self.rounds,
            "warm_ms": self.warm.as_millis() as u64, "time_ms": self.time.as_millis() as u64,
            "budget_time_ms": self.time(Policy::Budget, Load::Bursts).as_millis() as u64,
            "policies": Policy::ALL.map(Policy::about), "loads": Load::ALL.map(Load::about),
        })
    }

    fn was_recorded_in_part(&self) -> bool {
        true
    }

    /// Of each load, the policies in turn.
    fn turns(&self) -> Vec<Turn> {
        let turn = |load: usize, arm: usize, _| {
            let (policy, load_) = (Policy::ALL[arm], Load::ALL[load]);
            let planned = START + self.warm + self.time(policy, load_);
            let index = load * Policy::ALL.len() + arm;
            let turn = Turn::new(index, policy.name(), planned);
            Some(match policy {
                Policy::Dedicated | Policy::Ring3 => turn.if_fails(IfFails::Drop),
                _ => turn,
            })
        };
        let mut turns = rounds(self.rounds, &[Policy::ALL.len(); 5], 1, turn);
        for turn in &mut turns {
            let load = Load::ALL[turn.index / Policy::ALL.len()];
            turn.step = format!("{}, {}", turn.step, load.name());
        }
        turns
    }

    fn take_turn(&mut self, bench: &mut Bench<'_>, turn: &Turn) -> Result<(), RunError> {
        let policies = Policy::ALL.len();
        let load = Load::ALL[turn.index / policies];
        let policy = Policy::ALL[turn.index % policies];
        // Records of earlier versions have none of it.
        if policy == Policy::Ring3 && !bench.executor.has(policy.name()) {
            return Ok(());
        }
        self.machine(bench, policy, load, turn.round)
    }

    fn figures(&self) -> Vec<Figure> {
        self.measured.figures()
    }

    fn waited_pct(&self) -> Option<f64> {
        self.measured.waited_pct()
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
