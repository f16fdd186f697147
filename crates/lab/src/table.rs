//! The table on the terminal, below 80 columns.

use std::fmt::Write as _;

use tare_control::stats::Kvm;
use tare_host::printable::printable;

use crate::figure::{Figure, Spread};
use crate::goal::{Bound, Goal, JudgedGoal, judge};
use crate::number::number;

/// Widest line.
#[cfg(test)]
const COLUMNS: usize = 79;

/// One line for each figure: value, interval, number of samples, goal; no column for what no
/// figure has, and nothing for no figure.
pub(crate) fn table(figures: &[Figure], goals: &[Goal], kvm: Kvm) -> String {
    let mut out = String::new();
    let row = |figure: &Figure| {
        [
            printable(&figure.name).into_owned(),
            number(figure.value),
            ends(figure),
            figure.n.to_string(),
            judge(figure, goals, kvm).map_or(String::new(), mark),
        ]
    };
    let rows: Vec<[String; 5]> = figures.iter().map(row).collect();
    let has_ends = figures.iter().any(|figure| figure.ends().is_some());
    let has_goals = rows.iter().any(|[.., goal]| !goal.is_empty());
    let goal = if has_goals { "goal" } else { "" };
    let head = ["figure", "value", "95 % or [range]", "n", goal].map(str::to_owned);
    let head = (!rows.is_empty()).then_some(head);
    for [name, value, ends, n, goal] in head.into_iter().chain(rows) {
        let ends = if has_ends {
            format!("{ends:<20} ")
        } else {
            String::new()
        };
        let line = format!("{name:<26} {value:>9} {ends}{n:>3} {goal}");
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Interval or, in brackets, range.
fn ends(figure: &Figure) -> String {
    match (figure.ends(), figure.spread) {
        (Some((low, high)), Spread::Range) => format!("[{} .. {}]", number(low), number(high)),
        _ => figure.ends_text(),
    }
}

fn mark(goal: JudgedGoal) -> String {
    let sign = match goal.bound {
        Bound::AtMost(_) => "<=",
        Bound::AtLeast(_) => ">=",
    };
    let limit = short(goal.bound.limit());
    format!("{sign}{limit} {}", goal.verdict.word())
}

/// A limit in few characters: `1M`, `400k`, `0.05`.
fn short(value: f64) -> String {
    for (unit, name) in [(1e6, "M"), (1e3, "k")] {
        if value >= unit && (value / unit).fract() == 0.0 {
            return format!("{}{name}", value / unit);
        }
    }
    number(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Statistic;
    use tare_stats::Interval;

    fn figure(name: &str, value: f64) -> Figure {
        let ends = Interval {
            low: value * 0.9,
            high: value * 1.1,
        };
        Figure::bare(name, "us", value, Statistic::Median, 12345).with_interval(Some(ends))
    }

    #[test]
    fn every_line_is_below_80_columns() {
        let on = &[Kvm::Emulated];
        let goals = [Goal::on(on, "insns_per_connection.poller", 60_000.0)];
        let figures = [
            figure("idle_exits_per_s.tare.2cpu", 1_234_567.0),
            figure("insns_per_connection.poller", 9_234_567.0),
        ];
        let table = table(&figures, &goals, Kvm::Emulated);
        for line in table.lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
        assert!(table.contains("<=60k MISSED"), "{table}");
    }

    #[test]
    fn a_goal_for_another_kvm_is_not_judged() {
        let goals = [Goal::on(&[Kvm::Emulated], "x", 1.0)];
        let table = table(&[figure("x", 2.0)], &goals, Kvm::Hardware);
        assert!(!table.contains("<=") && !table.contains("goal"), "{table}");
    }

    #[test]
    fn what_no_figure_has_is_no_column() {
        let figure = Figure::bare("x", "us", 2.0, Statistic::Median, 1);
        let table = table(&[figure], &[], Kvm::None);
        let words: Vec<&str> = table.split_whitespace().collect();
        assert_eq!(words, ["figure", "value", "n", "x", "2", "1"]);
    }
}
