//! Patterns of paths.

/// Most bytes of a glob, and of the target of a redirect.
pub(crate) const MOST_BYTES: usize = 1024;
/// Most wildcards of a glob.
pub(crate) const MOST_WILDCARDS: usize = 8;

/// A pattern of absolute paths. `*` stands for any characters within a segment, and
/// for at least one where it is the segment; a segment has at most one. `**` is the last
/// segment and stands for everything below. All else stands for itself, and is
/// compared with decoded paths. So matching takes one pass over the path, whatever
/// the client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glob<'a>(&'a str);

/// Why a text is not a glob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// It does not begin with a slash.
    #[error("must begin with \"/\"")]
    Relative,
    /// It is too long.
    #[error("too long: the limit is {MOST_BYTES} bytes")]
    TooLong,
    /// An empty, `.` or `..` segment, which no request has once it is resolved.
    #[error("no path has an empty segment, \".\" or \"..\"")]
    Segment,
    /// A query, a fragment, a backslash or a control character.
    #[error("no path has {0:?}")]
    Character(char),
    /// An escape: paths are compared decoded.
    #[error("escapes are decoded before the comparison: write the character instead of %XX")]
    Escape,
    /// Two wildcards in a segment, or `**` elsewhere.
    #[error("want one \"*\" in a segment at most, and \"**\" only as the last segment")]
    Wildcards,
    /// Too many wildcards.
    #[error("too many wildcards: the limit is {MOST_WILDCARDS}")]
    TooManyWildcards,
}

/// A kind of wildcard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wildcard {
    /// `*`
    Segment,
    /// `**`
    Below,
}

impl<'a> Glob<'a> {
    /// Checks `text`.
    pub fn new(text: &'a str) -> Result<Self, GlobError> {
        if text.len() > MOST_BYTES {
            return Err(GlobError::TooLong);
        }
        let rest = text.strip_prefix('/').ok_or(GlobError::Relative)?;
        let odd = |c: char| c.is_control() || matches!(c, '?' | '#' | '\\');
        if let Some(odd) = text.chars().find(|&c| odd(c)) {
            return Err(GlobError::Character(odd));
        }
        let is_escape = |at: usize| {
            let digits = text.as_bytes().get(at + 1..at + 3);
            digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        if text.match_indices('%').any(|(at, _)| is_escape(at)) {
            return Err(GlobError::Escape);
        }
        let mut segments = rest.split('/').peekable();
        while let Some(segment) = segments.next() {
            let is_last = segments.peek().is_none();
            match segment {
                "" if is_last => {}
                "" | "." | ".." => return Err(GlobError::Segment),
                "**" if is_last => {}
                segment if segment.matches('*').count() > 1 => return Err(GlobError::Wildcards),
                _ => {}
            }
        }
        let glob = Self(text);
        match glob.wildcards().count() {
            0..=MOST_WILDCARDS => Ok(glob),
            _ => Err(GlobError::TooManyWildcards),
        }
    }

    /// As it is written.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Its wildcards, in order.
    pub fn wildcards(self) -> impl Iterator<Item = Wildcard> {
        self.0
            .split('/')
            .filter(|segment| segment.contains('*'))
            .map(|segment| match segment {
                "**" => Wildcard::Below,
                _ => Wildcard::Segment,
            })
    }

    /// Whether it matches `path`, which is resolved and has no slash before it.
    pub fn matches(self, path: &str) -> bool {
        self.captures(path).is_some()
    }

    /// What the wildcards stand for in `path`, which is resolved and has no slash before
    /// it; `None` if it does not match.
    pub fn captures<'p>(self, mut path: &'p str) -> Option<Captures<'p>> {
        let mut pattern = self.0.strip_prefix('/')?;
        let mut captures = Captures::default();
        loop {
            if pattern == "**" {
                captures.push(path)?;
                return Some(captures);
            }
            let (wanted, pattern_below) = first_segment(pattern);
            let (segment, path_below) = first_segment(path);
            match wanted.split_once('*') {
                None if wanted == segment => {}
                Some((before, after)) if !segment.is_empty() => {
                    captures.push(segment.strip_prefix(before)?.strip_suffix(after)?)?;
                }
                _ => return None,
            }
            (pattern, path) = match (pattern_below, path_below) {
                (None, None) => return Some(captures),
                (Some(pattern), Some(path)) => (pattern, path),
                _ => return None,
            };
        }
    }
}

