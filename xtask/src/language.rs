//! Phrases that the project's text does not use, each with what to write instead.
//!
//! Text is compared word by word across line ends, so a phrase that a comment wraps is found.

/// Phrases in lower case, with the replacement that the message suggests.
const REFUSED: &[(&str, &str)] = &[
    ("to be had", "available"),
    ("for ever", "forever"),
    ("is told", "active voice: gets, reports, logs"),
    ("are told", "active voice: get, report, log"),
    ("is said", "active voice: reports, prints, states"),
    ("are said", "active voice: report, print, state"),
    ("is asked", "active voice: asks, requests"),
    ("cannot be so", "invalid, and which limit"),
    ("the talk", "the source's short name (docs/background.md)"),
    ("first talk", "Toro (docs/background.md)"),
    (
        "second talk",
        "the source's short name (docs/background.md)",
    ),
    ("third talk", "the source's short name (docs/background.md)"),
    (
        "fourth talk",
        "the source's short name (docs/background.md)",
    ),
    ("so many", "this many, or the number"),
    ("was told", "active voice: got, was notified, logged"),
    ("been told", "active voice: got, was notified, logged"),
    ("in the place of", "instead of"),
    ("somebody", "who: another user, a program, a host"),
    ("anybody", "who: any user, program or host"),
    ("everybody", "who: all users, broadcast"),
    ("nobody", "who: no user, no thread, no host"),
    ("of its own", "its own ..., or: separate"),
    ("of their own", "their own ..., or: separate"),
    ("of our own", "our own ..."),
    ("of your own", "your own ..."),
    ("is none of", "is not one of"),
    ("is no part", "is not part"),
    ("systems.md", "docs/background.md"),
    ("last words", "console exit"),
];
/// What is not the project's own prose: kept runs, files of programs that run in guests, and the
/// list itself.
const EXEMPT: &[&str] = &["lab/runs/", "lab/appliances/", "xtask/src/language.rs"];
/// Files with prose in them, by the end of their name.
const PROSE: &[&str] = &[".rs", ".md", ".toml", ".c", ".h", ".sh", "Makefile"];

/// Refused phrases in one file, by line.
pub(crate) fn violations(file: &str, text: &str) -> Vec<String> {
    let prose = PROSE.iter().any(|end| file.ends_with(end));
    let exempt = EXEMPT.iter().any(|path| file.starts_with(path));
    if !prose || exempt {
        return Vec::new();
    }
    let words = words(text);
    let phrases = REFUSED.iter().flat_map(|(phrase, instead)| {
        lines_with(&words, phrase)
            .map(move |line| format!("{file}:{line}: \"{phrase}\": write: {instead}"))
    });
    let negations = negations(&words)
        .map(|(line, noun)| format!("{file}:{line}: \"is no {noun}\": write: is not a(n) {noun}"));
    phrases.chain(negations).collect()
}

/// Where "is no NOUN" stands for "is not a NOUN". "There is no NOUN" and comparisons ("is no
/// longer", "are no more than") are English.
fn negations(words: &[Word]) -> impl Iterator<Item = (usize, &str)> {
    words.windows(4).filter_map(|four| {
        let [before, verb, no, noun] = four else {
            return None;
        };
        let is = ["is", "are"].contains(&verb.text.as_str()) && !verb.ends && no.text == "no";
        let english = before.text.ends_with("there")
            || ["longer", "more", "less", "other", "better"].contains(&noun.text.as_str());
        (is && !english).then_some((verb.line, noun.text.as_str()))
    })
}

/// A word in lower case without punctuation around it, and its line.
struct Word {
    text: String,
    line: usize,
    /// Whether a sentence or a part of it ends with the word.
    ends: bool,
    /// Whether it is a name in quotes or backticks, as that of the user `nobody`.
    quoted: bool,
}

/// The words of a text, without the marks of comments and lists.
fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in line.split_whitespace() {
            let ends = word.ends_with(|c: char| !c.is_alphanumeric());
            let quoted = word
                .strip_prefix(['`', '"'])
                .is_some_and(|rest| rest.contains(['`', '"']));
            let word = word.trim_matches(|c: char| !c.is_alphanumeric());
            let word = word.strip_suffix("'s").unwrap_or(word);
            if !word.is_empty() {
                words.push(Word {
                    text: word.to_lowercase(),
                    line: index + 1,
                    ends,
                    quoted,
                });
            }
        }
    }
    words
}

/// Lines in which `phrase` begins.
fn lines_with<'a>(words: &'a [Word], phrase: &str) -> impl Iterator<Item = usize> + use<'a> {
    let wanted: Vec<String> = phrase.split(' ').map(str::to_owned).collect();
    words
        .windows(wanted.len())
        .filter(move |have| {
            have.iter()
                .zip(&wanted)
                .all(|(have, want)| have.text == *want && !have.quoted)
        })
        .map(|have| have[0].line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        violations("xtask/src/a.rs", text)
    }

    #[test]
    fn a_phrase_is_found_with_its_line_and_what_to_write() {
        let found = found("fine\n/// where KVM is to be had.\n");
        assert_eq!(found, ["xtask/src/a.rs:2: \"to be had\": write: available"]);
    }

    #[test]
    fn a_phrase_that_a_comment_wraps_is_found() {
        assert_eq!(found("    /// why it is\n    /// told so\n").len(), 1);
    }

    #[test]
    fn case_and_punctuation_do_not_hide_a_phrase() {
        assert_eq!(
            found("\"For ever\", *is told*; (the talk's) cure\n").len(),
            3
        );
    }

    #[test]
    fn a_negated_noun_is_found_and_english_negations_are_not() {
        assert_eq!(
            found("a short file is no\n// archive\n"),
            ["xtask/src/a.rs:1: \"is no archive\": write: is not a(n) archive"]
        );
        assert!(found("there is no file, it is no longer so, and they are no more\n").is_empty());
    }

    #[test]
    fn a_possessive_is_found_and_a_name_in_quotes_is_not() {
        assert_eq!(found("/// a thread of its\n/// own, for nobody\n").len(), 2);
        assert!(found("as user `nobody`, \"nobody\", its own thread\n").is_empty());
    }

    #[test]
    fn longer_words_are_not_phrases() {
        assert!(found("this told, is_told(), the talks, for everyone\n").is_empty());
    }

    #[test]
    fn recorded_data_and_files_without_prose_are_left_alone() {
        assert!(violations("lab/runs/a/report.md", "to be had").is_empty());
        assert!(violations("xtask/corpus.bin", "to be had").is_empty());
    }

    #[test]
    fn phrases_are_written_as_they_are_compared() {
        for (phrase, _) in REFUSED {
            assert_eq!(*phrase, phrase.to_lowercase());
            assert!(phrase.split(' ').all(|word| !word.is_empty()));
        }
    }
}
