//! Against what can be computed, and what must hold for any application and group.

use super::{Application, Group, MS, SchedulerStats, simulate};
use tare_stats::SplitMix64;

const FREE: Group = Group {
    cpus: 1,
    quota_cpus: None,
    switch_ns: 0.0,
    migration_ns: 0.0,
};

fn free(cpus: u32) -> Group {
    Group { cpus, ..FREE }
}

/// Threads that only compute.
fn computing(threads: u32, turns: u32, turn_ns: f64) -> Application {
    Application {
        threads,
        turns,
        turn_ns,
        wait_ns: 0.0,
    }
}

/// CPU time of the turns.
fn work(application: &Application, seed: u64) -> u64 {
    simulate(application, &free(1), seed).on_cpu_ns
}

/// How many thousandths of `expected` a value is off.
fn off_by(value: f64, expected: f64) -> f64 {
    ((value / expected - 1.0) * 1e3).abs()
}

#[test]
fn one_thread_takes_as_long_as_its_turns() {
    let one = computing(1, 500, 40_000.0);
    let outcome = simulate(&one, &free(1), 3);
    assert_eq!(outcome.time_ns, outcome.on_cpu_ns);
    assert_eq!((outcome.switches, outcome.migrations), (1, 0));
    assert!(
        off_by(outcome.time_ns as f64, 500.0 * 40_000.0) < 100.0,
        "{outcome:?}"
    );
}

#[test]
fn cpus_share_the_work_without_a_rest() {
    for (threads, cpus) in [(2, 2), (16, 2), (16, 16), (64, 16)] {
        let application = computing(threads, 20_000, 100_000.0);
        let ideal = work(&application, 1) as f64 / f64::from(cpus);
        let outcome = simulate(&application, &free(cpus), 1);
        assert!(
            off_by(outcome.time_ns as f64, ideal) < 10.0,
            "{threads} on {cpus}: {outcome:?}"
        );
        assert_eq!(outcome.throttled_ns, 0);
    }
}

/// Threads that compute and wait on some CPUs are the machine repairman's model (Kleinrock,
/// Queueing Systems, volume 1, 3.8): with exponential times its throughput is known.
#[test]
fn turns_a_second_are_those_of_the_machine_repairmans_model() {
    for (threads, cpus, turn_ns, wait_ns) in [
        (4, 1, 50_000.0, 100_000.0),
        (12, 2, 80_000.0, 700_000.0),
        (40, 16, 60_000.0, 60_000.0),
        (8, 8, 30_000.0, 90_000.0),
    ] {
        let application = Application {
            threads,
            turns: 200_000,
            turn_ns,
            wait_ns,
        };
        let outcome = simulate(&application, &free(cpus), 9);
        let busy = outcome.on_cpu_ns as f64 / outcome.time_ns as f64;
        let expected = busy_cpus(threads, cpus, turn_ns / wait_ns);
        assert!(
            off_by(busy, expected) < 10.0,
            "{threads} on {cpus}: {busy} {expected}"
        );
    }
}

/// CPUs that are busy at the mean; `load` is a turn's time over a wait's.
fn busy_cpus(threads: u32, cpus: u32, load: f64) -> f64 {
    let mut weights = vec![1.0_f64];
    for ready in 1..=threads {
        let before = weights[ready as usize - 1];
        let arrivals = f64::from(threads - ready + 1) * load;
        weights.push(before * arrivals / f64::from(ready.min(cpus)));
    }
    let all: f64 = weights.iter().sum();
    let busy = |(ready, weight): (usize, &f64)| weight / all * f64::from(cpus.min(ready as u32));
    weights.iter().enumerate().map(busy).sum()
}

#[test]
fn a_quota_gives_its_cpus_of_time_and_no_more() {
    for (threads, cpus, quota) in [(16, 16, 2), (16, 112, 4), (5, 8, 1)] {
        let application = computing(threads, 40_000, 200_000.0);
        let group = Group {
            quota_cpus: Some(quota),
            ..free(cpus)
        };
        let outcome = simulate(&application, &group, 5);
        let rate = outcome.on_cpu_ns as f64 / outcome.time_ns as f64;
        // The last period's is used up before its time has passed.
        assert!(
            (f64::from(quota)..f64::from(quota) * 1.05).contains(&rate),
            "{rate} of {quota}"
        );
        assert!(outcome.throttled_ns > 0, "{outcome:?}");
    }
}

