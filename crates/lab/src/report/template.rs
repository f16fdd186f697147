//! An experiment's text as Markdown, in a file `report.md` beside its code, which gives
//! values and charts.
//!
//! ```markdown
//! # Title
//!
//! The question.
//!
//! ## Answer
//!
//! - A sentence that is left out where {figure.arm} is missing.
//!
//! ## trips: Title of a section
//!
//! How to read it.
//!
//! | medians | trip, µs |
//! |---|---|
//! | {about} | {round_trip_us_p50.{arm}:text} |
//! ```
//!
//! `{x}` is what the code gives under that name, else the figure's value. `{x:text}` has its
//! interval, `{x:round}` no decimals, `{x:2}` two. `{a / b}` and `{a - b}` are of two figures of
//! separate machines, whose intervals give theirs: `{a / b:text}` is `1.2 (1.1 .. 1.3)`, or
//! `1.2 (no interval)` where one of them has none. `{a * 0.001}` is in another unit. A sentence that lacks
//! a value is left out, a cell has a dash, and a row is left out where all its figures are
//! missing. Names that are neither given nor of a metric fail the test of all reports.

use std::collections::BTreeMap;

use super::text::NOTHING;
use super::{ReportText, Section, table};
use crate::figure::{Figure, find};
use crate::metric::Metric;
use crate::number::number;

