//! Files that a guest does not get, for the user to see: a bounded number of
//! sentences, however many a hostile root has.

use tare_program::names;

use crate::quote::escaped;

/// Most files that are named.
const MAX_NAMED: usize = 20;

/// Warnings about files that are left out.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    sentences: Vec<String>,
    unnamed: u64,
}

impl LeftOut {
    /// Notes a file that is left out, and why.
    pub(crate) fn add(&mut self, name: &str, why: &str) {
        self.note(|| format!("{} is left out: {why}", shown(name)));
    }

    /// Notes a part of a file that is left out.
    pub(crate) fn add_part(&mut self, name: &str, part: &str) {
        self.note(|| format!("{} loses a part {part}", shown(name)));
    }

    fn note(&mut self, sentence: impl FnOnce() -> String) {
        if self.sentences.len() < MAX_NAMED {
            self.sentences.push(sentence());
        } else {
            self.unnamed += 1;
        }
    }

    /// One sentence for each, and one for those that are not named.
    pub(crate) fn into_warnings(self) -> Vec<String> {
        let more = self.unnamed;
        let rest = (more > 0).then(|| format!("{more} more files are left out or lose a part"));
        self.sentences.into_iter().chain(rest).collect()
    }
}

fn shown(name: &str) -> String {
    escaped(&String::from_utf8_lossy(&names::bytes(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_files_give_a_few_sentences() {
        let mut left_out = LeftOut::default();
        for _ in 0..25 {
            left_out.add("a\u{1b}", "it is a device");
        }
        let warnings = left_out.into_warnings();
        assert_eq!(warnings.len(), MAX_NAMED + 1);
        assert_eq!(warnings[0], "a\u{fffd} is left out: it is a device");
        assert_eq!(warnings[20], "5 more files are left out or lose a part");
    }
}
