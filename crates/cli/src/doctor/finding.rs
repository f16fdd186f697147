//! One line of `tare doctor`.

use std::fmt::Write as _;

use serde::Serialize;

/// Column of the values.
const VALUE_COLUMN: usize = 24;

/// How far a feature is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// Fully.
    Ok,
    /// With limits that the value names.
    Limited,
    /// Not available.
    Missing,
}

/// One feature of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Its name.
    pub(crate) name: &'static str,
    /// How far it is available.
    pub(crate) status: Status,
    /// What was found.
    pub(crate) value: String,
    /// What to do, if it is missing and can be provided.
    pub(crate) remedy: Option<String>,
}

impl Finding {
    /// A feature that is available.
    pub(crate) fn ok(name: &'static str, value: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, value)
    }

    /// A feature that is available in part.
    pub(crate) fn limited(name: &'static str, value: impl Into<String>) -> Self {
        Self::new(name, Status::Limited, value)
    }

    /// A feature that is missing.
    pub(crate) fn missing(name: &'static str, value: impl Into<String>) -> Self {
        Self::new(name, Status::Missing, value)
    }

    /// Adds what to do about it.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    fn new(name: &'static str, status: Status, value: impl Into<String>) -> Self {
        Self {
            name,
            status,
            value: value.into(),
            remedy: None,
        }
    }
}

/// The findings for people, in lines of up to `width` columns.
pub(crate) fn text(findings: &[Finding], width: usize) -> String {
    let mut text = String::new();
    for finding in findings {
        let status = match finding.status {
            Status::Ok => "ok",
            Status::Limited => "limited",
            Status::Missing => "missing",
        };
        let head = format!("{status:<8} {:<15}", finding.name);
        let mut words = finding.value.clone();
        if let Some(remedy) = &finding.remedy {
            let _ = write!(words, "; {remedy}");
        }
        wrapped(&head, &words, width, &mut text);
    }
    text
}

fn wrapped(head: &str, words: &str, width: usize, text: &mut String) {
    let mut line = head.to_owned();
    for word in words.split(' ') {
        if line.len() > VALUE_COLUMN && line.len() + 1 + word.len() > width {
            let _ = writeln!(text, "{}", line.trim_end());
            line = " ".repeat(VALUE_COLUMN);
        }
        if line.len() > VALUE_COLUMN {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_findings_are_wrapped_beneath_their_value() {
        let finding = Finding::missing("bpf", "no ".repeat(40).trim_end())
            .remedy("mount tracefs: mount -t tracefs nodev /sys/kernel/tracing");
        let text = text(&[finding, Finding::ok("kvm", "hardware")], 79);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() < 80), "{text}");
        assert!(lines[0].starts_with("missing  bpf            "), "{text}");
        assert!(lines[1].starts_with(&" ".repeat(VALUE_COLUMN)), "{text}");
        assert_eq!(lines.last(), Some(&"ok       kvm            hardware"));
    }
}
