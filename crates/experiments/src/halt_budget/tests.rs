//! The weighing against fakes that print what the image prints.

use tare_control::stats::Kvm;
use tare_lab::kit::Record;
use tare_lab::results::{Change, of_figures};
use tare_machines::appliance::fake::{Fakes, Fault};

use super::data::FRONTIER_GAP;
use super::*;
use crate::ALL;
use crate::testing::{Run, figure, kept};

pub(crate) fn run(fault: Fault) -> Run {
    let fakes = Fakes {
        kvm: Kvm::Hardware,
        ..Fakes::printing(prints, fault)
    };
    let short = HaltBudget::new(Depth::Quick, None);
    Run::of("halt-budget", Box::new(short), fakes)
}

fn prints(spec: &GuestSpec) -> Vec<Value> {
    let wake = match spec.halt {
        "poll=200000" => 7000,
        _ => 31_000,
    };
    vec![
        json!({"begin": true}),
        json!({"end": true}),
        json!({"wake_ns": [wake, wake + 100, wake + 200]}),
        json!({"done": true}),
    ]
}

#[test]
fn every_policy_has_figures_under_every_load() {
    let run = run(Fault::None);
    run.is_complete();
    let summary = run.summary();
    for policy in Policy::ALL {
        for load in Load::ALL {
            figure(&summary, &format!("wake_p50_us.{}", load.of(policy)));
        }
    }
    let fast = figure(&summary, "wake_p50_us.poll.bursts");
    assert!((fast.value - 7.1).abs() < 1e-9);
    run.nothing_is_left();
}

#[test]
fn a_policy_that_is_not_to_be_had_is_named_and_the_rest_goes_on() {
    // The fifth machine of the first load is the dedicated one.
    let run = run(Fault::Ends(5));
    run.is_complete();
    let html = run.text("report.html");
    assert!(html.contains("Not measured: dedicated: "), "{html}");
    figure(&run.summary(), "wake_p50_us.budget.sleep10us");
}

/// Halts that this host records meanwhile are not the record's, also where a thread here has the
/// number of the record's vCPU.
#[test]
fn a_replay_takes_the_waits_of_its_record() {
    let record = kept("2026-11-21-halt-budget-quick");
    let mut budget = HaltBudget::new(Depth::Quick, None);
    budget.replay(&record).unwrap();
    let figures = budget.figures();
    // As the run itself had them, in its summary.json.
    for (load, pct) in [
        ("every100us", 1.3063),
        ("bursts", 9.7130),
        ("sleep10us", 6.1495),
    ] {
        let gap = FRONTIER_GAP.value(&figures, load).unwrap();
        assert!((gap - pct).abs() < 1e-4, "{load}: {gap}");
    }
}

/// What the rounds of a record give for which `is_in` is true, as a run of three rounds.
fn of_rounds(record: &Record, is_in: fn(u64) -> bool) -> Vec<Figure> {
    let kept = record.lines.iter().filter_map(|line| {
        let mut line = line.clone();
        if let Some(round) = line.get("round").and_then(Value::as_u64) {
            line["round"] = json!(round / 2);
            return is_in(round).then_some(line);
        }
        Some(line)
    });
    let half = Record {
        dir: record.dir.clone(),
        lines: kept.collect(),
    };
    let mut budget = HaltBudget {
        rounds: 3,
        ..HaltBudget::new(Depth::Standard, None)
    };
    budget.replay(&half).unwrap();
    budget.figures()
}

/// Nothing changed between the even and the odd rounds of one run. With all wake-ups of all
/// machines as samples, most of these figures were called better or worse.
#[test]
fn halves_of_one_run_do_not_differ() {
    let record = kept("2026-11-26-halt-budget");
    let even = of_rounds(&record, |round| round % 2 == 0);
    let odd = of_rounds(&record, |round| round % 2 == 1);
    let rows = of_figures(&even, &odd, ALL);
    let wakes = rows
        .iter()
        .filter(|row| row.figure.starts_with("wake_p50_us."));
    let (mut seen, mut changed) = (0, Vec::new());
    for row in wakes {
        seen += 1;
        if matches!(row.change, Change::Better | Change::Worse | Change::Differs) {
            changed.push(&row.figure);
        }
    }
    assert_eq!(seen, 20, "four loads with wake-ups, five policies");
    assert!(changed.len() <= 1, "{changed:?}");
    for figure in even.iter().chain(&odd) {
        assert!(figure.n <= 3, "three machines each: {figure:?}");
    }
}

#[test]
fn a_figure_has_a_sample_for_each_machine_and_each_round() {
    let record = kept("2026-11-26-halt-budget");
    let mut budget = HaltBudget::new(Depth::Standard, None);
    budget.replay(&record).unwrap();
    let figures = budget.figures();
    for name in [
        "wake_p50_us.poll.bursts",
        "caught_share.budget.bursts",
        "idle_extra_pct",
        "idle_extra_halts",
        "frontier_gap_pct.bursts",
        "reachable_gap_pct.every1ms",
    ] {
        let figure = tare_lab::kit::find(&figures, name).unwrap();
        assert_eq!(figure.n, 6, "{figure:?}");
        assert!(figure.interval().is_some(), "{figure:?}");
    }
}

/// Records of before have waits of one machine, and say so; later ones have those of each.
#[test]
fn waits_of_each_round_are_read_back() {
    let gap = |record: &Record| {
        let mut budget = HaltBudget::new(Depth::Standard, None);
        budget.replay(record).unwrap();
        let figures = budget.figures();
        let marks = budget.report(&figures).limitations;
        let gap = tare_lab::kit::find(&figures, "frontier_gap_pct.bursts").unwrap();
        let once = marks
            .iter()
            .any(|it| it.contains("in the first round alone"));
        (gap.n, once)
    };
    let mut record = kept("2026-11-26-halt-budget");
    assert_eq!(gap(&record), (6, true));
    // Of two more rounds, with too few waits for a gap in the second.
    for count in [200, 10] {
        for load in Load::ALL {
            let waits = json!({"load": load.name(), "busy_ns": vec![90_000; count], "wait_ns": vec![9_000; count]});
            record
                .lines
                .push(json!({"sample": "waits", "arm": "never", "record": waits}));
        }
    }
    assert_eq!(gap(&record), (2, false));
}

#[test]
fn waits_are_recorded_in_every_round() {
    let fakes = Fakes::printing(prints, Fault::None);
    let two = HaltBudget {
        rounds: 2,
        ..HaltBudget::new(Depth::Quick, None)
    };
    let run = Run::of("halt-budget", Box::new(two), fakes);
    let rounds: Vec<Value> = run
        .lines("waits")
        .iter()
        .map(|it| it["round"].clone())
        .collect();
    assert_eq!(rounds, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
}