fn first_segment(path: &str) -> (&str, Option<&str>) {
    match path.split_once('/') {
        Some((first, below)) => (first, Some(below)),
        None => (path, None),
    }
}

/// What the wildcards of a glob stand for, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captures<'p> {
    texts: [&'p str; MOST_WILDCARDS],
    len: usize,
}

impl<'p> Captures<'p> {
    fn push(&mut self, text: &'p str) -> Option<()> {
        *self.texts.get_mut(self.len)? = text;
        self.len += 1;
        Some(())
    }

    /// The texts.
    pub fn as_slice(&self) -> &[&'p str] {
        &self.texts[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captures<'p>(glob: &str, path: &'p str) -> Option<Vec<&'p str>> {
        let captures = Glob::new(glob).unwrap().captures(path)?;
        Some(captures.as_slice().to_vec())
    }

    #[test]
    fn stars_stay_within_a_segment_and_two_go_below() {
        assert_eq!(captures("/a.css", "a.css"), Some(vec![]));
        assert_eq!(captures("/*.css", "a.css"), Some(vec!["a"]));
        assert_eq!(captures("/*.css", "b/a.css"), None);
        assert_eq!(captures("/*/x-*.js", "b/x-1.js"), Some(vec!["b", "1"]));
        assert_eq!(captures("/a/**", "a/b/c"), Some(vec!["b/c"]));
        assert_eq!(captures("/a/**", "a/"), Some(vec![""]));
        assert_eq!(captures("/a/**", "a"), None);
        assert_eq!(captures("/a/**", "ab/c"), None);
        assert_eq!(captures("/**", "a/b"), Some(vec!["a/b"]));
        assert_eq!(captures("/**", ""), Some(vec![""]));
        assert_eq!(captures("/", ""), Some(vec![]));
        assert_eq!(captures("/a/", "a/"), Some(vec![]));
        assert_eq!(captures("/a/*", "a/"), None);
        assert_eq!(captures("/aa*a", "aa"), None);
    }

    #[test]
    fn what_no_path_can_match_is_refused() {
        for (text, error) in [
            ("", GlobError::Relative),
            ("a", GlobError::Relative),
            ("//a", GlobError::Segment),
            ("/a//b", GlobError::Segment),
            ("/a/../b", GlobError::Segment),
            ("/a?b", GlobError::Character('?')),
            ("/a\nb", GlobError::Character('\n')),
            ("/a%20b", GlobError::Escape),
            ("/**/a", GlobError::Wildcards),
            ("/a**", GlobError::Wildcards),
            ("/*a*", GlobError::Wildcards),
            ("/*/*/*/*/*/*/*/*/*", GlobError::TooManyWildcards),
        ] {
            assert_eq!(Glob::new(text), Err(error), "{text}");
        }
        assert!(Glob::new("/100%/[id].js").is_ok());
        let long = format!("/{}", "a".repeat(MOST_BYTES));
        assert_eq!(Glob::new(&long), Err(GlobError::TooLong));
    }

    proptest! {
        #[test]
        fn captures_put_back_give_the_path(glob in "(/[ab*]{1,3}){1,4}(/\\*\\*)?", path in "[ab]{0,3}(/[ab]{1,3}){0,4}") {
            let Ok(glob) = Glob::new(&glob) else { return Ok(()) };
            if let Some(captures) = glob.captures(&path) {
                let mut back = glob.as_str().to_owned();
                for text in captures.as_slice() {
                    let star = if back.contains("**") && back.find("**") == back.find('*') { "**" } else { "*" };
                    back = back.replacen(star, text, 1);
                }
                prop_assert_eq!(&back[1..], &path);
            }
        }
    }
}
