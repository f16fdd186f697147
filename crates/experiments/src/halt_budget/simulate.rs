//! Recorded waits through every rule, beside the best possible.

use tare_policy::halt::{
    Budget, Costs, Governed, GrowShrink, Halt, ReplayCounts, Settings, Window, most_caught, replay,
};

/// Fixed windows that are drawn, us.
const WINDOWS_US: [u64; 4] = [16, 64, 128, 256];
/// Budgets that are drawn, in 0.01 %.
const BUDGETS: [u16; 3] = [100, 500, 2000];
/// CPU shares at which the best possible is drawn, in 0.01 %.
const FRONTIER: [u64; 13] = [
    1, 3, 10, 30, 100, 200, 500, 1000, 2000, 3000, 5000, 7000, 10_000,
];

/// Most halts that a histogram becomes, and the longest time of a halt, ns: what a record says is
/// bounded, and sums of it are 64 bits long.
const MOST_HALTS: usize = 1 << 20;
const LONGEST_NS: u64 = 1 << 42;

/// A rule, or the best possible, with what it costs and gives.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// What it is.
    pub(super) name: String,
    /// Share of a CPU spent polling, percent.
    pub(super) cpu_pct: f64,
    /// Mean latency of a wake-up, us.
    pub(super) latency_us: f64,
}

impl Point {
    fn of(name: String, outcome: ReplayCounts, costs: Costs) -> Self {
        Self {
            name,
            cpu_pct: outcome.polled_ppm() as f64 / 1e4,
            latency_us: outcome.mean_latency_ns(costs) as f64 / 1e3,
        }
    }
}

/// Every rule on one load.
pub(super) fn rules(halts: &[Halt], costs: Costs) -> Vec<Point> {
    let run = |outcome: ReplayCounts, name: String| Point::of(name, outcome, costs);
    let all = || halts.iter().copied();
    let mut points = vec![
        run(replay(&mut Window(0), all()), "never".to_owned()),
        run(replay(&mut GrowShrink::linux(), all()), "kernel".to_owned()),
        run(replay(&mut Window(u64::MAX), all()), "always".to_owned()),
    ];
    for window_us in WINDOWS_US {
        let outcome = replay(&mut Window(window_us * 1000), all());
        points.push(run(outcome, format!("{window_us} µs")));
    }
    for per_myriad in BUDGETS {
        let budget = Budget::new(Settings { per_myriad });
        let outcome = replay(&mut Governed::new(budget, costs), all());
        points.push(run(outcome, format!("budget {} %", per_myriad / 100)));
    }
    points
}

/// The best possible over shares of a CPU.
pub(super) fn frontier(halts: &[Halt], costs: Costs) -> Vec<Point> {
    let points = FRONTIER.iter().map(|share| best(halts, costs, *share));
    points.collect()
}

/// The best possible within a share of a CPU, in 0.01 %.
pub(super) fn best(halts: &[Halt], costs: Costs, per_myriad: u64) -> Point {
    let elapsed_ns: u64 = halts.iter().map(|halt| halt.busy_ns + halt.wait_ns).sum();
    let mut waits: Vec<u64> = halts.iter().map(|halt| halt.wait_ns).collect();
    waits.sort_unstable();
    let (caught, polled_ns) = most_caught(&waits, elapsed_ns / 10_000 * per_myriad);
    let outcome = ReplayCounts {
        halts: halts.len() as u64,
        caught,
        polled_ns,
        elapsed_ns,
    };
    Point::of("best possible".to_owned(), outcome, costs)
}

/// The best that KVM's own polling can do within a share of a CPU, in 0.01 %,
/// for who knows the waits: the longest window that is best, or turns of two. No
/// monitor can do better with it: the kernel chooses below that window by
/// [`GrowShrink`], and each long wait shortens it.
pub(super) fn reachable(halts: &[Halt], costs: Costs, per_myriad: u64) -> Point {
    let all = || halts.iter().copied();
    let limits = [0, 2, 4, 8, 16, 32, 64, 128, 200, 256];
    let points: Vec<Point> = limits
        .iter()
        .map(|us| replay(&mut GrowShrink::new(us * 1000), all()))
        .map(|outcome| Point::of("best that KVM can do".to_owned(), outcome, costs))
        .collect();
    let allowed_pct = per_myriad as f64 / 100.0;
    let within = points.iter().filter(|point| point.cpu_pct <= allowed_pct);
    let turns = within.flat_map(|cheap| {
        let expensive = points.iter().filter(|p| p.cpu_pct > allowed_pct);
        expensive
            .map(|expensive| between(cheap, expensive, allowed_pct))
            .chain([cheap.clone()])
    });
    turns
        .min_by(|a, b| a.latency_us.total_cmp(&b.latency_us))
        .unwrap_or_else(|| points[0].clone())
}

/// Turns of two windows that cost `cpu_pct` together.
fn between(cheap: &Point, expensive: &Point, cpu_pct: f64) -> Point {
    let part = (cpu_pct - cheap.cpu_pct) / (expensive.cpu_pct - cheap.cpu_pct);
    Point {
        cpu_pct,
        latency_us: cheap.latency_us + part * (expensive.latency_us - cheap.latency_us),
        ..cheap.clone()
    }
}

