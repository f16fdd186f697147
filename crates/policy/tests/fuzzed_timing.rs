//! A whole loop (driver, queue, backend, timer) under fuzzed timing: nothing is
//! lost, nothing is held beyond the longest hold, and no waiter is made
//! to. 200,000 completions here; ten million with
//! `cargo test -p tare-policy --release --test fuzzed_timing -- --ignored --nocapture`.

#[path = "fuzzed_timing/simulation.rs"]
mod simulation;

use simulation::{DeliveryStats, Simulation};
use tare_policy::coalesce::{Cause, Mode, Parameters, Ratio, Settings};

fn run(parameters: Parameters, seed: u64, completions: u64) -> DeliveryStats {
    let settings = Settings::new(parameters).unwrap_or_else(|error| panic!("{error}"));
    let outcome = Simulation::new(settings, seed).run(completions);
    assert_eq!(outcome.lost, 0, "seed {seed}");
    assert!(outcome.longest_hold_ns <= parameters.longest_hold_ns);
    assert_eq!(outcome.counters.longest_hold_ns, outcome.longest_hold_ns);
    assert_eq!(outcome.counters.unmatched, 0);
    outcome
}

#[test]
fn fuzzed_timing_loses_nothing_and_holds_nothing_too_long() {
    let outcome = run(Parameters::default(), 1, 200_000);
    // A run that never held, or never needed the timer, would prove nothing.
    assert!(outcome.counters.held > 2_000, "{}", outcome.counters.held);
    assert!(
        outcome.counters.expiries > 10,
        "{}",
        outcome.counters.expiries
    );
    for cause in [Cause::Ratio, Cause::Urgent] {
        let released = outcome.counters.released[cause as usize];
        assert!(released > 0, "{}", cause.name());
    }
}

#[test]
fn other_settings_keep_their_promises_too() {
    let eighth = Ratio::new(1, 8).unwrap_or(Ratio::ONE);
    for (seed, mode) in [(2, Mode::Fixed(eighth)), (3, Mode::Auto), (4, Mode::Off)] {
        let parameters = Parameters {
            mode,
            longest_hold_ns: 50_000,
            epoch_ns: 10_000_000,
            ..Parameters::default()
        };
        let outcome = run(parameters, seed, 30_000);
        // In `auto`, whether anything is held depends on the load.
        if mode != Mode::Auto {
            assert_eq!(outcome.counters.held == 0, mode == Mode::Off);
        }
    }
}

#[test]
#[ignore = "takes seconds when optimised, minutes when not"]
fn ten_million_completions() {
    let outcome = run(Parameters::default(), 5, 10_000_000);
    println!("{outcome}");
}
