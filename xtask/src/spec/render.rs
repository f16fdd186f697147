//! Renders the specification's page.

use std::fmt::Write;

use super::{Chapter, Promise};

/// Longest line of the page in columns, where words allow it.
const COLUMNS: usize = 100;

const HEAD: &str = "\
# What Tare promises, and the tests that keep it

Generated from [docs/spec](spec) by `cargo xtask spec`; change it there. Each promise to a
user names the test functions that keep it: `cargo xtask tidy` fails when one of them does not
exist or is not a test. A name may stand for tests in more than one crate. Promises that no test
keeps say how they are known, and [goals](#goals) are measured instead of tested.
";

/// The whole page.
pub(crate) fn page(chapters: &[Chapter]) -> String {
    let mut out = HEAD.to_owned();
    out.push('\n');
    for chapter in chapters {
        let title = &chapter.title;
        let covers = code_list(&chapter.covers);
        let _ = writeln!(out, "- [{title}](#{}): {covers}", anchor(title));
    }
    for chapter in chapters {
        section(&mut out, chapter);
    }
    goals(&mut out, chapters);
    out
}

fn section(out: &mut String, chapter: &Chapter) {
    let _ = write!(out, "\n## {}\n\n", chapter.title);
    if let Some(text) = &chapter.introduction {
        let _ = writeln!(out, "{}\n", text.trim());
    }
    for promise in &chapter.promises {
        item(out, promise);
    }
}

fn item(out: &mut String, promise: &Promise) {
    wrapped(out, "- ", "  ", &promise.text);
    if !promise.tests.is_empty() {
        let names = code_list(&promise.tests);
        wrapped(out, "  - ", "    ", &format!("Tests: {names}"));
    }
    if let Some(text) = &promise.by_hand {
        wrapped(out, "  - ", "    ", &format!("No test: {text}"));
    }
    if let Some(text) = &promise.note {
        wrapped(out, "  - ", "    ", &format!("Note: {text}"));
    }
}

fn goals(out: &mut String, chapters: &[Chapter]) {
    out.push_str("\n## Goals\n");
    for chapter in chapters {
        let Some(notes) = &chapter.goals else {
            continue;
        };
        let _ = write!(out, "\n{}\n\n", notes.introduction.trim());
        out.push_str("| goal | figure | where |\n|---|---|---|\n");
        for goal in &chapter.goal_rows {
            let figures = code_list(&goal.figures);
            let _ = writeln!(out, "| {} | {figures} | {} |", goal.text, goal.place);
        }
        if let Some(note) = &notes.note {
            let _ = write!(out, "\n{}\n", note.trim());
        }
    }
}

fn code_list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// The anchor that GitHub and most renderers give a heading.
fn anchor(title: &str) -> String {
    title
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-')
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Writes `text` in lines of at most `COLUMNS`, after `first`, then after `rest`.
fn wrapped(out: &mut String, first: &str, rest: &str, text: &str) {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            let _ = writeln!(out, "{line}");
            rest.clone_into(&mut line);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_stands_on_a_line_beside_its_tests() {
        let chapter = toml::from_str(
            "title = 'The disk'\ncovers = ['crates/d']\n\
             [[promise]]\ntext = 'It is written'\ntests = ['a', 'b']\n\
             [[promise]]\ntext = 'It is fast'\nby_hand = 'by eye'\n",
        )
        .unwrap();
        let page = page(&[chapter]);
        assert!(page.contains("- [The disk](#the-disk): `crates/d`\n"));
        assert!(page.contains("- It is written\n  - Tests: `a`, `b`\n"));
        assert!(page.contains("- It is fast\n  - No test: by eye\n"));
    }

    #[test]
    fn long_lists_of_tests_are_wrapped() {
        let mut out = String::new();
        wrapped(&mut out, "- ", "  ", &"`a_test_with_a_name`, ".repeat(20));
        assert!(out.lines().count() > 3);
        assert!(
            out.lines()
                .all(|line| line.len() <= COLUMNS && !line.ends_with(' '))
        );
        assert!(out.lines().skip(1).all(|line| line.starts_with("  `")));
    }

    #[test]
    fn a_word_longer_than_a_line_stands_alone() {
        let mut out = String::new();
        wrapped(&mut out, "- ", "  ", &format!("a {} b", "x".repeat(120)));
        assert_eq!(out.lines().count(), 3);
    }
}
