//! What was measured of each policy under each load, and the figures.

use std::collections::BTreeMap;

use serde_json::Value;
use tare_control::stats::{Stats, ThreadStats, VcpuStats};
use tare_lab::kit::{Data, Figure, Metric, metrics};
use tare_policy::halt::{Costs, Halt};

use super::arms::{BUDGET, Load, Policy};
use super::simulate::{self, Point};
use super::wakeups::Wakeups;
use crate::guest_bench::numbers;

metrics! {
    CPU: less("cpu_share_pct", "%");
    POLLED: less("poll_share_pct", "%");
    WAITING: less("waiting_pct", "%");
    IDLE_HALTS: less("idle_halts", "1");
    IDLE_LOOKS: less("idle_looks", "1");
    IDLE_EXTRA: less("idle_extra_pct", "%");
    IDLE_EXTRA_HALTS: less("idle_extra_halts", "1");
    WAKE: less("wake_p50_us", "us");
    CAUGHT: neither("caught_share", "1");
    FRONTIER_GAP: less("frontier_gap_pct", "%");
    REACHABLE_GAP: less("reachable_gap_pct", "%");
}

/// A share of caught wake-ups above which an arm's median is that of caught
/// ones.
const MOSTLY: f64 = 0.6;
/// Fewer recorded waits tell nothing of a load.
const MIN_WAITS: usize = 100;

/// The best that recorded waits allow.
type Best = fn(&[Halt], Costs, u64) -> Point;

/// What a budget's latency is compared with.
const BESTS: [(Metric, Best); 2] = [
    (FRONTIER_GAP, simulate::best),
    (REACHABLE_GAP, simulate::reachable),
];

/// One machine's measured time.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Time that passed, ns.
    elapsed_ns: f64,
    /// CPU time of the machine's threads, the sender's apart, ns.
    cpu_ns: f64,
    /// Time that this thread was ready and waited for a CPU, ns.
    waiting_ns: f64,
    /// Time that KVM polled for it, ns.
    polled_ns: f64,
    /// Its halts that ended, and those caught while polling.
    halts: f64,
    caught: f64,
    /// Times that the budget was reconsidered.
    looks: f64,
    /// Its median wake-up, us.
    wake_us: Option<f64>,
}

impl Turn {
    /// What happened between two readings.
    pub(super) fn between(begin: &Stats, end: &Stats, wakes_us: &[f64]) -> Self {
        let thread = |stats: &Stats, name: &str| {
            let found = stats.threads.iter().find(|t| t.name == name);
            found.cloned().unwrap_or_default()
        };
        let ran = |name: &str, of: fn(&ThreadStats) -> u64| {
            less(of(&thread(end, name)), of(&thread(begin, name)))
        };
        let counted = |name: &str| less(counter(end, name), counter(begin, name));
        let others = end.threads.iter().filter(|t| t.name != "vcpu1");
        Self {
            elapsed_ns: less(end.uptime_ns, begin.uptime_ns),
            cpu_ns: others.map(|t| ran(&t.name, |t| t.run_ns)).sum(),
            waiting_ns: ran("vcpu0", |t| t.wait_ns),
            polled_ns: counted("halt_poll_success_ns") + counted("halt_poll_fail_ns"),
            halts: counted("halt_exits"),
            caught: counted("halt_successful_poll"),
            looks: less(looks(end), looks(begin)),
            wake_us: tare_stats::summarize(wakes_us).map(|wakes| wakes.median),
        }
    }

    /// CPU time over time, percent.
    fn cpu_pct(&self) -> f64 {
        self.cpu_ns / self.elapsed_ns * 100.0
    }

    /// Share of its wake-ups that were polled for; `None` without halts.
    fn caught_share(&self) -> Option<f64> {
        (self.halts > 0.0).then_some(self.caught / self.halts)
    }
}

/// A counter of the halting vCPU.
fn counter(stats: &Stats, name: &str) -> u64 {
    let value = |vcpu: &VcpuStats| vcpu.kvm.get(name).copied();
    stats.vcpus.first().and_then(value).unwrap_or(0)
}

