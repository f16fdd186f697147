//! What was measured of each policy under each load, and the figures.

use std::collections::BTreeMap;

use serde_json::Value;
use tare_control::stats::{Stats, ThreadStats, VcpuStats};
use tare_policy::halt::{Costs, Halt};

use super::arms::{BUDGET, Load, Policy};
use super::simulate::{self, Point};
use super::wakeups::Wakeups;
use crate::data::Data;
use crate::experiments::guest_bench::numbers;
use crate::figure::Figure;
use crate::metric::{Metric, metrics};

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
    /// Wake-ups, us.
    wakes_us: Vec<f64>,
}

impl Turn {
    /// What happened between two readings.
    pub(super) fn between(begin: &Stats, end: &Stats, wakes_us: Vec<f64>) -> Self {
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
            wakes_us,
        }
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

/// All turns.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) data: Data,
    wakes_us: BTreeMap<(Load, Policy), Vec<f64>>,
    halts: BTreeMap<(Load, Policy), (f64, f64)>,
    waits: BTreeMap<Load, Vec<Halt>>,
    /// Why waits come from histograms, if they do.
    pub(super) unrecorded: Option<String>,
}

impl Measured {
    pub(super) fn add(&mut self, policy: Policy, load: Load, end: &Stats, turn: Turn) {
        self.data.kvm = end.kvm;
        let samples = &mut self.data.samples;
        for (metric, ns) in [
            (CPU, turn.cpu_ns),
            (POLLED, turn.polled_ns),
            (WAITING, turn.waiting_ns),
        ] {
            let share = ns / turn.elapsed_ns * 100.0;
            samples.put(metric, &load.of(policy), share);
        }
        if load == Load::Idle {
            samples.put(IDLE_HALTS, policy.name(), turn.halts);
            samples.put(IDLE_LOOKS, policy.name(), turn.looks);
        }
        let key = (load, policy);
        self.wakes_us.entry(key).or_default().extend(turn.wakes_us);
        let halts = self.halts.entry(key).or_default();
        *halts = (halts.0 + turn.halts, halts.1 + turn.caught);
    }

    /// Keeps the waits of a turn, from their line of the record.
    pub(super) fn keep_waits(&mut self, load: Load, kept: &Value) {
        let ns = |name| numbers(kept, name).map(|ns| ns as u64);
        let halts = ns("busy_ns")
            .zip(ns("wait_ns"))
            .map(|(busy_ns, wait_ns)| Halt { busy_ns, wait_ns });
        self.waits.insert(load, halts.collect());
        if self.unrecorded.is_none() {
            let why = kept.get("unrecorded").and_then(Value::as_str);
            self.unrecorded = why.map(str::to_owned);
        }
    }

    pub(super) fn has_waits(&self, load: Load) -> bool {
        self.waits.contains_key(&load)
    }

    /// Waits of a load without polling.
    pub(super) fn waits(&self, load: Load) -> &[Halt] {
        self.waits.get(&load).map_or(&[], Vec::as_slice)
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

    /// Share of wake-ups that were polled for; `None` without halts.
    pub(super) fn caught(&self, load: Load, policy: Policy) -> Option<f64> {
        let (halts, caught) = *self.halts.get(&(load, policy))?;
        (halts > 0.0).then_some(caught / halts)
    }

    fn p50_us(&self, load: Load, policy: Policy) -> Option<f64> {
        let wakes = self.wakes_us.get(&(load, policy))?;
        WAKE.median("", wakes).map(|figure| figure.value)
    }

    /// What a wake-up takes that was polled for, and one that was not: medians of
    /// the arm that polls, where it caught most, and of the one that never does.
    pub(super) fn costs(&self) -> Option<Costs> {
        let interrupts = [Load::Every100us, Load::Bursts, Load::Every1ms];
        interrupts.into_iter().find_map(|load| {
            let caught = self.caught(load, Policy::Poll)?;
            let fast = self.p50_us(load, Policy::Poll)?;
            let slow = self.p50_us(load, Policy::Never)?;
            (caught > MOSTLY && fast < slow).then_some(Costs {
                caught_ns: (fast * 1e3) as u64,
                scheduled_ns: (slow * 1e3) as u64,
            })
        })
    }

    /// How far the measured budget's mean latency lies above `best` of the same
    /// waits, percent; `None` where there were too few to tell.
    fn gap(&self, load: Load, best: Best) -> Option<f64> {
        let costs = self.costs()?;
        let caught = self.caught(load, Policy::Budget)?;
        let waits = self.waits(load);
        let best_ns = best(waits, costs, BUDGET).latency_us * 1e3;
        let (fast, slow) = (costs.caught_ns as f64, costs.scheduled_ns as f64);
        let ours_ns = caught * fast + (1.0 - caught) * slow;
        let is_known = waits.len() >= MIN_WAITS && best_ns > 0.0;
        is_known.then_some(((ours_ns - best_ns) / best_ns * 100.0).max(0.0))
    }

    /// By how much an idle machine under a budget exceeds one that never polls.
    fn extra(&self, metric: Metric, of: Metric, load: &str) -> Option<Figure> {
        let [budget, never] = [Policy::Budget, Policy::Never]
            .map(|policy| self.middle(of, &format!("{}{load}", policy.name())));
        metric.median("", &[(budget?.value - never?.value).max(0.0)])
    }

    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures = self.data.samples.figures();
        let place = |f: &Figure| {
            let mut order = [CPU.name, POLLED.name, WAITING.name, "idle_"].iter();
            order.position(|name| f.name.starts_with(name))
        };
        figures.sort_by_key(place);
        figures.extend(self.extra(IDLE_EXTRA, CPU, ".idle"));
        figures.extend(self.extra(IDLE_EXTRA_HALTS, IDLE_HALTS, ""));
        for ((load, policy), wakes) in &self.wakes_us {
            figures.extend(WAKE.median(&load.of(*policy), wakes));
        }
        for (load, policy) in self.halts.keys() {
            let caught = self.caught(*load, *policy);
            figures.extend(caught.and_then(|it| CAUGHT.median(&load.of(*policy), &[it])));
        }
        for load in Load::ALL {
            for (metric, best) in BESTS {
                let gap = self.gap(load, best);
                figures.extend(gap.and_then(|gap| metric.median(load.name(), &[gap])));
            }
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