/// Values of a table's row, by name; one that is missing is `None`.
pub type Row = Vec<(&'static str, Option<String>)>;

/// The row of a table that has no values but figures.
pub const ONCE: [Row; 1] = [Row::new()];

/// A row of values that are all there.
pub fn row<const N: usize>(values: [(&'static str, &str); N]) -> Row {
    values
        .map(|(name, value)| (name, Some(value.to_owned())))
        .into()
}

/// What follows a heading.
#[derive(Debug, Default)]
struct Block {
    key: String,
    title: String,
    text: String,
    sentences: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A text with its values.
#[derive(Debug)]
pub struct Template<'a> {
    blocks: Vec<Block>,
    metrics: &'static [Metric],
    figures: &'a [Figure],
    given: BTreeMap<&'static str, Option<String>>,
}

impl<'a> Template<'a> {
    /// The text of `markdown`, with these figures of `metrics`.
    pub fn new(markdown: &str, metrics: &'static [Metric], figures: &'a [Figure]) -> Self {
        Self {
            blocks: blocks(markdown),
            metrics,
            figures,
            given: BTreeMap::new(),
        }
    }

    /// With a value.
    pub fn set(self, name: &'static str, value: impl ToString) -> Self {
        self.maybe(name, Some(value))
    }

    /// With a value that may be missing.
    pub fn maybe(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.given
            .insert(name, value.map(|value| value.to_string()));
        self
    }

    /// Sets a name without text; a sentence that names it is left out unless `holds`.
    pub fn only_if(self, name: &'static str, holds: bool) -> Self {
        self.maybe(name, holds.then_some(""))
    }

    /// Title, question, answer, method and limitations.
    pub fn report(&self) -> ReportText {
        let first = self.blocks.first();
        let of = |text: fn(&Block) -> &String| {
            let text = first.and_then(|block| self.expand(text(block), &Row::new()).text);
            text.unwrap_or_default()
        };
        ReportText {
            title: of(|block| &block.title),
            question: of(|block| &block.text),
            answer: self.sentences("Answer"),
            method: self.sentences("Method"),
            limitations: self.sentences("Limitations"),
            ..ReportText::default()
        }
    }

    /// The same with the glance table of these rows, with sections, and with a limitation for
    /// each that is missing.
    pub fn report_with(
        &self,
        glance: impl IntoIterator<Item = Row>,
        sections: impl IntoIterator<Item = Option<Section>>,
        missing: &[String],
    ) -> ReportText {
        let mut report = self.report();
        let mut glance = glance.into_iter().peekable();
        if glance.peek().is_some() {
            report.glance = self.table("Glance", glance);
        }
        report.sections = sections.into_iter().flatten().collect();
        let missing = missing.iter().map(|why| format!("Not measured: {why}."));
        report.limitations.splice(..0, missing);
        report
    }

    /// The sentences below a heading whose values are all there.
    pub fn sentences(&self, key: &str) -> Vec<String> {
        let block = self.blocks.iter().find(|block| block.key == key);
        let sentences = block.into_iter().flat_map(|block| &block.sentences);
        sentences
            .filter_map(|it| self.expand(it, &Row::new()).text)
            .collect()
    }

    /// The table below a heading, each row with values once for each of `rows`, and the others
    /// once; empty without any.
    pub fn table(&self, key: &str, rows: impl IntoIterator<Item = Row>) -> String {
        let block = self.block(key);
        let Some((head, patterns)) = block.and_then(|block| block.rows.split_first()) else {
            return String::new();
        };
        let values: Vec<Row> = rows.into_iter().collect();
        let mut rows: Vec<Vec<String>> = Vec::new();
        for pattern in patterns {
            if pattern.iter().any(|cell| cell.contains('{')) {
                rows.extend(values.iter().filter_map(|row| self.cells(pattern, row)));
            } else if !values.is_empty() {
                rows.push(pattern.clone());
            }
        }
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        if rows.is_empty() {
            String::new()
        } else {
            table(&head, &rows)
        }
    }

    /// A section with its title and text around `html`; none around nothing.
    pub fn section(&self, key: &str, html: String) -> Option<Section> {
        self.section_of(key, &Row::new(), html)
    }

    /// The same, with values for its title and text.
    pub fn section_of(&self, key: &str, row: &Row, html: String) -> Option<Section> {
        let block = self.block(key).filter(|_| !html.is_empty())?;
        let of = |text: &str| self.expand(text, row).text.unwrap_or_default();
        Some(Section {
            title: of(&block.title),
            lead: of(&block.text),
            html,
        })
    }

    /// A section with its table.
    pub fn tabled(&self, key: &str, rows: impl IntoIterator<Item = Row>) -> Option<Section> {
        self.section(key, self.table(key, rows))
    }

    fn block(&self, key: &str) -> Option<&Block> {
        let found = self.blocks.iter().find(|block| block.key == key);
        debug_assert!(found.is_some(), "no heading {key}");
        found
    }

    /// A row's cells; `None` where it is of figures and all are missing.
    fn cells(&self, pattern: &[String], row: &Row) -> Option<Vec<String>> {
        let cells: Vec<Expanded> = pattern.iter().map(|it| self.expand(it, row)).collect();
        let mut of_figures = cells.iter().filter(|cell| cell.is_of_figures).peekable();
        if of_figures.peek().is_some() && of_figures.all(|cell| cell.text.is_none()) {
            return None;
        }
        let cells = cells.into_iter();
        Some(
            cells
                .map(|cell| cell.text.unwrap_or_else(|| NOTHING.to_owned()))
                .collect(),
        )
    }

    /// A text with its values. A value is not read again: what a machine said may have braces.
    fn expand(&self, text: &str, row: &Row) -> Expanded {
        let (mut out, mut rest) = (String::new(), text);
        let (mut is_complete, mut is_of_figures) = (true, false);
        while let Some((before, behind)) = rest.split_once('{') {
            let inner = up_to_its_brace(behind);
            out.push_str(before);
            let name = self.expand(inner, row);
            let found = name.text.map(|name| self.evaluate(&name, row));
            is_of_figures |= found.as_ref().is_some_and(|found| found.is_of_figures);
            match found.and_then(|found| found.text) {
                Some(value) => out.push_str(&value),
                None => is_complete = false,
            }
            rest = behind.get(inner.len() + 1..).unwrap_or_default();
        }
        out.push_str(rest);
        Expanded {
            text: is_complete.then_some(out),
            is_of_figures,
        }
    }

    fn evaluate(&self, name: &str, row: &Row) -> Expanded {
        let of_row = row.iter().find(|(known, _)| *known == name);
        let given = of_row
            .map(|(_, value)| value)
            .or_else(|| self.given.get(name));
        if let Some(given) = given {
            return Expanded {
                text: given.clone(),
                is_of_figures: false,
            };
        }
        let (expression, form) = name.split_once(':').unwrap_or((name, ""));
        let is_of_two = expression.contains(" / ") || expression.contains(" - ");
        let text = self.figure(expression).map(|figure| match form {
            "text" if is_of_two => match figure.ends() {
                Some(_) => figure.text(),
                None => format!("{} (no interval)", number(figure.value)),
            },
            "text" => figure.text(),
            "round" => number(figure.value.round()),
            decimals => match decimals.parse() {
                Ok(decimals) => {
                    let power = 10f64.powi(decimals);
                    number((figure.value * power).round() / power)
                }
                Err(_) => number(figure.value),
            },
        });
        Expanded {
            text,
            is_of_figures: true,
        }
    }

    /// A figure, one in another unit, or two with what is between them.
    fn figure(&self, expression: &str) -> Option<Figure> {
        let mut words = expression.split(' ');
        let first = self.known(words.next().unwrap_or_default());
        let Some((operator, second)) = words.next().zip(words.next()) else {
            return first.cloned();
        };
        let first = first?;
        if let Ok(factor) = second.parse() {
            return (operator == "*").then(|| first.scaled(factor, ""));
        }
        let second = self.known(second)?;
        match operator {
            "/" => Some(first.over(second)),
            "-" => Some(first.less(second)),
            _ => None,
        }
    }

    fn known(&self, name: &str) -> Option<&'a Figure> {
        debug_assert!(
            self.metrics.iter().any(|metric| metric.is_of(name)),
            "'{name}' in a report's text is neither given nor of a metric"
        );
        find(self.figures, name)
    }
}

/// A text whose values were looked up.
struct Expanded {
    /// `None` where a value is missing.
    text: Option<String>,
    /// Whether one of them is a figure.
    is_of_figures: bool,
}

/// What stands before the brace that closes the one before `text`.
fn up_to_its_brace(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|c: char| {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        depth == 0
    });
    end.map_or(text, |end| &text[..end])
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks = vec![Block::default()];
    for line in markdown.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let (key, title) = heading.split_once(": ").unwrap_or((heading, heading));
            blocks.push(Block {
                key: key.to_owned(),
                title: title.to_owned(),
                ..Block::default()
            });
        } else if let Some(block) = blocks.last_mut() {
            block.add(line);
        }
    }
    blocks
}

