//! The instrument on samples whose truth is known.

#![allow(clippy::unwrap_used)]

use tare_platform::{Mode, Place, Platform};

use super::analysis::{self, Comparison};
use super::data::{Data, Run};
use super::observe::Observed;
use super::plan::{Arm, Cell, Dice};

/// Runs of each kind, as many as the talk's.
const RUNS: usize = 20;
/// Spread of a run's time: 2 %, what this machine shows when it is quiet.
const SPREAD: f64 = 0.02;

/// A time around `mean`, nearly normal (a sum of twelve), with an outlier now and
/// then.
fn time(dice: &mut Dice, mean: f64) -> f64 {
    let unit = |dice: &mut Dice| dice.below(1_000_000) as f64 / 1e6;
    let normal: f64 = (0..12).map(|_| unit(dice)).sum::<f64>() - 6.0;
    let late = if dice.below(50) == 0 { 1.3 } else { 1.0 };
    mean * (1.0 + SPREAD * normal) * late
}

fn series(dice: &mut Dice, mean: f64) -> Vec<f64> {
    (0..RUNS).map(|_| time(dice, mean)).collect()
}

/// Of each 100 comparisons, in how many the instrument tells `slower` from 1.
fn found(slower: f64) -> Vec<usize> {
    let hundred = |seed| {
        let mut dice = Dice(seed);
        let differs = |_: &usize| {
            let (a, b) = (series(&mut dice, slower), series(&mut dice, 1.0));
            Comparison::of(&a, &b).unwrap().differs()
        };
        (0..100).filter(differs).count()
    };
    (1..=10).map(hundred).collect()
}

#[test]
fn a_slow_down_of_five_percent_is_found_in_95_of_100() {
    let found = found(1.05);
    assert!(found.iter().all(|found| *found >= 95), "{found:?}");
}

#[test]
fn equal_arms_differ_in_at_most_five_of_100() {
    let found = found(1.0);
    assert!(found.iter().all(|found| *found <= 5), "{found:?}");
}

fn run(host: &str, workload: &str, place: Place, arm: Arm, time: f64) -> Run {
    Run {
        sample: "run".into(),
        host: host.into(),
        host_cpus: 8,
        cell: Cell {
            workload: workload.into(),
            place,
            arm,
        },
        round: 1,
        warm_up: false,
        value: Some(time),
        unit: "s".into(),
        time: Some(time),
        failure: None,
        wall_s: time,
        took_s: time,
        observed: Observed::default(),
        engine: None,
    }
}

/// Overheads made of a constant of the VM and a falling part of the container.
fn made(hosts: &[(&str, f64)]) -> Data {
    let mut dice = Dice(7);
    let mut data = Data::default();
    for (host, speed) in hosts {
        for size in [1, 2, 4, 8] {
            for (platform, mode, overhead) in [
                (Platform::Bare, Mode::Vanilla, 0.0),
                (Platform::Vm, Mode::Vanilla, 0.30),
                (Platform::Container, Mode::Vanilla, 0.40 / f64::from(size)),
                (Platform::Container, Mode::Pinned, 0.0),
            ] {
                let place = Place::new(platform, mode, size, 8);
                for _ in 0..RUNS {
                    let mean = speed / f64::from(size) * (1.0 + overhead);
                    let normal = time(&mut dice, mean).min(mean * 1.1);
                    data.runs.push(run(host, "w", place, Arm::Main, normal));
                }
            }
        }
    }
    data
}

#[test]
fn a_made_overhead_is_split_into_what_it_was_made_of() {
    let data = made(&[("a", 10.0)]);
    let vm = analysis::split(&data, "w", Platform::Vm, Mode::Vanilla).unwrap();
    assert!((vm.constant.value - 30.0).abs() < 3.0, "{vm:?}");
    assert!(vm.constant.low < 30.0 && 30.0 < vm.constant.high, "{vm:?}");
    let container = analysis::split(&data, "w", Platform::Container, Mode::Vanilla).unwrap();
    let (size, falling) = container.falling[0];
    assert_eq!(size, 1);
    assert!((falling.value - 40.0).abs() < 4.0, "{container:?}");
    assert!(container.constant.value.abs() < 3.0, "{container:?}");
    let gain = analysis::pin_gain(&data, "w", Platform::Container).unwrap();
    assert!(gain.low > 5.0 && gain.high < 30.0, "{gain:?}");
}

#[test]
fn one_size_cannot_be_split() {
    let mut data = made(&[("a", 1.0)]);
    data.runs.retain(|run| run.cell.place.size == 2);
    assert_eq!(
        analysis::split(&data, "w", Platform::Vm, Mode::Vanilla),
        None
    );
}

#[test]
fn hosts_of_different_speed_are_merged_by_their_ratios() {
    let data = made(&[("slow", 30.0), ("fast", 1.0)]);
    let place = Place::new(Platform::Vm, Mode::Vanilla, 4, 8);
    let ratio = analysis::overhead(&data, "w", place).unwrap();
    assert!((ratio.value - 1.3).abs() < 0.03, "{ratio:?}");
}

#[test]
fn a_record_is_read_back_without_its_torn_end() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::new(Platform::Container, Mode::Vanilla, 1, 8);
    let run = run("a", "w,\"x\"", place, Arm::Control, 0.5);
    let line = serde_json::to_string(&run).unwrap();
    let text = format!("{{\"sample\":\"plan\"}}\n{line}\n{}", &line[..40]);
    std::fs::write(dir.path().join("raw.jsonl"), text).unwrap();
    let mut data = Data::default();
    assert_eq!(data.read(dir.path()).unwrap(), 1);
    assert_eq!(data.runs, [run]);
    assert!(
        data.csv()
            .contains("a,\"w,\"\"x\"\"\",container,vanilla,1,quota,control,")
    );
}

#[test]
fn outliers_are_named_and_kept() {
    let samples = [1.0, 1.1, 0.9, 1.0, 1.05, 9.0];
    assert_eq!(analysis::outliers(&samples), [9.0]);
    let same = [1.0; 6];
    assert!(analysis::outliers(&same).is_empty());
}
