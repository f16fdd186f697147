//! Preconditions (RFC 9110, 13): may this request go on?

use crate::http_date;
use crate::request::{Conditions, Lines};

/// What identifies a version of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Validators<'a> {
    /// The strong entity tag, with its quotes.
    pub etag: &'a [u8],
    /// `Last-Modified` as sent.
    pub last_modified: &'a [u8],
    /// The same in seconds since 1970.
    pub modified_s: u64,
}

/// The outcome of a request's preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreconditionResult {
    /// Answer as if there were none.
    Proceed,
    /// 304
    NotModified,
    /// 412
    Failed,
}

/// Evaluates in the order of RFC 9110, 13.2.2, for GET and HEAD of a file.
pub(crate) fn evaluate(conditions: &Conditions<'_>, file: &Validators<'_>) -> PreconditionResult {
    if !conditions.if_match.is_empty() {
        if !any_matches(&conditions.if_match, file, Comparison::Strong) {
            return PreconditionResult::Failed;
        }
    } else if unmodified_since(conditions.if_unmodified_since, file) == Some(false) {
        return PreconditionResult::Failed;
    }
    if !conditions.if_none_match.is_empty() {
        if any_matches(&conditions.if_none_match, file, Comparison::Weak) {
            return PreconditionResult::NotModified;
        }
    } else if unmodified_since(conditions.if_modified_since, file) == Some(true) {
        return PreconditionResult::NotModified;
    }
    PreconditionResult::Proceed
}

/// Whether `If-Range` allows a part to be sent (RFC 9110, 13.1.5): its tag is
/// compared strongly, its date exactly.
pub(crate) fn range_applies(if_range: Option<&[u8]>, file: &Validators<'_>) -> bool {
    match if_range {
        None => true,
        Some(value) => value == file.etag || value == file.last_modified,
    }
}

/// `None` if there is no date or it cannot be read.
fn unmodified_since(date: Option<&[u8]>, file: &Validators<'_>) -> Option<bool> {
    let date = date?;
    // What this server said comes back byte for byte.
    if date == file.last_modified {
        return Some(true);
    }
    Some(file.modified_s <= http_date::parse(date)?)
}

/// How entity tags are compared (RFC 9110, 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

fn any_matches(lines: &Lines<'_>, file: &Validators<'_>, comparison: Comparison) -> bool {
    lines
        .iter()
        .any(|line| line_matches(line, file.etag, comparison))
}

/// A line is `*` or a list of tags; a tag may contain commas.
fn line_matches(line: &[u8], etag: &[u8], comparison: Comparison) -> bool {
    let mut rest = line.trim_ascii();
    if rest == b"*" {
        return true;
    }
    while !rest.is_empty() {
        let (weak, tagged) = match rest.strip_prefix(b"W/") {
            Some(tagged) => (true, tagged),
            None => (false, rest),
        };
        let Some(len) = tag_len(tagged) else {
            return false;
        };
        if &tagged[..len] == etag && !(weak && comparison == Comparison::Strong) {
            return true;
        }
        rest = tagged[len..].trim_ascii_start();
        rest = match rest.strip_prefix(b",") {
            Some(rest) => rest.trim_ascii_start(),
            None => return false,
        };
    }
    false
}