impl Block {
    fn add(&mut self, line: &str) {
        let continued = match self.sentences.last_mut() {
            Some(sentence) if line.starts_with("  ") => sentence,
            _ => &mut self.text,
        };
        if let Some(title) = line.strip_prefix("# ") {
            title.clone_into(&mut self.title);
        } else if let Some(sentence) = line.strip_prefix("- ") {
            self.sentences.push(sentence.to_owned());
        } else if line.starts_with("|---") || line.is_empty() {
            // Below a table's head, or between paragraphs.
        } else if let Some(cells) = line.strip_prefix('|') {
            let cells = cells.trim_end_matches('|').split('|');
            self.rows
                .push(cells.map(|cell| cell.trim().to_owned()).collect());
        } else {
            if !continued.is_empty() {
                continued.push(' ');
            }
            continued.push_str(line.trim());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::median;

    const TEXT: &str = "\
# What {app} costs

A question
in two lines.

## Answer

- It takes {exit_ns.cpuid:round} ns,
  {exit_ns.cpuid / exit_ns.eoi:2} of the other.
- {exit_ns.ipi} is missing.
- {emulated}Emulated: {said}.

## costs: By kind of {app}

| kind | ns | net |
|---|---|---|
| {kind} | {exit_ns.{kind}:text} | {exit_ns.{kind} - exit_ns.eoi} |
| given | {seen} | 1 |
";

    const METRICS: &[Metric] = &[Metric::less("exit_ns", "ns")];

    fn figures() -> Vec<Figure> {
        let figures = [
            median("exit_ns.cpuid", "ns", &[10.4]),
            median("exit_ns.eoi", "ns", &[4.0]),
        ];
        figures.into_iter().flatten().collect()
    }

    #[test]
    fn sentences_and_rows_without_a_value_are_left_out() {
        let figures = figures();
        let template = Template::new(TEXT, METRICS, &figures)
            .set("app", "x")
            .set("said", "{y}");
        let report = template.only_if("emulated", true).report();
        assert_eq!(report.title, "What x costs");
        assert_eq!(report.question, "A question in two lines.");
        let said = ["It takes 10 ns, 2.6 of the other.", "Emulated: {y}."];
        assert_eq!(report.answer, said);
        assert_eq!(report.method, Vec::<String>::new());
        let template = Template::new(TEXT, METRICS, &figures)
            .set("app", "x")
            .set("said", "y");
        assert_eq!(
            template
                .only_if("emulated", false)
                .sentences("Answer")
                .len(),
            1
        );
    }

    #[test]
    fn a_row_stands_for_each_that_has_figures() {
        let figures = figures();
        let template = Template::new(TEXT, METRICS, &figures)
            .set("app", "x")
            .set("said", "")
            .maybe("seen", None::<f64>);
        let rows = ["cpuid", "gate"].map(|kind| row([("kind", kind)]));
        let section = template.tabled("costs", rows).unwrap();
        assert_eq!(section.title, "By kind of x");
        let html = section.html;
        assert!(html.contains(">cpuid<") && html.contains(">10.4<") && html.contains(">6.4<"));
        assert!(!html.contains("gate"), "{html}");
        assert_eq!(html.matches(">given<").count(), 2, "{html}");
        assert!(html.contains("<td>–</td><td>1</td>"), "{html}");
        assert!(template.tabled("costs", []).is_none());
    }

    #[test]
    fn what_is_computed_of_two_arms_has_the_interval_that_follows_from_theirs() {
        let around = |value: f64| (-5..=5).map(move |step| value + f64::from(step) / 10.0);
        let figures = [
            median("exit_ns.user", "ns", &around(40.0).collect::<Vec<_>>()),
            median("exit_ns.kernel", "ns", &around(10.0).collect::<Vec<_>>()),
            median("exit_ns.once", "ns", &[5.0]),
        ];
        let figures: Vec<Figure> = figures.into_iter().flatten().collect();
        let template = Template::new("", METRICS, &figures);
        let text = |expression: &str| template.expand(expression, &Row::new()).text.unwrap();
        // Both have 0.31 to either side: the root of the squares' sum.
        let net = text("{exit_ns.user - exit_ns.kernel:text}");
        assert_eq!(net, "30 (29.56 .. 30.44)");
        let times = text("{exit_ns.user / exit_ns.kernel:text}");
        assert_eq!(times, "4 (3.877 .. 4.131)");
        for (expression, expected) in [
            ("{exit_ns.user / exit_ns.once:text}", "8 (no interval)"),
            ("{exit_ns.user - exit_ns.once:text}", "35 (no interval)"),
            ("{exit_ns.user * 0.001:text}", "0.04 (0.0397 .. 0.0403)"),
            ("{exit_ns.once * 0.001:text}", "0.005"),
            ("{exit_ns.user / exit_ns.kernel:2}", "4"),
        ] {
            assert_eq!(text(expression), expected, "{expression}");
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "neither given nor of a metric")]
    fn a_name_that_is_not_known_is_a_mistake() {
        Template::new("# {exitns.cpuid}", METRICS, &[]).report();
    }
}