fn looks(stats: &Stats) -> u64 {
    stats.halt.as_ref().map_or(0, |halt| halt.looks)
}

fn less(now: u64, then: u64) -> f64 {
    now.saturating_sub(then) as f64
}

/// Costs from the median wake-up of a polling arm that caught this share, and of one that never
/// polls, us; `None` where polling caught too few or was not faster.
fn costs(caught: f64, fast: f64, slow: f64) -> Option<Costs> {
    (caught > MOSTLY && fast < slow).then_some(Costs {
        caught_ns: (fast * 1e3) as u64,
        scheduled_ns: (slow * 1e3) as u64,
    })
}

/// The waits of a turn: as recorded, else as KVM's histogram has them.
pub(super) fn waits(recording: Option<Wakeups>, begin: &Stats, end: &Stats) -> Vec<Halt> {
    let vcpu = end.threads.iter().find(|thread| thread.name == "vcpu0");
    let recorded = recording
        .zip(vcpu)
        .and_then(|(recording, vcpu)| recording.end(vcpu.tid).ok());
    if let Some(waits) = recorded.filter(|waits| !waits.is_empty()) {
        return waits;
    }
    let of = |stats: &Stats| {
        let histogram = stats.vcpus.first()?.histograms.get("halt_wait_hist");
        histogram.cloned()
    };
    let (then, now) = (of(begin).unwrap_or_default(), of(end).unwrap_or_default());
    let counts: Vec<u64> = now
        .iter()
        .enumerate()
        .map(|(n, count)| count.saturating_sub(then.get(n).copied().unwrap_or(0)))
        .collect();
    simulate::of_histogram(&counts, end.uptime_ns.saturating_sub(begin.uptime_ns))
}

/// All turns. Each is a machine of its round: its wake-ups share a boot and are not independent,
/// so a figure has one sample a turn.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) data: Data,
    /// By load and policy, then by round.
    turns: BTreeMap<(Load, Policy), BTreeMap<usize, Turn>>,
    /// Waits of the machines that never poll, by load, then by round.
    waits: BTreeMap<Load, BTreeMap<usize, Vec<Halt>>>,
    /// Why waits come from histograms, if they do.
    pub(super) unrecorded: Option<String>,
}

impl Measured {
    pub(super) fn add(&mut self, place: (Load, Policy), round: usize, end: &Stats, turn: Turn) {
        let (load, policy) = place;
        self.data.kvm = end.kvm;
        let samples = &mut self.data.samples;
        let share = |ns: f64| ns / turn.elapsed_ns * 100.0;
        for (metric, share) in [
            (CPU, turn.cpu_pct()),
            (POLLED, share(turn.polled_ns)),
            (WAITING, share(turn.waiting_ns)),
        ] {
            samples.put(metric, &load.of(policy), share);
        }
        if load == Load::Idle {
            samples.put(IDLE_HALTS, policy.name(), turn.halts);
            samples.put(IDLE_LOOKS, policy.name(), turn.looks);
        }
        self.turns.entry(place).or_default().insert(round, turn);
    }

    /// The turns of a policy under a load, by round.
    fn turns(&self, load: Load, policy: Policy) -> impl Iterator<Item = (usize, &Turn)> {
        let turns = self.turns.get(&(load, policy)).into_iter().flatten();
        turns.map(|(round, turn)| (*round, turn))
    }

    fn turn(&self, load: Load, policy: Policy, round: usize) -> Option<&Turn> {
        self.turns.get(&(load, policy))?.get(&round)
    }

    /// A number of each turn that has it.
    fn each(&self, load: Load, policy: Policy, of: impl Fn(&Turn) -> Option<f64>) -> Vec<f64> {
        let turns = self.turns(load, policy);
        turns.filter_map(|(_, turn)| of(turn)).collect()
    }

