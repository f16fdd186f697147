//! Shares of rates that were counted for a part of the time.

use std::collections::BTreeMap;

use super::*;

/// The same as counted for a part of the window: each rate may be off by this part of it.
fn sampled(mut load: Load, off_by: f64) -> Load {
    load.counted_seconds = load.seconds * 0.14;
    let margins = &mut load.margins;
    for vcpu in &load.vcpus {
        for (exit, hz) in &vcpu.exits {
            *margins.exits.entry(*exit).or_default() += hz * off_by;
        }
        for (source, hz) in &vcpu.interrupts {
            *margins.taken.entry(*source).or_default() += hz * off_by;
        }
        margins.halts += vcpu.halts * off_by;
        margins.polls += (vcpu.polling.won_hz + vcpu.polling.lost_hz) * off_by;
    }
    for (source, raised) in &load.raised {
        margins.raised.insert(*source, raised.hz * off_by);
    }
    load
}

#[test]
fn shares_are_exact_where_all_was_counted_and_unknown_where_a_rate_is() {
    for seed in 1..500 {
        let load = some_load(seed);
        let diagnosis = diagnose(&load, None);
        let [low, high] = diagnosis.breakdown_interval.unwrap();
        assert_eq!((low, high), (diagnosis.breakdown, diagnosis.breakdown));
        for found in diagnosis.findings {
            let [low, high] = found.share_interval.unwrap();
            let off = (low - found.share).abs().max((high - found.share).abs());
            assert!(off < 1e-9, "{seed}: {found:#?}");
        }
        let mut load = sampled(load, 0.2);
        load.margins.halts = f64::INFINITY;
        if load.events == Events::Counted {
            let diagnosis = diagnose(&load, None);
            assert_eq!(diagnosis.breakdown_interval, None, "{seed}");
            let guest = diagnosis
                .findings
                .iter()
                .find(|it| it.cause == Cause::Guest);
            assert!(guest.is_none_or(|it| it.share_interval.is_none()), "{seed}");
        }
    }
}

#[test]
fn the_interval_of_a_share_has_the_share_in_it_and_grows_with_margins() {
    for seed in 1..1_000 {
        let narrow = diagnose(&sampled(some_load(seed), 0.05), None);
        let wide = diagnose(&sampled(some_load(seed), 0.6), None);
        for (narrow, wide) in narrow.findings.iter().zip(&wide.findings) {
            let ([low, high], [lowest, highest]) =
                (narrow.share_interval.unwrap(), wide.share_interval.unwrap());
            let share = narrow.share;
            assert!(
                low <= share + 1e-9 && share <= high + 1e-9,
                "{seed}: {narrow:#?}"
            );
            assert!(
                lowest <= share + 1e-9 && share <= highest + 1e-9,
                "{seed}: {wide:#?}"
            );
        }
    }
}

/// Rates anywhere within their margins give shares within their intervals.
#[test]
fn the_interval_of_a_share_holds_what_any_rates_in_their_margins_give() {
    const OFF_BY: f64 = 0.3;
    let (mut held, mut all) = (0, 0);
    for seed in 1..1_000_u64 {
        let counted = sampled(some_load(seed), OFF_BY);
        let [low, high] = diagnose(&counted, None).breakdown_interval.unwrap();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut factor = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            1.0 + OFF_BY * ((state % 2_001) as f64 / 1_000.0 - 1.0)
        };
        let mut truth = some_load(seed);
        let mut exits: BTreeMap<Exit, f64> = BTreeMap::new();
        let mut taken: BTreeMap<Source, f64> = BTreeMap::new();
        let halts = factor();
        for vcpu in &mut truth.vcpus {
            vcpu.halts *= halts;
            for (exit, hz) in &mut vcpu.exits {
                *hz *= *exits.entry(*exit).or_insert_with(&mut factor);
            }
            for (source, hz) in &mut vcpu.interrupts {
                *hz *= *taken.entry(*source).or_insert_with(&mut factor);
            }
            for (source, awake) in &mut vcpu.awake {
                let factor = *taken.entry(*source).or_insert_with(&mut factor);
                awake.hz *= factor;
                awake.share *= factor;
            }
        }
        let truth = diagnose(&truth, None).breakdown;
        let parts = low.parts().into_iter().zip(high.parts());
        for ((low, high), (name, share)) in parts.zip(truth.parts()) {
            all += 1;
            let is_in = low.1 - 1e-6 <= share && share <= high.1 + 1e-6;
            if !is_in {
                println!("{seed}: {name} {share} not in {} to {}", low.1, high.1);
            }
            held += usize::from(is_in);
        }
    }
    // At a threshold between two attributions a share is not the sum of its rates.
    assert!(held * 100 >= all * 99, "{held} of {all}");
}