/// A halt as a record has it.
pub(super) fn recorded(busy_ns: u64, wait_ns: u64) -> Halt {
    Halt {
        busy_ns: busy_ns.min(LONGEST_NS),
        wait_ns: wait_ns.min(LONGEST_NS),
    }
}

/// Halts made from KVM's histogram, where none were recorded: each bucket's
/// middle, spread evenly over the time. Of very many, a part that stands for all.
pub(super) fn of_histogram(counts: &[u64], elapsed_ns: u64) -> Vec<Halt> {
    let middle = |bucket: usize| match bucket {
        0 => 0,
        1 => 1,
        _ => (3u64 << (bucket - 2).min(60)).min(LONGEST_NS),
    };
    let all: u128 = counts.iter().map(|count| u128::from(*count)).sum();
    let part = |count: u64| match all.div_ceil(MOST_HALTS as u128) {
        0 | 1 => count,
        each => (u128::from(count) / each) as u64,
    };
    let waits: Vec<u64> = counts
        .iter()
        .enumerate()
        .flat_map(|(bucket, count)| std::iter::repeat_n(middle(bucket), part(*count) as usize))
        .collect();
    let waited: u64 = waits.iter().sum();
    let busy_ns = part(elapsed_ns).saturating_sub(waited) / (waits.len() as u64).max(1);
    // The order is lost: a stride that shares no factor with the number mixes it.
    let number = waits.len();
    let mixed = (0..number).map(|n| waits[n * 7919 % number]);
    mixed.map(|wait_ns| recorded(busy_ns, wait_ns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        caught_ns: 2000,
        scheduled_ns: 6000,
    };

    fn load() -> Vec<Halt> {
        let waits = [20_000, 20_000, 20_000, 5_000_000];
        let halts = waits.map(|wait_ns| Halt {
            busy_ns: 30_000,
            wait_ns,
        });
        halts.into_iter().cycle().take(4000).collect()
    }

    #[test]
    fn no_rule_lies_below_the_best_possible_for_its_cpu() {
        let halts = load();
        for point in rules(&halts, COSTS) {
            let share = (point.cpu_pct * 100.0).ceil() as u64 + 1;
            let best = best(&halts, COSTS, share);
            assert!(
                point.latency_us >= best.latency_us - 0.001,
                "{point:?} {best:?}"
            );
        }
    }

    #[test]
    fn what_kvm_can_do_loses_a_wake_up_after_each_long_wait() {
        // Of each four halts three are short. After the long one KVM's window has
        // shrunk below them, and one more is missed until it has grown again.
        let reached = reachable(&load(), COSTS, 10_000);
        assert!((reached.latency_us - 4.0).abs() < 0.1, "{reached:?}");
        let best = best(&load(), COSTS, 200);
        assert!((best.latency_us - 3.0).abs() < 0.1, "{best:?}");
        // Half of what the polling costs buys half of what it saves.
        let half = (reached.cpu_pct * 50.0) as u64;
        let halved = reachable(&load(), COSTS, half);
        assert!((halved.latency_us - 5.0).abs() < 0.2, "{halved:?}");
    }

    #[test]
    fn always_is_the_fastest_and_never_the_cheapest() {
        let points = rules(&load(), COSTS);
        let of = |name: &str| points.iter().find(|p| p.name == name).cloned();
        let (never, always) = (of("never"), of("always"));
        assert_eq!(never.map(|p| (p.cpu_pct, p.latency_us)), Some((0.0, 6.0)));
        assert_eq!(always.map(|p| p.latency_us), Some(2.0));
        let frontier = frontier(&load(), COSTS);
        assert!(frontier.is_sorted_by(|a, b| a.latency_us >= b.latency_us));
    }

    #[test]
    fn a_histogram_stands_for_halts_where_none_were_recorded() {
        let mut counts = [0; 32];
        counts[17] = 10;
        counts[20] = 5;
        let halts = of_histogram(&counts, 100_000_000);
        assert_eq!(halts.len(), 15);
        let short = halts.iter().filter(|halt| halt.wait_ns == 98_304);
        assert_eq!(short.count(), 10);
        assert_eq!(of_histogram(&[], 5), []);
    }

    #[test]
    fn a_histogram_of_any_numbers_becomes_few_halts_and_finite_figures() {
        for (counts, shares) in [
            (vec![u64::MAX; 64], [1, 1]),
            (vec![0, u64::MAX, 0, u64::MAX / 2], [2, 1]),
        ] {
            let halts = of_histogram(&counts, u64::MAX);
            assert!(halts.len() <= MOST_HALTS);
            let of = |ns| halts.iter().filter(|halt| halt.wait_ns == ns).count();
            assert!(of(1).abs_diff(shares[0] * of(6) / shares[1]) <= 2);
            assert!(best(&halts, COSTS, 200).latency_us.is_finite());
        }
        // As many as fit are all there, with all of the time.
        let halts = of_histogram(&[0, 1 << 20], (1 << 20) * 8);
        assert_eq!(halts.len(), MOST_HALTS);
        assert!(
            halts
                .iter()
                .all(|halt| (halt.busy_ns, halt.wait_ns) == (7, 1))
        );
    }
}