    /// Keeps the waits of a turn, from their line of the record.
    pub(super) fn keep_waits(&mut self, load: Load, round: usize, kept: &Value) {
        let ns = |name| numbers(kept, name).map(|ns| ns as u64);
        let halts = ns("busy_ns")
            .zip(ns("wait_ns"))
            .map(|(busy_ns, wait_ns)| simulate::recorded(busy_ns, wait_ns));
        let rounds = self.waits.entry(load).or_default();
        rounds.insert(round, halts.collect());
        if self.unrecorded.is_none() {
            let why = kept.get("unrecorded").and_then(Value::as_str);
            self.unrecorded = why.map(str::to_owned);
        }
    }

    pub(super) fn has_waits(&self, load: Load) -> bool {
        self.waits.contains_key(&load)
    }

    /// Whether each load has waits of one machine, as records of earlier versions do.
    pub(super) fn has_waits_once(&self) -> bool {
        let mut loads = self.waits.values();
        !self.waits.is_empty() && loads.all(|rounds| rounds.len() == 1)
    }

    /// Waits of a load without polling, of the first machine.
    pub(super) fn waits(&self, load: Load) -> &[Halt] {
        let first = self.waits.get(&load).and_then(|it| it.values().next());
        first.map_or(&[], Vec::as_slice)
    }

    /// The same of a round's machine; of the one machine where there is one.
    fn waits_in(&self, load: Load, round: usize) -> &[Halt] {
        match self.waits.get(&load) {
            Some(rounds) if rounds.len() > 1 => rounds.get(&round).map_or(&[], Vec::as_slice),
            _ => self.waits(load),
        }
    }

    /// How long a vCPU under a budget was ready and had no CPU, percent of the worst load's
    /// time: KVM does not poll while another task wants the CPU, so a budget that is unspent
    /// there shows nothing.
    pub(super) fn waited_pct(&self) -> Option<f64> {
        let waited = Load::ALL.into_iter().filter_map(|load| {
            let waited = self.middle(WAITING, &load.of(Policy::Budget));
            waited.map(|figure| figure.value)
        });
        waited.reduce(f64::max)
    }

    /// The median of an arm's samples.
    fn middle(&self, metric: Metric, arm: &str) -> Option<Figure> {
        metric.median(arm, self.data.samples.values(&metric.of(arm)))
    }

    /// What a wake-up takes that was polled for, and one that was not: medians of
    /// the arm that polls, where it caught most, and of the one that never does.
    pub(super) fn costs(&self) -> Option<Costs> {
        self.caught_most().map(|(_, costs)| costs)
    }

    /// The load where polling caught most.
    pub(super) fn caught_load(&self) -> Option<Load> {
        self.caught_most().map(|(load, _)| load)
    }

    /// The same, with the load where it caught most.
    fn caught_most(&self) -> Option<(Load, Costs)> {
        let interrupts = [Load::Every100us, Load::Bursts, Load::Every1ms];
        interrupts.into_iter().find_map(|load| {
            let middle = |policy, of: fn(&Turn) -> Option<f64>| {
                let summary = tare_stats::summarize(&self.each(load, policy, of))?;
                Some(summary.median)
            };
            let costs = costs(
                middle(Policy::Poll, Turn::caught_share)?,
                middle(Policy::Poll, |turn| turn.wake_us)?,
                middle(Policy::Never, |turn| turn.wake_us)?,
            );
            Some((load, costs?))
        })
    }

    /// The same of one round's machines.
    fn costs_in(&self, load: Load, round: usize) -> Option<Costs> {
        let polling = self.turn(load, Policy::Poll, round)?;
        let never = self.turn(load, Policy::Never, round)?;
        costs(polling.caught_share()?, polling.wake_us?, never.wake_us?)
    }

