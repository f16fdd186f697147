//! Templates with figures of kept runs.
//!
//! | form | result |
//! |---|---|
//! | `{{run NAME = DIRECTORY}}` | nothing; names a run of `lab/runs` |
//! | `{{NAME:FIGURE \| 2}}` | the figure with two decimals |
//! | `{{NAME:FIGURE \| 1 ci}}` | with its interval, `51.6 (45.6 to 57.1)`, or `(range 45.6 to 57.1)` |
//! | `{{100 - NAME:A \| 1}}`, `{{NAME:A / NAME:B \| 2}}` | left to right, without brackets |
//! | `{{NAME:FIGURE \| n}}` | the number of samples |
//! | `{{NAME:FIGURE \| goal}}` | the goal and what the run says of it: `60: met` |

use std::collections::HashMap;

use anyhow::{Context, Result, bail};

use super::runs::{Figure, Run};

/// Fills a template; `load` reads a run by its directory.
pub(crate) fn fill(template: &str, load: impl Fn(&str) -> Result<Run>) -> Result<String> {
    let mut runs: HashMap<String, Run> = HashMap::new();
    let mut out = String::new();
    for line in template.split_inclusive('\n') {
        if let Some((name, directory)) = definition(line) {
            runs.insert(name.to_owned(), load(directory)?);
        } else {
            out.push_str(&filled_line(line, &runs)?);
        }
    }
    Ok(out)
}

/// `{{run NAME = DIRECTORY}}`, alone on a line.
fn definition(line: &str) -> Option<(&str, &str)> {
    let inner = line.trim_end().strip_prefix("{{run ")?.strip_suffix("}}")?;
    let (name, directory) = inner.split_once('=')?;
    Some((name.trim(), directory.trim()))
}