#[test]
fn a_guest_whose_halts_may_have_been_missed_is_not_said_never_to_halt() {
    let mut load = idle();
    load.vcpus[0].cpu = 1.0;
    load.counted_seconds = 0.3;
    let found = first(&load);
    assert_eq!(found.cause, Cause::GuestSpins);
    // All of 18 are in the other 85 % of the time once in 20 times.
    assert_eq!(
        found.what,
        "vCPU 0 executed no HLT while events were counted (15 % of the time; up to 9.2/s may be \
         missed): busy loop or computation"
    );
    load.counted_seconds = 1.8;
    assert!(
        first(&load)
            .what
            .starts_with("vCPU 0 executed no HLT while")
    );
    load.counted_seconds = 2.0;
    assert!(first(&load).what.starts_with("vCPU 0 never executed HLT"));
}

#[test]
fn what_intervals_leave_open_is_not_claimed() {
    // Does the guest mask the line? Of 1,000 raised, 50 to 150 are taken.
    let mut load = woken(idle(), Source::Pit, 90.0, 0.05);
    load.threads.push(thread("kvm-pit/4711", Role::Kvm, 0.019));
    let raised = Raised {
        hz: 1000.0,
        by_monitor_hz: 0.0,
    };
    load.raised.insert(Source::Pit, raised);
    assert!(first(&load).what.contains("although the guest masks"));
    let rough = sampled(load, 0.5);
    let found = first(&rough);
    assert!(
        found.what.contains("the guest may mask its line"),
        "{found:?}"
    );

    // Do polls lose? A fifth more time failed than succeeded.
    let mut load = woken(idle(), Source::Timer, 600.0, 0.5);
    load.vcpus[0].polling = Polling {
        won: 0.2,
        lost: 0.24,
        won_hz: 100.0,
        lost_hz: 500.0,
    };
    assert_eq!(first(&load).cause, Cause::PollingLoses);
    let found = first(&sampled(load, 0.3));
    assert_eq!(found.cause, Cause::Polling);
    let evidence = found.evidence.join("; ");
    assert!(
        evidence.contains("too few were counted to say"),
        "{evidence}"
    );

    // Does each exit cost more than its price?
    let mut load = idle();
    load.execution = Execution::Hardware;
    load.vcpus[0].cpu = 0.5;
    load.vcpus[0].guest = Some(0.3);
    load.vcpus[0].exits = [(Exit::Cpuid, 100_000.0)].into();
    assert!(charged(&load).is_some());
    assert!(charged(&sampled(load.clone(), 0.2)).is_some());
    // 300,000 of them would cost 700 ns each.
    assert_eq!(charged(&sampled(load, 2.0)), None);
}

/// The headline has the rate's interval and the share's; what is below it has none.
#[test]
fn a_finding_prints_the_interval_of_a_rate_once() {
    let mut rough = 0;
    for seed in 1..1_000 {
        for off_by in [0.3, f64::INFINITY] {
            for found in diagnose(&sampled(some_load(seed), off_by), None).findings {
                let counted = |text: &str| text.matches("of the time counted").count();
                let headline = found.headline();
                assert!(counted(&headline) <= 1, "{seed}: {headline}");
                rough += counted(&headline);
                for evidence in &found.evidence {
                    assert_eq!(counted(evidence), 0, "{seed}: {headline}: {evidence}");
                }
            }
        }
    }
    assert!(rough > 1_000, "{rough}");
}

#[test]
fn a_share_that_may_be_nothing_says_so() {
    let mut load = idle();
    load.vcpus[0].cpu = 0.5;
    load.vcpus[0].exits = [(Exit::Cpuid, 2_000.0)].into();
    let exits = |load: &Load| {
        let findings = diagnose(load, None).findings.into_iter();
        let mut exits = findings.filter(|found| found.cause == Cause::Exits);
        exits.next().unwrap()
    };
    let is_doubted = |found: &Finding| found.evidence.iter().any(|it| it.contains("chance"));
    assert!(!is_doubted(&exits(&load)));
    assert!(!is_doubted(&exits(&sampled(load.clone(), 0.3))));
    let found = exits(&sampled(load, 1.1));
    assert!(is_doubted(&found), "{found:?}");
    let [low, high] = found.share_interval.unwrap();
    assert!(low < WORTH_SAYING && high > 1.9 * found.share, "{found:?}");
}
