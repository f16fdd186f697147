//! A command line in words. Only blanks separate them.

use super::reply::Reply;
use crate::limits::MAX_KEY;

/// The words of a line, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|byte| *byte != b' ')?;
        let rest = &self.rest[start..];
        let end = rest.iter().position(|byte| *byte == b' ');
        let (word, rest) = rest.split_at(end.unwrap_or(rest.len()));
        self.rest = rest;
        Some(word)
    }
}

/// Most words behind any command but the `get`s, and one to tell too many.
const MOST: usize = 7;

/// The words behind a command's name.
pub(super) struct Arguments<'a> {
    words: [&'a [u8]; MOST],
    count: usize,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(words: Words<'a>) -> Self {
        let mut arguments = Self {
            words: [b""; MOST],
            count: 0,
        };
        for (place, word) in arguments.words.iter_mut().zip(words) {
            *place = word;
            arguments.count += 1;
        }
        arguments
    }

    /// How many there are, at most [`MOST`].
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The word at `at`, empty if there is none.
    pub(super) fn get(&self, at: usize) -> &'a [u8] {
        self.words[at]
    }

    /// The first word, if a key may be as long.
    pub(super) fn key(&self) -> Option<&'a [u8]> {
        let key = self.words[0];
        (key.len() <= MAX_KEY).then_some(key)
    }

    /// What the last word says about an answer.
    pub(super) fn reply(&self) -> Reply {
        let last = self.count.checked_sub(1).map(|at| self.words[at]);
        if last == Some(b"noreply") {
            Reply::Unwanted
        } else {
            Reply::Wanted
        }
    }
}