#[test]
fn a_quota_above_what_is_used_changes_nothing() {
    let application = Application {
        threads: 6,
        turns: 30_000,
        turn_ns: 90_000.0,
        wait_ns: 200_000.0,
    };
    let without = simulate(&application, &free(8), 2);
    let group = Group {
        quota_cpus: Some(7),
        ..free(8)
    };
    let with = simulate(&application, &group, 2);
    assert_eq!((with.throttled_ns, with.time_ns), (0, without.time_ns));
}

/// Bandwidth that CPUs took and do not need goes back, so that others may have it.
#[test]
fn idle_cpus_give_bandwidth_back() {
    // 64 threads that run 0.2 ms now and then: each of 64 CPUs would keep most of 5 ms.
    let application = Application {
        threads: 64,
        turns: 20_000,
        turn_ns: 200_000.0,
        wait_ns: 15.0 * MS as f64,
    };
    let group = Group {
        quota_cpus: Some(2),
        ..free(64)
    };
    let outcome = simulate(&application, &group, 4);
    let unlimited = simulate(&application, &free(64), 4);
    assert!(
        off_by(outcome.time_ns as f64, unlimited.time_ns as f64) < 50.0,
        "{outcome:?}"
    );
}

#[test]
fn a_thread_that_finds_its_cpu_busy_moves_and_pays_for_it() {
    let application = Application {
        threads: 3,
        turns: 10_000,
        turn_ns: 100_000.0,
        wait_ns: 100_000.0,
    };
    let costly = Group {
        migration_ns: 20_000.0,
        ..free(2)
    };
    let (cheap, expensive) = (
        simulate(&application, &free(2), 6),
        simulate(&application, &costly, 6),
    );
    assert!(
        cheap.migrations > 100 && expensive.migrations > 100,
        "{cheap:?} {expensive:?}"
    );
    assert!(expensive.time_ns > cheap.time_ns, "{cheap:?} {expensive:?}");
    let alone = simulate(&computing(2, 1_000, 100_000.0), &costly, 6);
    assert_eq!(alone.migrations, 0, "{alone:?}");
}

/// A number up to a bound, or nothing now and then.
fn some(dice: &mut SplitMix64, bound: usize) -> u32 {
    dice.below(bound) as u32
}

#[test]
fn any_application_ends_and_its_time_adds_up() {
    let mut dice = SplitMix64::new(11);
    for round in 0..400 {
        let application = Application {
            threads: some(&mut dice, 40),
            turns: some(&mut dice, 400),
            turn_ns: f64::from(some(&mut dice, 9_000_000)),
            wait_ns: f64::from(some(&mut dice, 9_000_000)),
        };
        let group = Group {
            cpus: some(&mut dice, 30),
            quota_cpus: (dice.below(2) == 0).then(|| some(&mut dice, 30)),
            switch_ns: f64::from(some(&mut dice, 50_000)),
            migration_ns: f64::from(some(&mut dice, 200_000)),
        };
        let outcome = simulate(&application, &group, round);
        let added = outcome.switches * group.switch_ns as u64
            + outcome.migrations * group.migration_ns as u64;
        let bare = work(&application, round);
        assert_eq!(outcome.on_cpu_ns, bare + added, "{application:?} {group:?}");
        let cpus = u64::from(group.cpus.max(1));
        assert!(
            outcome.time_ns * cpus >= outcome.on_cpu_ns,
            "{application:?} {group:?}"
        );
        assert_eq!(simulate(&application, &group, round), outcome);
    }
}

#[test]
fn numbers_of_a_damaged_record_end_too() {
    let wild = Application {
        threads: 2,
        turns: 3,
        turn_ns: f64::NAN,
        wait_ns: f64::INFINITY,
    };
    let group = Group {
        switch_ns: -5.0,
        migration_ns: f64::NAN,
        ..free(2)
    };
    let outcome = simulate(&wild, &group, 1);
    assert!(outcome.time_ns > 0);
    assert_eq!(
        simulate(&computing(1, 0, 1.0), &free(1), 1),
        SchedulerStats::default()
    );
}