fn filled_line(line: &str, runs: &HashMap<String, Run>) -> Result<String> {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("{{") {
        let (form, tail) = after
            .split_once("}}")
            .with_context(|| format!("no }}}} in: {line}"))?;
        out.push_str(before);
        out.push_str(&value(form, runs).with_context(|| format!("{{{{{form}}}}}"))?);
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

fn value(form: &str, runs: &HashMap<String, Run>) -> Result<String> {
    let (expression, format) = form.rsplit_once('|').context("no format behind |")?;
    let figure = evaluated(expression, runs)?;
    match format.trim() {
        "n" => Ok(figure.n.to_string()),
        "goal" => {
            let goal = figure.goal.context("the run has no goal for it")?;
            let decimals = goal.limit.to_string();
            let decimals = decimals.split_once('.').map_or(0, |(_, it)| it.len());
            Ok(format!(
                "{}: {}",
                number(goal.limit, decimals),
                goal.verdict
            ))
        }
        format => {
            let (digits, interval) = match format.strip_suffix(" ci") {
                Some(digits) => (digits, true),
                None => (format, false),
            };
            let digits: usize = digits.parse().context("decimals, `N ci` or n")?;
            Ok(shown(&figure, digits, interval))
        }
    }
}

fn shown(figure: &Figure, digits: usize, interval: bool) -> String {
    let value = number(figure.value, digits);
    match (figure.low, figure.high) {
        (Some(low), Some(high)) if interval && figure.n > 1 => {
            let (low, high) = (number(low, digits), number(high, digits));
            let word = if figure.is_range() { "range " } else { "" };
            format!("{value} ({word}{low} to {high})")
        }
        _ => value,
    }
}

/// Terms and operators in turn, separated by blanks, from left to right.
fn evaluated(expression: &str, runs: &HashMap<String, Run>) -> Result<Figure> {
    let mut words = expression.split_whitespace();
    let first = words.next().context("no figure")?;
    let mut result = term(first, runs)?;
    while let Some(operator) = words.next() {
        let right = term(words.next().context("no figure behind the operator")?, runs)?;
        result = Figure {
            value: apply(operator, result.value, right.value)?,
            n: result.n.min(right.n),
            ..Figure::default()
        };
    }
    Ok(result)
}

fn apply(operator: &str, left: f64, right: f64) -> Result<f64> {
    Ok(match operator {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" => left / right,
        _ => bail!("unknown operator {operator}"),
    })
}

fn term(word: &str, runs: &HashMap<String, Run>) -> Result<Figure> {
    if let Ok(value) = word.parse() {
        return Ok(Figure {
            value,
            n: u64::MAX,
            ..Figure::default()
        });
    }
    let (name, figure) = word
        .split_once(':')
        .context("neither number nor NAME:FIGURE")?;
    let run = runs.get(name).with_context(|| format!("no run {name}"))?;
    run.get(figure)
        .cloned()
        .with_context(|| format!("{name} has no figure {figure}"))
}

/// With decimals and commas between thousands.
fn number(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let zero = text.chars().all(|c| c == '0' || c == '.');
    let sign = if value < 0.0 && !zero { "-" } else { "" };
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{decimals}")
}

#[cfg(test)]
mod tests {
    use super::super::runs::Goal;
    use super::*;

    fn figure(value: f64, n: u64) -> Figure {
        Figure {
            value,
            low: Some(value - 1.0),
            high: Some(value + 1.0),
            n,
            ..Figure::default()
        }
    }

    fn filled(template: &str) -> Result<String> {
        let template = format!("{{{{run r = 2026-run}}}}\n{template}");
        fill(&template, |directory| {
            assert_eq!(directory, "2026-run");
            Ok(Run::from([
                ("cpu.a".to_owned(), figure(50.25, 10)),
                ("cpu.b".to_owned(), figure(100.5, 1)),
                ("insns".to_owned(), figure(1_234_567.0, 3)),
                (
                    "bytes".to_owned(),
                    Figure {
                        goal: Some(Goal {
                            limit: 420_000.0,
                            verdict: "met".to_owned(),
                        }),
                        ..figure(416_976.0, 1)
                    },
                ),
                (
                    "share".to_owned(),
                    Figure {
                        goal: Some(Goal {
                            limit: 0.125,
                            verdict: "undecided".to_owned(),
                        }),
                        ..figure(0.2, 3)
                    },
                ),
            ]))
        })
    }

    #[test]
    fn figures_have_the_decimals_and_intervals_that_the_template_asks_for() {
        let line = "| {{r:cpu.a | 1}} | {{r:cpu.a | 1 ci}} | {{r:insns | 0}} |\n";
        let expected = "| 50.2 | 50.2 (49.2 to 51.2) | 1,234,567 |\n";
        assert_eq!(filled(line).unwrap(), expected);
    }

    #[test]
    fn a_range_of_few_samples_is_called_one() {
        let range = "1,234,567 (range 1,234,566 to 1,234,568)";
        assert_eq!(filled("{{r:insns | 0 ci}}").unwrap(), range);
    }

    #[test]
    fn one_sample_has_no_interval() {
        assert_eq!(filled("{{r:cpu.b | 1 ci}}").unwrap(), "100.5");
        assert_eq!(filled("{{r:cpu.a | n}}").unwrap(), "10");
    }

    #[test]
    fn a_goal_has_the_limit_and_the_verdict_of_its_run() {
        assert_eq!(filled("{{r:bytes | goal}}").unwrap(), "420,000: met");
        assert_eq!(filled("{{r:share | goal}}").unwrap(), "0.125: undecided");
        assert!(filled("{{r:cpu.a | goal}}").is_err());
        assert!(filled("{{r:bytes / r:share | goal}}").is_err());
    }

    #[test]
    fn expressions_go_from_left_to_right() {
        assert_eq!(filled("{{r:cpu.a / r:cpu.b | 2}}").unwrap(), "0.50");
        assert_eq!(filled("{{100 - r:cpu.b * 2 | 0}}").unwrap(), "-1");
    }

    #[test]
    fn a_figure_that_no_run_has_is_an_error() {
        assert!(filled("{{r:gone | 1}}").is_err());
        assert!(filled("{{s:cpu.a | 1}}").is_err());
        assert!(filled("{{r:cpu.a}}").is_err());
        assert!(filled("{{r:cpu.a | 1").is_err());
    }

    #[test]
    fn numbers_are_grouped_and_zero_has_no_sign() {
        assert_eq!(number(1_000.0, 0), "1,000");
        assert_eq!(number(-0.001, 2), "0.00");
        assert_eq!(number(-1234.5, 1), "-1,234.5");
        assert_eq!(number(999.0, 0), "999");
    }
}