    /// How far the measured budget's mean latency lies above `best` of the recorded waits,
    /// percent: a value for each round, from the machines of that round. None for a round with
    /// too few waits to tell.
    fn gaps(&self, load: Load, best: Best) -> Vec<f64> {
        let Some((of, _)) = self.caught_most() else {
            return Vec::new();
        };
        let gap = |(round, turn): (usize, &Turn)| {
            let waits = self.waits_in(load, round);
            if waits.len() < MIN_WAITS {
                return None;
            }
            let costs = self.costs_in(of, round)?;
            let best_ns = best(waits, costs, BUDGET).latency_us * 1e3;
            let (fast, slow) = (costs.caught_ns as f64, costs.scheduled_ns as f64);
            let caught = turn.caught_share()?;
            let ours_ns = caught * fast + (1.0 - caught) * slow;
            (best_ns > 0.0).then_some(((ours_ns - best_ns) / best_ns * 100.0).max(0.0))
        };
        self.turns(load, Policy::Budget).filter_map(gap).collect()
    }

    /// By how much an idle machine under a budget exceeds the one of its round that never
    /// polls; below zero where it is the other way round.
    fn extra(&self, of: fn(&Turn) -> f64) -> Vec<f64> {
        let budget = self.turns(Load::Idle, Policy::Budget);
        let extra = |(round, turn): (usize, &Turn)| {
            let never = self.turn(Load::Idle, Policy::Never, round)?;
            Some(of(turn) - of(never))
        };
        budget.filter_map(extra).collect()
    }

    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures = self.data.samples.figures();
        let place = |f: &Figure| {
            let mut order = [CPU.name, POLLED.name, WAITING.name, "idle_"].iter();
            order.position(|name| f.name.starts_with(name))
        };
        figures.sort_by_key(place);
        figures.extend(IDLE_EXTRA.median("", &self.extra(Turn::cpu_pct)));
        figures.extend(IDLE_EXTRA_HALTS.median("", &self.extra(|turn| turn.halts)));
        let each = |metric: Metric, of: fn(&Turn) -> Option<f64>| {
            let figures = self.turns.keys().filter_map(move |(load, policy)| {
                metric.median(&load.of(*policy), &self.each(*load, *policy, of))
            });
            figures.collect::<Vec<Figure>>()
        };
        figures.extend(each(WAKE, |turn| turn.wake_us));
        figures.extend(each(CAUGHT, Turn::caught_share));
        for load in Load::ALL {
            for (metric, best) in BESTS {
                figures.extend(metric.median(load.name(), &self.gaps(load, best)));
            }
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Waits of 1 µs fit into the budget, and the best is all of them; of waits of 20 µs hardly
    /// any fit, and the budget is as good as the best.
    #[test]
    fn a_gap_is_to_the_waits_of_the_machine_of_its_round() {
        let load = Load::Every100us;
        let mut measured = Measured::default();
        for round in 0..6 {
            for (policy, caught, wake_us) in [
                (Policy::Never, 0.0, 6.0),
                (Policy::Poll, 100.0, 2.0),
                (Policy::Budget, 50.0, 4.0),
            ] {
                let turn = Turn {
                    halts: 100.0,
                    caught,
                    wake_us: Some(wake_us),
                    ..Turn::default()
                };
                let turns = measured.turns.entry((load, policy)).or_default();
                turns.insert(round, turn);
            }
            let wait_ns = if round % 2 == 0 { 1_000 } else { 20_000 };
            let kept = json!({"busy_ns": vec![200_000; 200], "wait_ns": vec![wait_ns; 200]});
            measured.keep_waits(load, round, &kept);
        }
        let gaps = measured.gaps(load, simulate::best);
        assert_eq!(gaps, [100.0, 0.0, 100.0, 0.0, 100.0, 0.0]);
        let short = json!({"busy_ns": [1], "wait_ns": [1]});
        measured.keep_waits(load, 5, &short);
        assert_eq!(measured.gaps(load, simulate::best).len(), 5);
    }

    #[test]
    fn a_budget_on_a_busy_host_is_not_judged() {
        let mut measured = Measured::default();
        let mut put = |arm: &str, waited| measured.data.samples.put(WAITING, arm, waited);
        put("budget.idle", 2.9);
        put("poll.bursts", 50.0);
        assert_eq!(measured.waited_pct(), Some(2.9));
        measured.data.samples.put(WAITING, "budget.bursts", 35.2);
        assert_eq!(measured.waited_pct(), Some(35.2));
    }
}
