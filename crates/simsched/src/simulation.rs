//! Events in simulated time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tare_stats::SplitMix64;

use super::cpu::{Bandwidth, Cpu};
use super::{Application, Group, MS, PERIOD_NS, SchedulerStats};

/// How long after bandwidth was given back CPUs that wait for some get it
/// (`cfs_bandwidth_slack_period`).
const SLACK_NS: u64 = 5 * MS;
/// The base slice of one CPU, which grows with the logarithm of up to eight
/// (`normalized_sysctl_sched_base_slice`, `get_update_sysctl_factor`).
const BASE_SLICE_NS: u64 = 750_000;

/// What happens. Of two at one time the first that was planned comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A thread has waited.
    Wake(usize),
    /// A CPU's thread stops.
    Stop(usize),
    /// The quota's next period.
    Period,
    /// CPUs may take what others gave back.
    Slack,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    /// CPU time until its turn ends, ns.
    left_ns: u64,
    /// How long it waits then, ns.
    wait_ns: u64,
    /// Where it ran last, or began.
    cpu: usize,
}

struct Simulation<'a> {
    group: &'a Group,
    /// CPU time and wait of the turns that no thread has taken, the next one last, ns.
    turns: Vec<(u64, u64)>,
    /// Turns that have not ended.
    unfinished: usize,
    threads: Vec<Thread>,
    cpus: Vec<Cpu>,
    bandwidth: Bandwidth,
    slice_ns: u64,
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    planned: u64,
    slack_is_planned: bool,
    outcome: SchedulerStats,
}

/// Runs an application in a group. The work of the turns depends on the seed and the
/// application alone, so that two groups can be compared by it.
pub fn simulate(application: &Application, group: &Group, seed: u64) -> SchedulerStats {
    let mut simulation = Simulation::new(application, group, seed);
    while simulation.unfinished > 0 {
        let Some(Reverse((at_ns, _, event))) = simulation.events.pop() else {
            break;
        };
        simulation.now_ns = at_ns;
        // 584 years: the sum has no more room, and nothing would go on.
        if at_ns == u64::MAX {
            break;
        }
        simulation.happen(event);
    }
    simulation.finish()
}

/// Exponentially distributed with this mean, rounded, and at least `least`.
fn drawn(dice: &mut SplitMix64, mean_ns: f64, least: u64) -> u64 {
    // In (0, 1]: the logarithm of 0 has no value.
    let uniform = (dice.next_u64() >> 11) as f64 + 1.0;
    let uniform = uniform / (1_u64 << 53) as f64;
    let ns = -uniform.ln() * mean_ns.max(0.0);
    // `as` saturates.
    (ns.round() as u64).max(least)
}

/// 0.75 ms on one CPU, 3 ms on eight and more.
fn base_slice_ns(cpus: u32) -> u64 {
    BASE_SLICE_NS * u64::from(1 + cpus.clamp(1, 8).ilog2())
}

impl<'a> Simulation<'a> {
    fn new(application: &Application, group: &'a Group, seed: u64) -> Self {
        let mut dice = SplitMix64::new(seed);
        let turn = |_| {
            let work = drawn(&mut dice, application.turn_ns, 1);
            (work, drawn(&mut dice, application.wait_ns, 0))
        };
        let turns: Vec<(u64, u64)> = (0..application.turns).map(turn).collect();
        let cpus = group.cpus.max(1) as usize;
        let thread = |index| Thread {
            cpu: index % cpus,
            ..Thread::default()
        };
        let threads: Vec<Thread> = (0..application.threads.max(1) as usize)
            .map(thread)
            .collect();
        let mut simulation = Self {
            group,
            unfinished: turns.len(),
            turns,
            cpus: vec![Cpu::default(); cpus],
            bandwidth: Bandwidth::new(group.quota_cpus),
            slice_ns: base_slice_ns(group.cpus),
            now_ns: 0,
            events: BinaryHeap::new(),
            planned: 0,
            slack_is_planned: false,
            outcome: SchedulerStats::default(),
            threads,
        };
        for thread in 0..simulation.threads.len() {
            simulation.plan(0, Event::Wake(thread));
        }
        if simulation.bandwidth.is_limited() {
            simulation.plan(PERIOD_NS, Event::Period);
        }
        simulation
    }

