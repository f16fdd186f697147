//! Ways for a halted vCPU to wait (KVM Message Passing 2015): what each costs and
//! how fast each wakes, over loads from idle to a loop of short sleeps, beside
//! the best possible for the waits as they were recorded.
//!
//! Arms in rotated order for each load, each turn a machine of its own.

mod arms;
mod data;
mod report;
mod simulate;
#[cfg(test)]
mod tests;
mod wakeups;

use std::time::Duration;

use serde_json::{Value, json};
use tare_control::stats::Kvm;
use tare_policy::halt::Halt;

use self::arms::{Load, Policy};
use self::data::{Data, Turn};
use self::wakeups::Wakeups;
use super::guest_bench::{self, ArmRound};
use crate::appliance::GuestSpec;
use crate::bench::{Bench, RunError};
use crate::experiment::Experiment;
use crate::figure::Figure;
use crate::goal::Goal;
use crate::report::ReportText;
use crate::request::Depth;

/// Start, boot and end of a machine.
const START: Duration = Duration::from_millis(900);
/// Over this time it is to be kept: a rule that takes turns is judged by no less.
const KEPT: Duration = Duration::from_secs(10);
/// The arm that never polls runs for no less: its waits are the recorded ones.
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

/// The experiment and what it has measured.
pub(crate) struct HaltBudget {
    depth: Depth,
    image: String,
    rounds: usize,
    warm: Duration,
    time: Duration,
    data: Data,
}

impl HaltBudget {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let (rounds, warm_ms, time_ms) = match depth {
            Depth::Quick => (1, 400, 600),
            Depth::Standard => (6, 500, 1000),
            Depth::Full => (6, 2000, 10_000),
        };
        Self {
            depth,
            image: image.unwrap_or_else(|| "halt-load".to_owned()),
            rounds,
            warm: Duration::from_millis(warm_ms),
            time: Duration::from_millis(time_ms),
            data: Data::default(),
        }
    }

    fn turn(
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
            load.words(),
            self.warm.as_millis(),
            self.time(policy, load).as_millis()
        );
        let spec = GuestSpec {
            halt: policy.halt(),
            ..place.machine(&self.image, load.cpus(), cmdline)
        };
        // Waits as they are without polling, once.
        let records = policy == Policy::Never && !self.data.has_waits(load);
        // A replay takes none from this host, whose threads may have the numbers of the record's.
        let is_replay = bench.executor.is_replay();
        let (mut wakes_us, mut recording) = (Vec::new(), None);
        let mut unavailable = None;
        let snapshots = guest_bench::run(bench, place, &spec, |record| {
            let wakes = guest_bench::numbers(record, "wake_ns");
            wakes_us.extend(wakes.map(|ns| ns / 1e3));
            if records && !is_replay && record.get("begin").is_some() {
                match Wakeups::begin() {
                    Ok(begun) => recording = Some(begun),
                    Err(error) => unavailable = Some(error.to_string()),
                }
            }
        })?;
        self.data.unrecorded(unavailable);
        let (Some(begin), Some(end)) = (snapshots.begin, snapshots.end) else {
            return Ok(());
        };
        let turn = Turn::between(&begin, &end, wakes_us);
        if records {
            let waits = if is_replay {
                let line = bench.executor.recorded(policy.name(), "waits");
                line.and_then(|line| waits_of(&line))
            } else {
                let vcpu = end.threads.iter().find(|thread| thread.name == "vcpu0");
                let recorded = recording.zip(vcpu);
                recorded.and_then(|(recording, vcpu)| recording.end(vcpu.tid).ok())
            };
            self.data.keep_waits(load, waits, &begin, &end);
            let waits = self.data.waits(load);
            let busy_ns: Vec<u64> = waits.iter().map(|halt| halt.busy_ns).collect();
            let wait_ns: Vec<u64> = waits.iter().map(|halt| halt.wait_ns).collect();
            let waits = json!({"load": load.name(), "busy_ns": busy_ns, "wait_ns": wait_ns});
            guest_bench::keep(bench, place, "waits", &waits)?;
        }
        self.data.add(policy, load, &end, turn);
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

    fn planned_turn(&self, policy: Policy, load: Load) -> Duration {
        START + self.warm + self.time(policy, load)
    }
}

/// The waits that a record has of a turn; `None` where the line is of another form.
fn waits_of(line: &Value) -> Option<Vec<Halt>> {
    let numbers = |name: &str| -> Option<Vec<u64>> {
        line.get(name)?
            .as_array()?
            .iter()
            .map(Value::as_u64)
            .collect()
    };
    let waits = numbers("busy_ns")?.into_iter().zip(numbers("wait_ns")?);
    Some(
        waits
            .map(|(busy_ns, wait_ns)| Halt { busy_ns, wait_ns })
            .collect(),
    )
}

impl Experiment for HaltBudget {
    fn planned(&self) -> Duration {
        let always = Policy::ALL.into_iter().filter(|p| *p != Policy::Dedicated);
        let turns = always.flat_map(|policy| Load::ALL.map(|load| (policy, load)));
        let round: Duration = turns
            .map(|(policy, load)| self.planned_turn(policy, load))
            .sum();
        round * u32::try_from(self.rounds).unwrap_or(u32::MAX)
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "image": self.image, "rounds": self.rounds,
            "warm_ms": self.warm.as_millis() as u64, "time_ms": self.time.as_millis() as u64,
            "budget_time_ms": self.time(Policy::Budget, Load::Bursts).as_millis() as u64,
            "policies": Policy::ALL.map(Policy::about), "loads": Load::ALL.map(Load::about),
        })
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        for round in 0..self.rounds {
            for load in Load::ALL {
                for policy in guest_bench::rotated(&Policy::ALL, round) {
                    if self.data.is_missing(policy) {
                        continue;
                    }
                    let what = format!("{}, {}", policy.name(), load.name());
                    guest_bench::announce(bench, round, self.rounds, &what);
                    let result = self.turn(bench, policy, load, round);
                    match policy {
                        Policy::Dedicated => {
                            let why = guest_bench::optional(result)?;
                            self.data.missing(policy, why);
                        }
                        _ => {
                            result?;
                            bench.progress.done(self.planned_turn(policy, load));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn kvm(&self) -> Kvm {
        self.data.kvm()
    }

    fn figures(&self) -> Vec<Figure> {
        self.data.figures()
    }

    fn goals(&self) -> &'static [Goal] {
        GOALS
    }

    fn waited_pct(&self) -> Option<f64> {
        self.data.waited_pct()
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
