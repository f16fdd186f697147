//! The instrument on the runs that are kept in the source tree.

use tare_stats::SplitMix64;

use super::{RUNS, found};
use crate::data::Data;
use crate::{figures, instrument};

/// The runs that are kept in the source tree, the newest first.
fn stored_runs() -> Vec<Data> {
    let runs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs");
    let dirs = std::fs::read_dir(runs)
        .unwrap()
        .map(|dir| dir.unwrap().path());
    let ours = |dir: &std::path::PathBuf| dir.to_string_lossy().contains("-platforms-");
    let mut dirs: Vec<_> = dirs.filter(ours).collect();
    dirs.sort();
    let read = |dir: std::path::PathBuf| {
        let mut data = Data::default();
        data.read(&dir).unwrap();
        data
    };
    dirs.into_iter().rev().map(read).collect()
}

#[test]
fn the_goal_of_the_half_width_can_be_judged() {
    let data = stored_runs().remove(0);
    let figures = figures::figures(&data, &[]);
    let half = tare_lab::kit::find(&figures, "aa_half_width_pct").unwrap();
    assert_eq!(half.statistic, tare_lab::kit::Statistic::Exact, "{half:?}");
}

#[test]
fn with_recorded_noise_five_percent_is_found_and_equal_arms_are_equal() {
    let data = stored_runs().remove(0);
    assert!(!data.workloads().is_empty());
    for workload in data.workloads() {
        let noise = instrument::noise(&data, &workload);
        let draw = |dice: &mut SplitMix64| {
            let ratio = noise[dice.below(noise.len())];
            if dice.below(2) == 0 {
                ratio
            } else {
                1.0 / ratio
            }
        };
        let equal = found(1.0, RUNS, draw);
        assert!(
            equal.iter().all(|found| *found <= 5),
            "{workload}: {equal:?}"
        );
        let Some((enough, _)) = instrument::runs_to_find(&data, &workload) else {
            continue;
        };
        let found = found(1.05, enough, draw);
        let mean = found.iter().sum::<usize>() / found.len();
        assert!(mean >= 93, "{workload}, {enough} pairs: {found:?}");
        println!("{workload}: from {enough} pairs on");
    }
}
