//! The instrument on the runs that are kept in the source tree.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde_json::Value;
use tare_lab::kit::{Statistic, find};
use tare_stats::SplitMix64;

use super::{RUNS, found};
use crate::data::Data;
use crate::{figures, instrument};

/// Fewer pairs say nothing about noise.
const LEAST_PAIRS: usize = 10;

/// Whether a directory has a record of this experiment, whatever its name is.
fn is_of_platforms(dir: &Path) -> bool {
    let raw = File::open(dir.join("raw.jsonl")).ok();
    let plan = raw.and_then(|raw| {
        let first = BufReader::new(raw).lines().next()?.ok()?;
        serde_json::from_str::<Value>(&first).ok()
    });
    plan.is_some_and(|plan| plan["experiment"] == "platforms")
}

/// The runs of this experiment that are kept in the source tree, with their names.
fn stored_runs() -> Vec<(String, Data)> {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs");
    let dirs = fs::read_dir(runs).unwrap().map(|dir| dir.unwrap().path());
    let mut dirs: Vec<_> = dirs.filter(|dir| is_of_platforms(dir)).collect();
    dirs.sort();
    let read = |dir: std::path::PathBuf| {
        let mut data = Data::default();
        data.read(&dir).unwrap();
        (
            dir.file_name().unwrap().to_string_lossy().into_owned(),
            data,
        )
    };
    dirs.into_iter().map(read).collect()
}

#[test]
fn the_goal_of_the_half_width_can_be_judged() {
    let mut judged = 0;
    for (run, data) in stored_runs() {
        let figures = figures::figures(&data, &[]);
        let mut equal = figures.iter().filter(|it| it.name.starts_with("aa_pct."));
        let known = equal.all(|it| it.interval().is_some());
        let half = find(&figures, "aa_half_width_pct");
        let is_exact = half.is_some_and(|half| half.statistic == Statistic::Exact);
        assert_eq!(is_exact, known && half.is_some(), "{run}: {half:?}");
        judged += usize::from(is_exact);
    }
    assert!(judged > 0, "no kept run has pairs enough");
}

#[test]
fn with_recorded_noise_five_percent_is_found_and_equal_arms_are_equal() {
    let (mut drawn, mut forecast) = (0, 0);
    for (run, data) in stored_runs() {
        for workload in data.workloads() {
            let noise = instrument::noise(&data, &workload);
            if noise.len() < LEAST_PAIRS {
                println!("{run}, {workload}: {} pairs are too few", noise.len());
                continue;
            }
            drawn += 1;
            let about = format!("{run}, {workload}");
            let draw = |dice: &mut SplitMix64| {
                let ratio = noise[dice.below(noise.len())];
                if dice.below(2) == 0 {
                    ratio
                } else {
                    1.0 / ratio
                }
            };
            let equal = found(1.0, RUNS, draw);
            // Five in a hundred at most. Of all draws, since one hundred of them has six now and then at
            // a rate of two, as Cassandra's noise on two CPUs gives, where it varies by a half.
            let alarms = equal.iter().sum::<usize>();
            assert!(alarms <= 5 * equal.len(), "{about}: {equal:?}");
            let Some(enough) = instrument::runs_to_find(&noise) else {
                println!("{about}: 5 % is not found");
                continue;
            };
            forecast += 1;
            let found = found(1.05, enough, draw);
            let mean = found.iter().sum::<usize>() / found.len();
            assert!(mean >= 93, "{about}, {enough} pairs: {found:?}");
            println!("{about}: from {enough} pairs on");
        }
    }
    // Otherwise nothing was tested above.
    assert!(
        drawn > 0 && forecast > 0,
        "{drawn} noises, {forecast} forecasts"
    );
}
