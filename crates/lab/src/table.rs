//! The table on the terminal, below 80 columns.

use std::fmt::Write as _;

use tare_control::stats::Kvm;
use tare_host::printable::printable;

use crate::figure::{Figure, Spread};
use crate::goal::{Bound, Goal, JudgedGoal, judge};
use crate::number::number;

/// Widest line.
const COLUMNS: usize = 79;

/// One line for each figure: value, interval, number of samples, goal; no column for what no
/// figure has, and nothing for no figure.
pub(crate) fn table(figures: &[Figure], goals: &[Goal], kvm: Kvm) -> String {
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
    if rows.is_empty() {
        return String::new();
    }
    let has_ends = figures.iter().any(|figure| figure.ends().is_some());
    let has_goals = rows.iter().any(|[.., goal]| !goal.is_empty());
    let goal = if has_goals { "goal" } else { "" };
    let ends = if has_ends { "95 % or [range]" } else { "" };
    let head = ["figure", "value", ends, "n", goal].map(str::to_owned);
    let lines: Vec<_> = std::iter::once(head).chain(rows).collect();
    // As wide as what stands in them.
    let wide = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let [longest, second, third, fourth, last] = [0, 1, 2, 3, 4].map(wide);
    // A name for which there is no room has a line for itself.
    let room = COLUMNS.saturating_sub(second + third + fourth + last + 4);
    let first = longest.min(room);
    let mut out = String::new();
    for [name, value, ends, n, goal] in &lines {
        let ends = if has_ends {
            format!("{ends:<third$} ")
        } else {
            String::new()
        };
        let name = if name.chars().count() > first {
            let _ = writeln!(out, "{name}");
            ""
        } else {
            name
        };
        let line = format!("{name:<first$} {value:>second$} {ends}{n:>fourth$} {goal}");
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
    fn columns_stand_below_each_other_whatever_a_figure_is_called() {
        let long = "app_tailored_over_linux.memcached_get";
        let figures = [figure("x", 5.0), figure(long, 1234.0)];
        let text = table(&figures, &[], Kvm::None);
        // The last column is set to the right.
        let lengths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(lengths, [lengths[0]; 3], "{text}");
        let line = text.lines().nth(2).unwrap_or_default();
        assert!(
            line.starts_with(&format!("{long}  1234 1111 .. 1357")),
            "{text}"
        );
        let longer = "cpu_us_per_request.cloud_hypervisor.1000.of_all_that_there_were";
        let goals = [Goal::on_any("x", 4.0)];
        let text = table(&[figure("x", 5.0), figure(longer, 5.0)], &goals, Kvm::None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[2]), (4, longer), "{text}");
        assert_eq!(lines[1].find("4.5 .."), lines[3].find("4.5 .."), "{text}");
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
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
