//! Recorded waits through a rule: what it would have polled and caught.
//!
//! The replay is open-loop: a wait is as long as it was recorded, whatever was
//! saved before it. What a wake-up costs comes from measurement ([`Costs`]).

use super::{Budget, GrowShrink, Reading, bucket_of};

/// A recorded halt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halt {
    /// Time since the last halt ended.
    pub busy_ns: u64,
    /// From the halt to the wake-up.
    pub wait_ns: u64,
}

/// Latency of a wake-up, and the CPU time of one that was scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Of a vCPU that was polled for.
    pub caught_ns: u64,
    /// Of one that was scheduled out.
    pub scheduled_ns: u64,
}

/// What a rule would have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Halts.
    pub halts: u64,
    /// Of them, those whose wake-up was polled for.
    pub caught: u64,
    /// Time spent polling.
    pub polled_ns: u64,
    /// Time that passed.
    pub elapsed_ns: u64,
}

impl ReplayCounts {
    /// Mean latency of a wake-up; 0 without any.
    pub fn mean_latency_ns(&self, costs: Costs) -> u64 {
        let scheduled = u128::from(self.halts - self.caught);
        let sum = u128::from(self.caught) * u128::from(costs.caught_ns)
            + scheduled * u128::from(costs.scheduled_ns);
        u64::try_from(sum / u128::from(self.halts.max(1))).unwrap_or(u64::MAX)
    }

    /// Share of a CPU spent polling, in millionths.
    pub fn polled_ppm(&self) -> u64 {
        let ppm = u128::from(self.polled_ns) * 1_000_000 / u128::from(self.elapsed_ns.max(1));
        u64::try_from(ppm).unwrap_or(u64::MAX)
    }
}

/// A rule under test.
pub trait Rule {
    /// How long the next halt is polled for.
    fn window_ns(&self) -> u64;

    /// A halt has ended, at `now_ns`.
    fn halted(&mut self, halt: Halt, polled_ns: u64, now_ns: u64);
}

/// A fixed window; 0 never polls, `u64::MAX` always does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(pub u64);

impl Rule for Window {
    fn window_ns(&self) -> u64 {
        self.0
    }

    fn halted(&mut self, _: Halt, _: u64, _: u64) {}
}

impl Rule for GrowShrink {
    fn window_ns(&self) -> u64 {
        Self::window_ns(self)
    }

    fn halted(&mut self, halt: Halt, _: u64, _: u64) {
        Self::halted(self, halt.wait_ns);
    }
}

/// A host's tick (250 Hz): a timer on CPU time expires when one meets a thread
/// that runs.
pub(super) const TICK_NS: u64 = 4_000_000;

/// When the host's ticks come. One in each 4 ms, here at an arbitrary time of
/// them, since recorded loads of round numbers would run in step with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticks {
    number: u64,
}

impl Ticks {
    /// Whether one comes in this stretch of time; stretches only go forward.
    pub(super) fn meet(&mut self, from_ns: u64, until_ns: u64) -> bool {
        self.number = self.number.max((from_ns / TICK_NS).saturating_sub(1));
        while self.next_ns() < from_ns {
            self.number += 1;
        }
        self.next_ns() < until_ns
    }

    fn next_ns(&self) -> u64 {
        let mixed = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (self.number.saturating_mul(TICK_NS)).saturating_add(mixed % TICK_NS)
    }
}

/// [`Budget`] as it acts: through KVM, whose own rule chooses below the longest
/// window that it is given, and looking after CPU time, by the host's tick.
#[derive(Clone, Debug)]
pub struct Governed {
    budget: Budget,
    kvm: GrowShrink,
    ticks: Ticks,
    counted: Reading,
    look_at_cpu_ns: u64,
    /// When a look by the clock is due.
    look_at_ns: Option<u64>,
    /// CPU time of a wake-up that was scheduled.
    scheduled_ns: u64,
    looks: u64,
    looks_by_clock: u64,
}

impl Governed {
    /// A rule from its begin.
    pub fn new(mut budget: Budget, costs: Costs) -> Self {
        let counted = Reading::default();
        let first = budget.look(&counted);
        Self {
            budget,
            kvm: GrowShrink::new(first.limit_ns),
            ticks: Ticks::default(),
            counted,
            look_at_cpu_ns: first.look_after_cpu_ns,
            look_at_ns: first.look_after_ns,
            scheduled_ns: costs.scheduled_ns,
            looks: 0,
            looks_by_clock: 0,
        }
    }

