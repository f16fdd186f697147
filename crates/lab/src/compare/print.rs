//! A comparison as text, Markdown, CSV and JSON.

use std::fmt::Write as _;

use serde_json::json;

use super::{Change, Compared, Row};
use crate::export::{csv_field, in_markdown};
use crate::number::number;

/// A line about figures by their number, if there are any.
fn counted(out: &mut String, count: usize, all: usize, what: &str) {
    if count > 0 {
        let _ = writeln!(out, "{count} of {all} figures {what}");
    }
}

impl Row {
    pub(super) fn ratio_text(&self) -> String {
        let Some(ratio) = self.ratio else {
            return "-".to_owned();
        };
        match self.ratio_interval {
            Some((low, high)) => {
                format!("{} ({} .. {})", number(ratio), number(low), number(high))
            }
            None => number(ratio),
        }
    }
}

impl Compared {
    fn count(&self, change: Change) -> usize {
        let figures = self.figures.iter();
        figures.filter(|row| row.change == change).count()
    }

    /// A table below 100 columns; figures that cannot be told apart are counted, not listed.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for warning in &self.warnings {
            let _ = writeln!(out, "warning: {warning}");
        }
        let listed = |row: &&Row| !matches!(row.change, Change::None | Change::Undecided);
        for (index, row) in self.figures.iter().filter(listed).enumerate() {
            if index == 0 {
                let _ = writeln!(
                    out,
                    "{:<34} {:>10} {:>10} {:<26} change",
                    "figure", "before", "after", "ratio (95 % interval)"
                );
            }
            let _ = writeln!(
                out,
                "{:<34} {:>10} {:>10} {:<26} {}",
                row.figure,
                number(row.before),
                number(row.after),
                row.ratio_text(),
                row.change.text()
            );
        }
        let all = self.figures.len();
        counted(
            &mut out,
            self.count(Change::None),
            all,
            "cannot be told apart",
        );
        let no_interval = "have no interval in one of the runs (fewer than 6 samples)";
        counted(&mut out, self.count(Change::Undecided), all, no_interval);
        let _ = writeln!(out, "{}", self.correction());
        out.push_str(&self.alone());
        out
    }

    /// What the number of figures does to their verdicts.
    pub(super) fn correction(&self) -> String {
        let tested = self.figures.iter().filter(|row| row.p.is_some()).count();
        format!(
            "{tested} figures are compared at once: of those called better, worse or different \
             at most 5 % are chance (Benjamini-Hochberg)"
        )
    }

    /// A line about figures that do not compare; none where there are none.
    pub(super) fn alone(&self) -> String {
        match self.only_in_one.as_slice() {
            [] => String::new(),
            names => format!(
                "in one run only, or in another unit: {}\n",
                names.join(", ")
            ),
        }
    }

    /// The same for a pull request, with all figures.
    pub fn markdown(&self) -> String {
        let mut out = format!("### tare compare: {}\n\n", in_markdown(&self.experiment));
        for warning in &self.warnings {
            let _ = writeln!(out, "> warning: {}\n", in_markdown(warning));
        }
        out.push_str("| figure | unit | before | after | ratio (95 % interval) | change |\n");
        out.push_str("|---|---|---|---|---|---|\n");
        for row in &self.figures {
            let [before, after] = &row.texts;
            let text = row.change.text();
            let text = match row.change {
                Change::Worse => format!("**{text}**"),
                _ => text.to_owned(),
            };
            let _ = writeln!(
                out,
                "| {} | {} | {before} | {after} | {} | {text} |",
                in_markdown(&row.figure),
                in_markdown(&row.unit),
                row.ratio_text()
            );
        }
        let _ = writeln!(out, "\n{}", self.correction());
        if !self.only_in_one.is_empty() {
            let _ = write!(out, "\n{}", in_markdown(&self.alone()));
        }
        out
    }

    /// One line for each figure, RFC 4180.
    pub fn csv(&self) -> String {
        let mut out = String::from(
            "figure,unit,before,after,ratio,ratio_low,ratio_high,p,p_adjusted,change\n",
        );
        let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
        for row in &self.figures {
            let _ = writeln!(
                out,
                "{},{},{},{},{},{},{},{},{},{}",
                csv_field(&row.figure),
                csv_field(&row.unit),
                row.before,
                row.after,
                number(row.ratio),
                number(row.ratio_interval.map(|ends| ends.0)),
                number(row.ratio_interval.map(|ends| ends.1)),
                number(row.p),
                number(row.p_adjusted),
                row.change.text()
            );
        }
        out
    }

    /// All of it as JSON.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(&json!(self)).unwrap_or_default();
        text.push('\n');
        text
    }
}
