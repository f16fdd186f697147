//! Advice as text.

use std::fmt::Write as _;

use tare_advise::class_name;

use super::advised::Advised;
use crate::output::width;

/// All recommendations as text.
pub(super) fn of(all: &[Advised]) -> String {
    let parts: Vec<String> = all.iter().map(one).collect();
    parts.join("\n")
}

fn one(advised: &Advised) -> String {
    let mut text = format!("{}\n", advised.subject);
    if let Some(line) = measured(advised) {
        text.push_str(&paragraph("  ", &line));
    }
    let report = &advised.report;
    if report.advice.is_empty() {
        text.push_str("  Nothing to change.\n");
    }
    for (place, advice) in report.advice.iter().enumerate() {
        let number = format!("  {}. ", place + 1);
        text.push_str(&paragraph(&number, &sentence(&advice.what)));
        let lines = [
            ("because: ", advice.because.clone()),
            ("evidence: ", advice.evidence.to_owned()),
            ("gain: ", advice.gain.to_string()),
        ];
        for (head, line) in lines.iter().filter(|(_, line)| !line.is_empty()) {
            text.push_str(&paragraph(&format!("     {head}"), line));
        }
        // On one line, whatever its length, so that it can be pasted.
        if let Some(command) = &advice.command {
            let _ = writeln!(text, "     do: {command}");
        }
    }
    for not_applicable in &report.not_applicable {
        let line = format!(
            "rule {} does not apply: {}",
            not_applicable.rule, not_applicable.why
        );
        text.push_str(&paragraph("  - ", &line));
    }
    for missing in &advised.unavailable {
        let _ = writeln!(text, "  - {missing}");
    }
    text
}

fn measured(advised: &Advised) -> Option<String> {
    let facts = &advised.facts;
    facts.platform?;
    let kind = match facts.class {
        Some(class) => class_name(class),
        None if facts.timer_driven => "waits for its own timers",
        None => "ran too little to classify",
    };
    Some(format!(
        "{kind}; {:.2} CPUs busy, {:.1} % of runnable time waiting for a CPU, {} moves/s, {} of {} \
         threads bound",
        facts.busy_millicpus as f64 / 1000.0,
        facts.ready_permille as f64 / 10.0,
        facts.migrations_per_s,
        facts.layout.bound_threads,
        facts.layout.threads,
    ))
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

fn paragraph(head: &str, text: &str) -> String {
    let indent = " ".repeat(head.chars().count());
    let options = textwrap::Options::new(width())
        .initial_indent(head)
        .subsequent_indent(&indent)
        .break_words(false);
    textwrap::fill(text, options) + "\n"
}