    fn plan(&mut self, in_ns: u64, event: Event) {
        let at_ns = self.now_ns.saturating_add(in_ns);
        self.events.push(Reverse((at_ns, self.planned, event)));
        self.planned += 1;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(thread) => self.wake(thread),
            Event::Stop(cpu) => self.stop(cpu),
            Event::Period => {
                self.bandwidth.refill();
                self.plan(PERIOD_NS, Event::Period);
                self.release();
            }
            Event::Slack => {
                self.slack_is_planned = false;
                self.release();
            }
        }
    }

    /// A thread takes its next turn; without one it has ended.
    fn wake(&mut self, thread: usize) {
        let Some((work, wait)) = self.turns.pop() else {
            return;
        };
        let of = &mut self.threads[thread];
        (of.left_ns, of.wait_ns) = (work, wait);
        let (last, count) = (of.cpu, self.cpus.len());
        let mut near = (0..count).map(|step| (last + step) % count);
        let cpu = near.find(|cpu| self.cpus[*cpu].is_idle()).unwrap_or(last);
        self.cpus[cpu].queue.push_back(thread);
        if self.cpus[cpu].running.is_none() {
            self.dispatch(cpu);
        }
    }

    /// Begins with the next thread of a CPU that runs none.
    fn dispatch(&mut self, cpu: usize) {
        if self.cpus[cpu].throttled_since.is_some() {
            return;
        }
        if self.cpus[cpu].queue.is_empty() {
            self.pull(cpu);
        }
        if self.cpus[cpu].queue.is_empty() {
            if self.bandwidth.give_back(&mut self.cpus[cpu]) && !self.slack_is_planned {
                self.slack_is_planned = true;
                self.plan(SLACK_NS, Event::Slack);
            }
            return;
        }
        let Some(bandwidth_ns) = self.bandwidth.take(&mut self.cpus[cpu]) else {
            self.cpus[cpu].throttled_since = Some(self.now_ns);
            return;
        };
        let Some(thread) = self.cpus[cpu].queue.pop_front() else {
            return;
        };
        let of = &mut self.threads[thread];
        if self.cpus[cpu].last != Some(thread) {
            of.left_ns = of.left_ns.saturating_add(self.group.switch_ns as u64);
            self.outcome.switches += 1;
        }
        if of.cpu != cpu {
            of.left_ns = of.left_ns.saturating_add(self.group.migration_ns as u64);
            of.cpu = cpu;
            self.outcome.migrations += 1;
        }
        let run_ns = of.left_ns.min(self.slice_ns).min(bandwidth_ns);
        self.cpus[cpu].last = Some(thread);
        self.cpus[cpu].running = Some((thread, self.now_ns));
        self.plan(run_ns, Event::Stop(cpu));
    }

    /// Pulls the thread that waits longest in the longest queue of a CPU that is not throttled.
    fn pull(&mut self, cpu: usize) {
        let busy = self.cpus.iter_mut();
        let busy = busy.filter(|other| other.throttled_since.is_none());
        let longest = busy.max_by_key(|other| other.queue.len());
        let thread = longest.and_then(|other| other.queue.pop_front());
        self.cpus[cpu].queue.extend(thread);
    }

    fn stop(&mut self, cpu: usize) {
        let Some((thread, since_ns)) = self.cpus[cpu].running.take() else {
            return;
        };
        let ran_ns = self.now_ns - since_ns;
        self.bandwidth.used(&mut self.cpus[cpu], ran_ns);
        self.outcome.on_cpu_ns += ran_ns;
        let of = &mut self.threads[thread];
        of.left_ns -= ran_ns;
        if of.left_ns > 0 {
            self.cpus[cpu].queue.push_back(thread);
        } else {
            let wait_ns = of.wait_ns;
            self.unfinished -= 1;
            self.plan(wait_ns, Event::Wake(thread));
        }
        self.dispatch(cpu);
    }

    /// CPUs that are throttled go on, as far as the pool reaches.
    fn release(&mut self) {
        for cpu in 0..self.cpus.len() {
            if !self.bandwidth.has_some() {
                return;
            }
            if let Some(since_ns) = self.cpus[cpu].throttled_since.take() {
                self.outcome.throttled_ns += self.now_ns - since_ns;
                self.dispatch(cpu);
            }
        }
    }

    fn finish(mut self) -> SchedulerStats {
        let throttled = self.cpus.iter().filter_map(|cpu| cpu.throttled_since);
        self.outcome.throttled_ns += throttled.map(|since| self.now_ns - since).sum::<u64>();
        self.outcome.time_ns = self.now_ns;
        self.outcome
    }
}