    /// Looks, and returns the new limit.
    fn look(&mut self) -> u64 {
        let decision = self.budget.look(&self.counted);
        self.look_at_cpu_ns = self.counted.run_ns + decision.look_after_cpu_ns;
        let after_ns = decision.look_after_ns;
        self.look_at_ns = after_ns.map(|after_ns| self.counted.now_ns + after_ns);
        self.looks += 1;
        decision.limit_ns
    }

    /// Looks by the clock until `now_ns`, and returns the limit after them.
    fn looks_until(&mut self, now_ns: u64, mut limit_ns: u64) -> u64 {
        while let Some(at_ns) = self.look_at_ns.filter(|at_ns| *at_ns < now_ns) {
            self.counted.now_ns = self.counted.now_ns.max(at_ns);
            self.looks_by_clock += 1;
            limit_ns = self.look();
        }
        limit_ns
    }

    /// How often it looked.
    pub const fn looks(&self) -> u64 {
        self.looks
    }

    /// How many of them woke the machine's main thread by the clock.
    pub const fn looks_by_clock(&self) -> u64 {
        self.looks_by_clock
    }
}

impl Rule for Governed {
    fn window_ns(&self) -> u64 {
        self.kvm.window_ns()
    }

    fn halted(&mut self, halt: Halt, polled_ns: u64, now_ns: u64) {
        let polled = self.kvm.window_ns() > 0;
        let began_ns = self.counted.now_ns;
        let ran_until_ns = now_ns.saturating_sub(halt.wait_ns - polled_ns);
        let met_by_tick = self.ticks.meet(began_ns, ran_until_ns);
        let limit_ns = self.looks_until(now_ns, self.kvm.longest_ns());
        let counted = &mut self.counted;
        counted.now_ns = now_ns;
        counted.run_ns += halt.busy_ns + polled_ns;
        if polled && halt.wait_ns <= polled_ns {
            counted.caught[bucket_of(polled_ns)] += 1;
            counted.caught_ns += polled_ns;
        } else {
            counted.waited[bucket_of(halt.wait_ns - polled_ns)] += 1;
            counted.run_ns += self.scheduled_ns;
            counted.missed += u64::from(polled);
            counted.missed_ns += polled_ns;
        }
        self.kvm.halted_with(halt.wait_ns, limit_ns);
        if met_by_tick && self.counted.run_ns >= self.look_at_cpu_ns {
            let limit_ns = self.look();
            self.kvm.set_longest_ns(limit_ns);
        }
    }
}

/// Runs `halts` through `rule`.
pub fn replay(rule: &mut impl Rule, halts: impl IntoIterator<Item = Halt>) -> ReplayCounts {
    let mut outcome = ReplayCounts::default();
    for halt in halts {
        let window_ns = rule.window_ns();
        let polled_ns = halt.wait_ns.min(window_ns);
        outcome.halts += 1;
        outcome.caught += u64::from(window_ns > 0 && halt.wait_ns <= window_ns);
        outcome.polled_ns = outcome.polled_ns.saturating_add(polled_ns);
        outcome.elapsed_ns = outcome
            .elapsed_ns
            .saturating_add(halt.busy_ns)
            .saturating_add(halt.wait_ns);
        rule.halted(halt, polled_ns, outcome.elapsed_ns);
    }
    outcome
}

/// The best possible: who knows each wait beforehand polls for the shortest
/// ones alone. How many of `sorted_waits_ns` (ascending) can be caught with
/// `allowed_ns` of polling, and what that takes.
pub fn most_caught(sorted_waits_ns: &[u64], allowed_ns: u64) -> (u64, u64) {
    let mut spent_ns = 0u64;
    let mut caught = 0;
    for wait_ns in sorted_waits_ns {
        match spent_ns.checked_add(*wait_ns) {
            Some(sum) if sum <= allowed_ns => (spent_ns, caught) = (sum, caught + 1),
            _ => break,
        }
    }
    (caught, spent_ns)
}
