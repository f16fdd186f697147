//! `auto` against `off` over simulated disks: interrupts are saved, and nothing gets
//! worse by more than 2 %. Both arms run the same arrivals and service times.
//!
//! All loads as a table:
//! `cargo test -p tare-policy --release --test simulated_disks -- --nocapture`.

use tare_policy::coalesce::{Mode, Parameters, Ratio, Settings};
use tare_simdisk::{
    Cost, Costs, Disk, Load, MOST_COST, MS, Service, Simulation, arbitrary, committer, equal,
    known, mixed, readers, run, worst,
};

/// Prints and checks the worst of all.
fn check(loads: &[Load], seed: u64) {
    let costs = loads.iter().map(|load| {
        let worst = worst(load, seed);
        println!("{:<44} {} x{:.3}", load.name, worst.what, worst.factor);
        (load, worst)
    });
    let Some((load, worst)) = costs.max_by(|(_, a), (_, b)| a.factor.total_cmp(&b.factor)) else {
        return;
    };
    println!(
        "worst case: {}: {} x{:.3}",
        load.name, worst.what, worst.factor
    );
    assert!(
        worst.factor <= MOST_COST,
        "{load:?}: {} is {:.3} of what it is without coalescing",
        worst.what,
        worst.factor
    );
}

#[test]
fn mixed_latencies_cost_nothing() {
    check(&mixed(), 1);
}

#[test]
fn no_known_load_gets_worse() {
    check(&known(), 1);
}

#[test]
fn no_arbitrary_load_gets_worse() {
    let loads: Vec<Load> = (0..40).map(arbitrary).collect();
    check(&loads, 7);
}

#[test]
#[ignore = "takes a minute when optimised"]
fn no_arbitrary_load_gets_worse_of_a_thousand() {
    let loads = (1_000..2_000).map(arbitrary);
    let mut costs: Vec<(Cost, Load)> = loads.map(|load| (worst(&load, 7), load)).collect();
    costs.sort_by(|(a, _), (b, _)| b.factor.total_cmp(&a.factor));
    costs.retain(|(cost, _)| cost.factor > MOST_COST);
    for (cost, load) in &costs {
        println!(
            "beyond the limit: {} x{:.3}: {load:?}",
            cost.what, cost.factor
        );
    }
    assert!(costs.is_empty(), "{} of 1,000 loads", costs.len());
}

/// A slow disk below a slow guest, whose commands cost 3 ms each where their latency is 151 ms: `tare weigh
/// vic` in ring 0 below an emulator. Each window in which the rule tries holds is measured, not only
/// those after it has decided.
#[test]
fn a_trial_of_holds_costs_no_window_much() {
    const WINDOW_NS: u64 = 1_200 * MS;
    let service = Service::Constant(151 * MS);
    let streams = vec![readers(32, service), committer(service)];
    let mut load = Load::new(
        "32 readers beside one that commits",
        Disk::Parallel,
        streams,
    );
    load.costs = Costs {
        interrupt_ns: MS / 2,
        completion_ns: 3 * MS,
        turn_ns: 0,
    };
    let parameters = |mode| Parameters {
        mode,
        iops_threshold: 10,
        longest_hold_ns: 75 * MS,
        ..Parameters::default()
    };
    let arm = |mode, from_ns, for_ns| {
        let settings = Settings::new(parameters(mode)).unwrap_or_default();
        Simulation::new(&load, settings, 1).run(from_ns, for_ns)
    };
    let mut holds = false;
    for window in 0..8 {
        let [off, auto] =
            [Mode::Off, Mode::Auto].map(|mode| arm(mode, window * WINDOW_NS, WINDOW_NS));
        holds |= auto.interrupts_per_completion() < 0.6;
        let mean = auto.all.mean_ns() / off.all.mean_ns();
        println!("window {window}: mean x{mean:.3}");
        assert!(mean <= 1.03, "window {window}: mean latency x{mean}");
    }
    assert!(holds, "there is a trial");
    let [off, auto] = [Mode::Off, Mode::Auto].map(|mode| arm(mode, 0, 8 * WINDOW_NS));
    let iops = off.all.iops() / auto.all.iops();
    println!("together: IOPS x{iops:.3}");
    assert!(iops <= MOST_COST, "IOPS x{iops}");
}

#[test]
fn equal_latencies_get_the_ratio_of_the_table() {
    for (load, most) in equal() {
        let auto = run(&load, Mode::Auto, 1);
        let per_completion = auto.interrupts_per_completion();
        println!("{}: {per_completion:.3}", load.name);
        assert!(per_completion <= most, "{}: {per_completion}", load.name);
    }
}

/// The simulation would show what it is to exclude: a plain ratio, whatever is in
/// flight, costs a fast stream beside slow requests three quarters of its rate.
#[test]
fn a_fixed_ratio_is_seen_to_cost() {
    let fixed = Mode::Fixed(Ratio::new(3, 4).unwrap_or(Ratio::ONE));
    let load = &mixed()[5];
    let (off, fixed) = (run(load, Mode::Off, 1), run(load, fixed, 1));
    let factor = off.all.iops() / fixed.all.iops();
    assert!(factor > 3.0, "{}: {factor}", load.name);
}
