//! Mistakes of a file and where they are.

use std::fmt;
use std::ops::Range;

/// Most mistakes that are listed.
const MOST_LISTED: usize = 50;
/// Most characters of one: it may quote the file.
const MOST_CHARS: usize = 400;

/// A place in a text, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    /// The place of byte `at` of `text`, or of its end.
    pub(super) fn of(text: &str, at: usize) -> Self {
        let at = text.floor_char_boundary(at);
        let before = &text[..at];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Places in rising order: a text may have as many mistakes as lines, and is gone through once.
struct Places<'t> {
    text: &'t str,
    at: usize,
    position: Position,
}

impl<'t> Places<'t> {
    fn new(text: &'t str) -> Self {
        let position = Position { line: 1, column: 1 };
        Self {
            text,
            at: 0,
            position,
        }
    }

    /// The place of a byte that is not before the last one's.
    fn next(&mut self, at: usize) -> Position {
        let at = self.text.floor_char_boundary(at).max(self.at);
        let between = &self.text[self.at..at];
        match between.rsplit_once('\n') {
            Some((before, last)) => {
                self.position.line += before.matches('\n').count() + 1;
                self.position.column = last.chars().count() + 1;
            }
            None => self.position.column += between.chars().count(),
        }
        self.at = at;
        self.position
    }
}

/// What is wrong at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where.
    pub at: Position,
    /// What, as a clause.
    pub text: String,
}

/// The mistakes of a file, at least one, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }

    /// A line for each, with the file's name before it.
    pub fn listed(&self, file: &str) -> String {
        let mut lines: Vec<String> = self
            .0
            .iter()
            .take(MOST_LISTED)
            .map(|mistake| format!("{file}:{}: {}", mistake.at, mistake.text))
            .collect();
        if let Some(more @ 1..) = self.0.len().checked_sub(MOST_LISTED) {
            lines.push(format!("and {more} more"));
        }
        lines.join("\n")
    }
}

/// Mistakes as they are found.
#[derive(Default)]
pub(super) struct Found(Vec<(usize, String)>);

impl Found {
    pub(super) fn add(&mut self, span: &Range<usize>, text: impl AsRef<str>) {
        let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let text = text.as_ref().chars().take(MOST_CHARS).map(shown);
        self.0.push((span.start, text.collect()));
    }

    /// `value`, unless there are mistakes.
    pub(super) fn none_or<T>(mut self, text: &str, value: T) -> Result<T, Mistakes> {
        if self.0.is_empty() {
            return Ok(value);
        }
        self.0.sort_by_key(|(at, _)| *at);
        let mut places = Places::new(text);
        let mistakes = self.0.into_iter().map(|(at, what)| Mistake {
            at: places.next(at),
            text: what,
        });
        Err(Mistakes(mistakes.collect()))
    }
}
