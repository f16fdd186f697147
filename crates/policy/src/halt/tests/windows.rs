//! The budget over every stretch of ten seconds, also where the load changes to
//! the rule's disadvantage.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Over any stretch of this length the budget is kept.
const KEPT_NS: u64 = 10_000 * MS;

/// A rule whose polls are kept.
struct Metered {
    rule: Governed,
    /// When each halt ended, and how long it was polled for.
    polls: Vec<(u64, u64)>,
}

impl Rule for Metered {
    fn window_ns(&self) -> u64 {
        Rule::window_ns(&self.rule)
    }

    fn halted(&mut self, halt: Halt, polled_ns: u64, now_ns: u64) {
        self.polls.push((now_ns, polled_ns));
        self.rule.halted(halt, polled_ns, now_ns);
    }
}

/// The most that was polled in any stretch of [`KEPT_NS`], ns.
fn most_polled_ns(percent: u16, halts: impl IntoIterator<Item = Halt>) -> u64 {
    let mut metered = Metered {
        rule: Governed::new(budget(percent), COSTS),
        polls: Vec::new(),
    };
    replay(&mut metered, halts);
    most_in_kept(&metered.polls)
}

/// The largest sum of polls, with the times at which they ended, in [`KEPT_NS`].
fn most_in_kept(polls: &[(u64, u64)]) -> u64 {
    let (mut sum, mut most, mut first) = (0, 0, 0);
    for (now_ns, polled_ns) in polls {
        sum += polled_ns;
        while polls[first].0 + KEPT_NS <= *now_ns {
            sum -= polls[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

/// A machine of several vCPUs with one kind of halt each, on a CPU of its own each.
struct Crowd {
    budget: Budget,
    vcpus: Vec<(GrowShrink, Halt)>,
    ticks: super::replay::Ticks,
    counted: Reading,
    look_at_cpu_ns: u64,
    polls: Vec<(u64, u64)>,
}

impl Crowd {
    fn new(percent: u16, halts: &[Halt]) -> Self {
        Self {
            budget: budget(percent),
            vcpus: halts.iter().map(|h| (GrowShrink::new(0), *h)).collect(),
            ticks: super::replay::Ticks::default(),
            counted: Reading::default(),
            look_at_cpu_ns: 0,
            polls: Vec::new(),
        }
    }

    /// Runs for this time, and returns the most that was polled in [`KEPT_NS`].
    fn most_polled_ns(mut self, ns: u64) -> u64 {
        let mut ends: std::collections::BTreeSet<(u64, usize)> = (0..self.vcpus.len())
            .map(|vcpu| (self.length_ns(vcpu) + 7_001 * vcpu as u64, vcpu))
            .collect();
        while let Some((now_ns, vcpu)) = ends.pop_first().filter(|(now_ns, _)| *now_ns < ns) {
            self.halted(vcpu, now_ns);
            ends.insert((now_ns + self.length_ns(vcpu), vcpu));
        }
        most_in_kept(&self.polls)
    }

    fn length_ns(&self, vcpu: usize) -> u64 {
        self.vcpus[vcpu].1.busy_ns + self.vcpus[vcpu].1.wait_ns
    }

    fn halted(&mut self, vcpu: usize, now_ns: u64) {
        let (kvm, halt) = &mut self.vcpus[vcpu];
        let began_ns = now_ns - halt.busy_ns - halt.wait_ns;
        let window_ns = kvm.window_ns();
        let polled_ns = halt.wait_ns.min(window_ns);
        let counted = &mut self.counted;
        counted.now_ns = now_ns;
        counted.run_ns += halt.busy_ns + polled_ns;
        if window_ns > 0 && halt.wait_ns <= window_ns {
            counted.caught[bucket_of(polled_ns)] += 1;
            counted.caught_ns += polled_ns;
        } else {
            counted.waited[bucket_of(halt.wait_ns - polled_ns)] += 1;
            counted.run_ns += COSTS.scheduled_ns;
            counted.missed += u64::from(window_ns > 0);
            counted.missed_ns += polled_ns;
        }
        kvm.halted(halt.wait_ns);
        let ran_until_ns = began_ns + halt.busy_ns + polled_ns;
        self.polls.push((now_ns, polled_ns));
        let is_met = self.ticks.meet(began_ns, ran_until_ns);
        if is_met && self.counted.run_ns >= self.look_at_cpu_ns {
            let decision = self.budget.look(&self.counted);
            self.look_at_cpu_ns = self.counted.run_ns + decision.look_after_cpu_ns;
            for (kvm, _) in &mut self.vcpus {
                kvm.set_longest_ns(decision.window_ns);
            }
        }
    }
}

#[test]
fn ten_seconds_of_8_and_16_vcpus_keep_the_budget() {
    for count in [1, 2, 4, 8, 16] {
        for wait_us in [30, 60, 90, 200] {
            let halts = std::vec![halt(40 * US, wait_us * US); count];
            let most = Crowd::new(1, &halts).most_polled_ns(40_000 * MS);
            assert!(most <= KEPT_NS / 100, "{count}, {wait_us} us: {most}");
            assert!(most >= KEPT_NS / 500, "{count}, {wait_us} us: {most}");
        }
    }
}

/// `halts` again and again, for so long.
fn during(ns: u64, halts: &[Halt]) -> Vec<Halt> {
    let mut left = ns;
    let endless = halts.iter().copied().cycle();
    let within = endless.take_while(|halt| {
        let length = halt.busy_ns + halt.wait_ns;
        let goes_on = left > 0;
        left = left.saturating_sub(length);
        goes_on
    });
    within.collect()
}

#[test]
fn any_ten_seconds_of_a_steady_load_keep_the_budget() {
    for wait_us in [5, 10, 30, 60, 90, 200] {
        for percent in [1, 5, 20] {
            let load = during(20_000 * MS, &[halt(40 * US, wait_us * US)]);
            let most = most_polled_ns(percent, load);
            let allowed = KEPT_NS / 100 * u64::from(percent);
            assert!(most <= allowed, "{wait_us} us, {percent} %: {most}");
            // And it is used, where polling is what it could be used for.
            let wanted = KEPT_NS / (40 + wait_us) * wait_us;
            assert!(
                most >= allowed.min(wanted) / 4 * 3,
                "{wait_us} us, {percent} %: {most}"
            );
        }
    }
}

#[test]
fn a_load_that_comes_back_whenever_budget_was_saved_gets_no_more() {
    // The rule has saved all that it may, learns the short waits, and meets long
    // ones as soon as it polls for them.
    for (good_ms, bad_ms) in [(1, 3), (3, 8), (10, 30), (30, 5), (100, 300), (700, 400)] {
        let mut load = Vec::new();
        for _ in 0..20_000 / (good_ms + bad_ms) {
            load.extend(during(good_ms * MS, &[halt(10 * US, 60 * US)]));
            load.extend(during(bad_ms * MS, &[halt(10 * US, 290 * US)]));
        }
        let most = most_polled_ns(1, load);
        assert!(most <= KEPT_NS / 100, "{good_ms}, {bad_ms}: {most}");
    }
}

fn phases() -> impl Strategy<Value = Vec<Halt>> {
    let wait = prop_oneof![
        (1u64..30).prop_map(|us| us * US),
        (20u64..300).prop_map(|us| us * US),
        (1u64..20).prop_map(|ms| ms * MS),
    ];
    let phase = (prop::collection::vec((5u64..200, wait), 1..6), 1u64..2000);
    prop::collection::vec(phase, 1..8).prop_map(|phases| {
        let phases = phases.into_iter().flat_map(|(pattern, ms)| {
            let halts: Vec<Halt> = pattern
                .into_iter()
                .map(|(busy_us, wait_ns)| halt(busy_us * US, wait_ns))
                .collect();
            during(ms * MS, &halts)
        });
        let once: Vec<Halt> = phases.collect();
        during(12_000 * MS, &once)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_ten_seconds_keep_the_budget_whatever_the_load(
        halts in phases(),
        percent in 1u16..60,
    ) {
        let most = most_polled_ns(percent, halts);
        let allowed = KEPT_NS / 100 * u64::from(percent);
        prop_assert!(most <= allowed, "{most} of {allowed}");
    }
}