/// Length of the quoted tag at the start.
fn tag_len(text: &[u8]) -> Option<usize> {
    let inner = text.strip_prefix(b"\"")?;
    Some(inner.iter().position(|byte| *byte == b'"')? + 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: Validators<'static> = Validators {
        etag: b"\"a-1\"",
        last_modified: b"Sun, 06 Nov 1994 08:49:37 GMT",
        modified_s: 784_111_777,
    };
    const BEFORE: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";

    fn none_match(lines: &[&'static str]) -> PreconditionResult {
        let conditions = Conditions {
            if_none_match: lines.iter().map(|line| line.as_bytes()).collect(),
            ..Conditions::default()
        };
        evaluate(&conditions, &FILE)
    }

    fn if_match(line: &str) -> PreconditionResult {
        let conditions = Conditions {
            if_match: [line.as_bytes()].into_iter().collect(),
            ..Conditions::default()
        };
        evaluate(&conditions, &FILE)
    }

    #[test]
    fn if_none_match_finds_its_tag_in_lists() {
        for lines in [
            &["\"a-1\""][..],
            &["*"],
            &["W/\"a-1\""],
            &["\"x\", \"a-1\""],
            &["\"x\",\"y\" , W/\"a-1\""],
            &["\"with, comma\", \"a-1\""],
            &["\"x\"", "\"a-1\""],
            &[" \"a-1\" "],
        ] {
            assert_eq!(
                none_match(lines),
                PreconditionResult::NotModified,
                "{lines:?}"
            );
        }
        for lines in [
            &["\"a-2\""][..],
            &["a-1"],
            &["\"a-1"],
            &["\"x\" \"a-1\""],
            &["w/\"a-1\""],
            &[""],
            &["\"*\""],
        ] {
            assert_eq!(none_match(lines), PreconditionResult::Proceed, "{lines:?}");
        }
    }

    #[test]
    fn if_match_compares_strongly() {
        assert_eq!(if_match("\"a-1\""), PreconditionResult::Proceed);
        assert_eq!(if_match("*"), PreconditionResult::Proceed);
        assert_eq!(if_match("W/\"a-1\""), PreconditionResult::Failed);
        assert_eq!(if_match("\"b\", \"c\""), PreconditionResult::Failed);
    }

    #[test]
    fn dates_decide_without_tags() {
        let since = |date| {
            let conditions = Conditions {
                if_modified_since: Some(date),
                ..Conditions::default()
            };
            evaluate(&conditions, &FILE)
        };
        assert_eq!(since(FILE.last_modified), PreconditionResult::NotModified);
        assert_eq!(since(AFTER), PreconditionResult::NotModified);
        assert_eq!(
            since(b"Sunday, 06-Nov-94 08:49:37 GMT"),
            PreconditionResult::NotModified
        );
        assert_eq!(since(BEFORE), PreconditionResult::Proceed);
        assert_eq!(since(b"yesterday"), PreconditionResult::Proceed);
        let unmodified = |date| {
            let conditions = Conditions {
                if_unmodified_since: Some(date),
                ..Conditions::default()
            };
            evaluate(&conditions, &FILE)
        };
        assert_eq!(unmodified(FILE.last_modified), PreconditionResult::Proceed);
        assert_eq!(unmodified(AFTER), PreconditionResult::Proceed);
        assert_eq!(unmodified(BEFORE), PreconditionResult::Failed);
        assert_eq!(unmodified(b"yesterday"), PreconditionResult::Proceed);
    }

    #[test]
    fn tags_take_precedence_over_dates() {
        let one = |line: &'static [u8]| [line].into_iter().collect();
        let conditions = Conditions {
            if_none_match: one(b"\"other\""),
            if_modified_since: Some(AFTER),
            ..Conditions::default()
        };
        assert_eq!(evaluate(&conditions, &FILE), PreconditionResult::Proceed);
        let conditions = Conditions {
            if_match: one(b"\"a-1\""),
            if_unmodified_since: Some(BEFORE),
            ..Conditions::default()
        };
        assert_eq!(evaluate(&conditions, &FILE), PreconditionResult::Proceed);
        let conditions = Conditions {
            if_match: one(b"\"other\""),
            if_none_match: one(b"\"a-1\""),
            ..Conditions::default()
        };
        assert_eq!(
            evaluate(&conditions, &FILE),
            PreconditionResult::Failed,
            "412 comes first"
        );
    }

    #[test]
    fn if_range_wants_exactly_this_version() {
        assert!(range_applies(None, &FILE));
        assert!(range_applies(Some(FILE.etag), &FILE));
        assert!(range_applies(Some(FILE.last_modified), &FILE));
        assert!(!range_applies(Some(b"W/\"a-1\""), &FILE));
        assert!(!range_applies(Some(AFTER), &FILE));
    }

    proptest! {
        #[test]
        fn no_list_crashes_it(line in prop::collection::vec(prop::sample::select(&b"\"W/,* a-1"[..]), 0..40)) {
            line_matches(&line, FILE.etag, Comparison::Weak);
        }

        #[test]
        fn a_list_with_the_tag_matches(before in prop::collection::vec("(W/)?\"[a-z,]{0,5}\"", 0..5)) {
            let mut line = before.join(", ");
            if !line.is_empty() {
                line.push(',');
            }
            line.push_str("\"a-1\"");
            prop_assert!(line_matches(line.as_bytes(), FILE.etag, Comparison::Strong));
        }
    }
}
