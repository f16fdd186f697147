//! What was measured of each policy under each load, and the figures.

use std::collections::BTreeMap;

use tare_control::stats::{Kvm, Stats, ThreadStats, VcpuStats};
use tare_policy::halt::{Costs, Halt};

use super::arms::{BUDGET, Load, Policy};
use super::simulate;
use super::simulate::Point;
use crate::figure::{Figure, Samples, median};

/// A share of caught wake-ups above which an arm's median is that of caught
/// ones.
const MOSTLY: f64 = 0.6;
/// Fewer recorded waits tell nothing of a load.
const MIN_WAITS: usize = 100;

/// The best that recorded waits allow.
type Best = fn(&[Halt], Costs, u64) -> Point;

/// What a budget's latency is compared with.
const BESTS: [(&str, Best); 2] = [
    ("frontier_gap_pct", simulate::best),
    ("reachable_gap_pct", simulate::reachable),
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

/// All turns.
#[derive(Debug)]
pub(super) struct Data {
    kvm: Kvm,
    samples: Samples,
    wakes_us: BTreeMap<(Load, Policy), Vec<f64>>,
    halts: BTreeMap<(Load, Policy), (f64, f64)>,
    waits: BTreeMap<Load, Vec<Halt>>,
    missing: BTreeMap<Policy, String>,
    unrecorded: Option<String>,
}

impl Default for Data {
    fn default() -> Self {
        Self {
            kvm: Kvm::None,
            samples: Samples::default(),
            wakes_us: BTreeMap::new(),
            halts: BTreeMap::new(),
            waits: BTreeMap::new(),
            missing: BTreeMap::new(),
            unrecorded: None,
        }
    }
}

impl Data {
    pub(super) fn add(&mut self, policy: Policy, load: Load, end: &Stats, turn: Turn) {
        self.kvm = end.kvm;
        let place = format!("{}.{}", policy.name(), load.name());
        let mut share = |what: &str, ns: f64| {
            let name = format!("{what}.{place}");
            self.samples.add(&name, "%", ns / turn.elapsed_ns * 100.0);
        };
        share("cpu_share_pct", turn.cpu_ns);
        share("poll_share_pct", turn.polled_ns);
        share("waiting_pct", turn.waiting_ns);
        if load == Load::Idle {
            let name = policy.name();
            self.samples
                .add(&format!("idle_halts.{name}"), "1", turn.halts);
            self.samples
                .add(&format!("idle_looks.{name}"), "1", turn.looks);
        }
        let key = (load, policy);
        self.wakes_us.entry(key).or_default().extend(turn.wakes_us);
        let halts = self.halts.entry(key).or_default();
        *halts = (halts.0 + turn.halts, halts.1 + turn.caught);
    }

    /// Keeps the waits of a turn: as recorded, else as KVM's histogram has them.
    pub(super) fn keep_waits(
        &mut self,
        load: Load,
        recorded: Option<Vec<Halt>>,
        begin: &Stats,
        end: &Stats,
    ) {
        let waits = recorded.filter(|waits| !waits.is_empty());
        let waits = waits.unwrap_or_else(|| {
            let of = |stats: &Stats| {
                let vcpu = stats.vcpus.first();
                vcpu.and_then(|v| v.histograms.get("halt_wait_hist").cloned())
            };
            let then = of(begin).unwrap_or_default();
            let now = of(end).unwrap_or_default();
            let counts: Vec<u64> = now
                .iter()
                .enumerate()
                .map(|(n, count)| count.saturating_sub(then.get(n).copied().unwrap_or(0)))
                .collect();
            simulate::of_histogram(&counts, end.uptime_ns.saturating_sub(begin.uptime_ns))
        });
        self.waits.insert(load, waits);
    }

    pub(super) fn has_waits(&self, load: Load) -> bool {
        self.waits.contains_key(&load)
    }

    /// Waits of a load without polling.
    pub(super) fn waits(&self, load: Load) -> &[Halt] {
        self.waits.get(&load).map_or(&[], Vec::as_slice)
    }

    pub(super) fn unrecorded(&mut self, why: Option<String>) {
        if self.unrecorded.is_none() {
            self.unrecorded = why;
        }
    }

    /// Why waits come from histograms, if they do.
    pub(super) fn why_unrecorded(&self) -> Option<&str> {
        self.unrecorded.as_deref()
    }

    pub(super) fn missing(&mut self, policy: Policy, why: Option<String>) {
        if let Some(why) = why {
            self.missing.insert(policy, why);
        }
    }

    pub(super) fn is_missing(&self, policy: Policy) -> bool {
        self.missing.contains_key(&policy)
    }

    /// How long a vCPU under a budget was ready and had no CPU, percent of the worst load's
    /// time: KVM does not poll while another task wants the CPU, so a budget that is unspent
    /// there shows nothing.
    pub(super) fn waited_pct(&self) -> Option<f64> {
        let waited = Load::ALL.into_iter().flat_map(|load| {
            let name = format!("waiting_pct.{}.{}", Policy::Budget.name(), load.name());
            let waited = median(&name, "%", self.values(&name));
            waited.map(|figure| figure.value)
        });
        waited.reduce(f64::max)
    }

    /// Policies that are unavailable here, with the reason.
    pub(super) fn not_to_be_had(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let missing = self.missing.iter();
        missing.map(|(policy, why)| (policy.name(), why.as_str()))
    }

    pub(super) const fn kvm(&self) -> Kvm {
        self.kvm
    }

    /// Samples of a figure.
    pub(super) fn values(&self, name: &str) -> &[f64] {
        self.samples.values(name)
    }

    /// Share of wake-ups that were polled for; `None` without halts.
    pub(super) fn caught(&self, load: Load, policy: Policy) -> Option<f64> {
        let (halts, caught) = *self.halts.get(&(load, policy))?;
        (halts > 0.0).then_some(caught / halts)
    }

    fn p50_us(&self, load: Load, policy: Policy) -> Option<f64> {
        let wakes = self.wakes_us.get(&(load, policy))?;
        median("p50", "us", wakes).map(|figure| figure.value)
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
    fn extra(&self, name: &str, unit: &str, of: &str, load: &str) -> Option<Figure> {
        let budget = median("budget", unit, self.values(&format!("{of}.budget{load}")))?;
        let never = median("never", unit, self.values(&format!("{of}.never{load}")))?;
        median(name, unit, &[(budget.value - never.value).max(0.0)])
    }

    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures = self.samples.figures();
        let base = |f: &Figure| {
            let names = ["cpu_share_pct", "poll_share_pct", "waiting_pct", "idle_"];
            names.iter().position(|name| f.name.starts_with(name))
        };
        figures.sort_by_key(base);
        figures.extend(self.extra("idle_extra_pct", "%", "cpu_share_pct", ".idle"));
        figures.extend(self.extra("idle_extra_halts", "1", "idle_halts", ""));
        for ((load, policy), wakes) in &self.wakes_us {
            let place = format!("{}.{}", policy.name(), load.name());
            figures.extend(median(&format!("wake_p50_us.{place}"), "us", wakes));
        }
        for (load, policy) in self.halts.keys() {
            let name = format!("caught_share.{}.{}", policy.name(), load.name());
            let caught = self.caught(*load, *policy);
            figures.extend(caught.and_then(|caught| median(&name, "1", &[caught])));
        }
        for load in Load::ALL {
            for (base, best) in BESTS {
                let name = format!("{base}.{}", load.name());
                let gap = self.gap(load, best);
                figures.extend(gap.and_then(|gap| median(&name, "%", &[gap])));
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
        let mut data = Data::default();
        let mut add = |name: &str, waited| data.samples.add(name, "%", waited);
        add("waiting_pct.budget.idle", 2.9);
        add("waiting_pct.poll.bursts", 50.0);
        assert_eq!(data.waited_pct(), Some(2.9));
        data.samples.add("waiting_pct.budget.bursts", "%", 35.2);
        assert_eq!(data.waited_pct(), Some(35.2));
    }
}
