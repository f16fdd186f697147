//! Runs in the blocks of a plan, on a machine that gets slower and slower.

use tare_lab::kit::{Depth, Experiment as _, Statistic};
use tare_platform::{Mode, Platform};
use tare_stats::SplitMix64;

use super::{RUNS, run, time};
use crate::data::Data;
use crate::plan::{Cell, blocks, cells};
use crate::{Platforms, analysis, fit};

const SIZES: [u32; 4] = [1, 2, 4, 8];

/// All blocks of the plan, `RUNS` times: machines take 30 % longer, vanilla ones 5 % more.
fn drifting() -> Data {
    let mut dice = SplitMix64::new(5);
    let mut data = Data::default();
    let cells = cells(&["w".to_owned()], &Platform::ALL, &SIZES, 8, None);
    let overhead = |cell: &Cell| match (cell.place.platform, cell.place.mode) {
        (Platform::Vm, Mode::Pinned) => 1.30,
        (Platform::Vm, Mode::Vanilla) => 1.30 * 1.05,
        _ => 1.0,
    };
    let mut number = 0_u64;
    for round in 0..RUNS {
        for block in blocks(&cells) {
            number += 1;
            let slower = 1.0 + round as f64 / 5.0;
            for cell in block {
                let mean = slower * overhead(&cell) / f64::from(cell.place.size);
                let took = time(&mut dice, mean).min(mean * 1.1);
                let mut run = run("a", "w", cell.place, cell.arm, took);
                run.block = Some(number);
                data.runs.push(run);
            }
        }
    }
    data
}

#[test]
fn vanilla_and_pinned_machines_are_compared_in_pairs() {
    let data = drifting();
    for size in SIZES {
        let (_, gain) = analysis::pin_gain(&data, "w", Platform::Vm, size).unwrap();
        assert_eq!(
            (gain.statistic, gain.n),
            (Statistic::PairedRatio, RUNS),
            "{gain:?}"
        );
        assert!((gain.value - 5.0).abs() < 3.0, "{gain:?}");
        assert!(gain.differs_from(0.0), "{gain:?}");
    }
}

/// Records of earlier plans have a block for each, and their pages do not claim pairs.
#[test]
fn a_page_says_that_machines_were_in_pairs_where_they_were() {
    let mut platforms = Platforms::new(Depth::Quick);
    platforms.data = drifting();
    let says = |platforms: &Platforms| {
        let method = platforms.report(&[]).method;
        method
            .iter()
            .any(|it| it.starts_with("A machine's vanilla"))
    };
    assert!(says(&platforms));
    for run in &mut platforms.data.runs {
        let is_pinned = run.cell.place.mode == Mode::Pinned;
        run.block = run.block.map(|block| 2 * block + u64::from(is_pinned));
    }
    assert!(!says(&platforms));
}

#[test]
fn what_changes_slowly_is_in_no_error_of_the_split() {
    let data = drifting();
    let split = fit::split(&data, "w", Platform::Vm, Mode::Pinned).unwrap();
    let interval = split.constant.interval.unwrap();
    assert!((split.constant.value - 30.0).abs() < 4.0, "{split:?}");
    // By means the drift alone makes it 30 % to either side.
    assert!(interval.high - interval.low < 8.0, "{split:?}");
    assert!(split.falling[0].1.value.abs() < 6.0, "{split:?}");
}

#[test]
fn a_control_of_pinning_that_excludes_zero_is_called_a_false_positive() {
    let report = |slower: f64| -> (String, String) {
        let mut platforms = Platforms::new(Depth::Quick);
        platforms.data = drifting();
        for run in &mut platforms.data.runs {
            let place = run.cell.place;
            if (place.platform, place.mode) == (Platform::Container, Mode::Pinned) {
                run.time = run.time.map(|time| time * slower);
            }
        }
        let figures = platforms.figures();
        let report = platforms.report(&figures);
        let mut sections = report.sections.into_iter();
        let pinning = sections.find(|it| it.title.starts_with("Vanilla against pinned"));
        (pinning.unwrap().html, report.answer.join("\n"))
    };
    let row = |table: &str, place: &str| {
        let from = table.find(place).map(|at| &table[at..]);
        from.and_then(|from| from.split("</tr>").next())
            .unwrap_or_default()
            .to_owned()
    };
    let words = "false positive of the control";
    let (table, answer) = report(1.2);
    let control = row(&table, "w, container, 8 CPUs");
    assert!(control.contains(words), "{control}");
    assert!(
        answer.contains("have an interval that excludes 0 in"),
        "{answer}"
    );
    // Below the host's size a quota is compared with a set, which is not a control.
    let quota = row(&table, "w, container, 4 CPUs");
    assert!(quota.contains("quota against set"), "{quota}");
}
