//! A run's figures for other programs and for pull requests: CSV and Markdown.

use std::fmt::Write as _;

use serde::Serialize;
use tare_host::printable::{printable, printable_lines};

use crate::experiments::ReportText;
use crate::figure::find;
use crate::goal::Judgement;
use crate::summary::Summary;

/// `figures.csv`: a line for each figure (RFC 4180).
pub(crate) fn csv(summary: &Summary) -> String {
    let mut out = String::from("figure,unit,value,low,high,spread,statistic,n,goal,verdict\n");
    for figure in &summary.figures {
        let goal = summary.goals.iter().find(|goal| goal.figure == figure.name);
        let end = |end: Option<f64>| end.map_or(String::new(), |end| end.to_string());
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{}",
            quoted(&figure.name),
            quoted(&figure.unit),
            figure.value,
            end(figure.low),
            end(figure.high),
            word(&figure.spread),
            word(&figure.statistic),
            figure.n,
            goal.map_or(String::new(), |goal| goal.at_most.to_string()),
            goal.map_or(String::new(), |goal| word(&goal.verdict)),
        );
    }
    out
}

/// The name that JSON has for a value.
pub(crate) fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// Text within backquotes in a Markdown table.
fn in_code(text: &str) -> String {
    printable(text).replace('`', "'").replace('|', "\\|")
}

/// Text as it stands in a Markdown table: no column, code or markup of its own.
pub(crate) fn in_markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable_lines(text).chars() {
        match c {
            '|' | '`' | '*' | '[' | ']' | '\\' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            c => out.push(c),
        }
    }
    out
}

/// A field of CSV (RFC 4180).
pub(crate) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// `report.md`: the answer, goals, figures and limitations, for a pull request.
pub(crate) fn markdown(summary: &Summary, text: &ReportText) -> String {
    let mut out = format!("# {}\n\n", text.title);
    let _ = writeln!(
        out,
        "`tare weigh {}`, {}, revision {}\n",
        summary.experiment, summary.started, summary.revision
    );
    if let Some(why) = &summary.not_judged {
        let _ = writeln!(out, "> **Goals {}**\n", in_markdown(why));
    }
    if let Some(busy) = summary.machine.busy() {
        let _ = writeln!(out, "> **Warning:** {busy}\n");
    }
    for sentence in &text.answer {
        let _ = writeln!(out, "{sentence}\n");
    }
    if !summary.goals.is_empty() {
        out.push_str("| goal | measured | at most | verdict |\n|---|---|---|---|\n");
    }
    for goal in &summary.goals {
        let measured = find(&summary.figures, &goal.figure);
        let measured = measured.map_or(String::new(), |figure| figure.text());
        let verdict = match goal.verdict {
            Judgement::Missed => "**missed**",
            other => other.word(),
        };
        let (name, limit) = (in_code(&goal.figure), crate::table::number(goal.at_most));
        let _ = writeln!(out, "| `{name}` | {measured} | {limit} | {verdict} |");
    }
    out.push_str("\n| figure | value (95 % interval, or range) | unit | is a | n |\n");
    out.push_str("|---|---|---|---|---|\n");
    for figure in &summary.figures {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            in_code(&figure.name),
            figure.text(),
            in_markdown(&figure.unit),
            figure.statistic.words(),
            figure.n
        );
    }
    for (title, sentences) in [("Limitations", &text.limitations), ("Method", &text.method)] {
        if sentences.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n## {title}\n");
        for sentence in sentences {
            let _ = writeln!(out, "- {sentence}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
