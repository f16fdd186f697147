//! A run's figures for other programs and for pull requests: CSV, OpenMetrics, Markdown.

pub(crate) mod samples;

use std::fmt::Write as _;

use serde::Serialize;
use tare_host::printable::{printable, printable_lines};

use crate::figure::{Figure, find};
use crate::goal::Judgement;
use crate::report::ReportText;
use crate::summary::Summary;

/// `figures.csv`: a line for each figure (RFC 4180).
pub(crate) fn csv(summary: &Summary) -> String {
    let mut out =
        String::from("figure,unit,value,low,high,spread,statistic,n,goal,verdict,bound\n");
    for figure in &summary.figures {
        let goal = summary.goals.iter().find(|goal| goal.figure == figure.name);
        let end = |end: Option<f64>| end.map_or(String::new(), |end| end.to_string());
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{},{},{},{},{}",
            csv_field(&figure.name),
            csv_field(&figure.unit),
            figure.value,
            end(figure.low),
            end(figure.high),
            word(&figure.spread),
            word(&figure.statistic),
            figure.n,
            goal.map_or(String::new(), |goal| goal.bound.limit().to_string()),
            goal.map_or(String::new(), |goal| word(&goal.verdict)),
            goal.map_or("", |goal| goal.bound.words()),
        );
    }
    out
}

/// `metrics.txt`: the figures in OpenMetrics 1.0, for a store of time series. Depth and subject are
/// labels: runs that differ in them do not compare. A label without a value is left out.
pub(crate) fn metrics(summary: &Summary) -> String {
    let mut out = String::new();
    let known = [
        ("experiment", Some(&summary.experiment)),
        ("depth", summary.depth.as_ref()),
        ("subject", summary.subject.as_ref()),
    ];
    let labels = known
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}=\"{}\",", label(value?))));
    let labels: String = labels.collect();
    let mut family = |name: &str, help: &str, values: &dyn Fn(&Figure) -> Option<f64>| {
        let _ = writeln!(out, "# TYPE {name} gauge\n# HELP {name} {help}");
        for figure in &summary.figures {
            if let Some(value) = values(figure) {
                let (of, unit) = (label(&figure.name), label(&figure.unit));
                let _ = writeln!(
                    out,
                    "{name}{{{labels}figure=\"{of}\",unit=\"{unit}\"}} {value}"
                );
            }
        }
    };
    family("tare_figure", "A figure of a weighing.", &|it| {
        Some(it.value)
    });
    let low = "Lower end of its 95 % interval.";
    family("tare_figure_low", low, &|it| Some(it.interval()?.0));
    let high = "Upper end of its 95 % interval.";
    family("tare_figure_high", high, &|it| Some(it.interval()?.1));
    family("tare_figure_samples", "What was repeated.", &|it| {
        Some(it.n as f64)
    });
    let verdict = |figure: &Figure| {
        let goal = summary.goals.iter().find(|it| it.figure == figure.name)?;
        match goal.verdict {
            Judgement::Met => Some(1.0),
            Judgement::Missed => Some(0.0),
            Judgement::Undecided => None,
        }
    };
    family(
        "tare_goal_met",
        "1 for met, 0 for missed, absent for undecided.",
        &verdict,
    );
    out.push_str("# EOF\n");
    out
}

/// A label's value: backslash, quote and newline are escaped.
fn label(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
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

/// Text as it stands in a Markdown table: without columns, code or markup.
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
pub fn csv_field(text: &str) -> String {
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
        out.push_str("| figure | measured | goal | verdict |\n|---|---|---|---|\n");
    }
    for goal in &summary.goals {
        let measured =
            find(&summary.figures, &goal.figure).map_or(String::new(), |figure| figure.text());
        let verdict = match goal.verdict {
            Judgement::Missed => "**missed**",
            other => other.word(),
        };
        let name = in_code(&goal.figure);
        let limit = crate::number::number(goal.bound.limit());
        let words = goal.bound.words();
        let _ = writeln!(
            out,
            "| `{name}` | {measured} | {words} {limit} | {verdict} |"
        );
    }
    if !summary.goals.is_empty() {
        out.push('\n');
    }
    out.push_str("| figure | value (95 % interval, or range) | unit | is a | n |\n");
    out.push_str("|---|---|---|---|---|\n");
    for figure in &summary.figures {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            in_code(&figure.name),
            figure.text(),
            in_markdown(&figure.unit),
            figure.statistic.text(),
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
    fn metrics_are_openmetrics_with_escaped_labels() {
        let figure = |name: &str, samples: &[f64]| crate::figure::median(name, "1/s", samples);
        let figures: Vec<Figure> = [
            figure("a\"b\\", &[1.0]),
            figure("iops", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        ]
        .into_iter()
        .flatten()
        .collect();
        let json = serde_json::json!({
            "experiment": "vic", "started": "", "revision": "", "figures": figures,
            "machine": crate::host::HostFacts::default(),
            "goals": [{"figure": "iops", "at_most": 9.0, "verdict": "met"}],
        });
        let summary: Summary = serde_json::from_value(json).expect("a summary");
        let text = metrics(&summary);
        assert!(text.contains(r#"figure="a\"b\\",unit="1/s"} 1"#), "{text}");
        assert!(text.contains("tare_figure_samples{experiment=\"vic\",figure=\"iops\""));
        assert_eq!(text.matches("tare_figure_low{").count(), 1, "{text}");
        assert_eq!(text.matches("tare_goal_met{").count(), 1);
        assert!(text.ends_with("# EOF\n"));
        assert_eq!(text.matches("# TYPE").count(), 5);
        let of_app = Summary {
            depth: Some("quick".to_owned()),
            subject: Some("a\"b".to_owned()),
            ..summary
        };
        let labels = r#"tare_figure{experiment="vic",depth="quick",subject="a\"b",figure="iops""#;
        assert!(metrics(&of_app).contains(labels), "{}", metrics(&of_app));
    }

    #[test]
    fn fields_with_commas_and_quotes_are_quoted() {
        assert_eq!(csv_field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(csv_field("plain"), "plain");
    }
}
