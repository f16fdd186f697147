//! Redirects that never come to an end.

use crate::{Redirect, Table};

/// Redirects that a client follows before it gives up, with room (browsers: 20).
const MOST_HOPS: usize = 10;

/// Whether a path that `redirect` gives may be one that it redirects.
pub(super) fn leads_to_itself(redirect: &Redirect<'_>) -> bool {
    let to = path_of(redirect.to());
    // Another host may be this one, but nothing here knows its name.
    to.starts_with('/') && overlap(to.as_bytes(), redirect.from().as_str().as_bytes())
}

/// Whether the redirects of `table` go on and on from the target of `redirect`, which is
/// followed if it has no wildcards.
pub(super) fn goes_on(redirect: &Redirect<'_>, table: &Table<'_>) -> bool {
    let mut at = path_of(redirect.to()).to_owned();
    if at.contains('*') {
        return false;
    }
    for _ in 0..MOST_HOPS {
        let mut next = Vec::new();
        let path = at.strip_prefix('/').unwrap_or(&at);
        let mut redirects = table.redirects.iter();
        if !at.starts_with('/') || !redirects.any(|it| it.write(path, None, &mut next)) {
            return false;
        }
        at = path_of(&String::from_utf8_lossy(&next)).to_owned();
    }
    true
}

fn path_of(target: &str) -> &str {
    &target[..target.find(['?', '#']).unwrap_or(target.len())]
}

/// Whether two patterns have a text in common, one star standing for anything within
/// a segment and two for anything.
fn overlap(a: &[u8], b: &[u8]) -> bool {
    // Rows from the last byte of `a` to its first: whether what is left of `a` and what is
    // left of `b` from each byte on overlap.
    let mut below = Vec::new();
    for i in (0..=a.len()).rev() {
        let mut here = vec![false; b.len() + 2];
        let left = Token::at(a, i);
        for j in (0..=b.len()).rev() {
            let right = Token::at(b, j);
            let is_below = |j: usize| below.get(j).copied().unwrap_or(false);
            here[j] = match (left, right) {
                (Token::End, Token::End) => true,
                (Token::Byte(left), Token::Byte(right)) => left == right && is_below(j + 1),
                // A star ends, or takes what the other has.
                (left, right) => {
                    (left.is_star() && is_below(j))
                        || (right.is_star() && here[j + 1])
                        || (left.takes(right) && here[j + 1])
                        || (right.takes(left) && is_below(j))
                }
            };
        }
        below = here;
    }
    below[0]
}

#[derive(Clone, Copy)]
enum Token {
    Below,
    Segment,
    Byte(u8),
    End,
}

impl Token {
    fn at(text: &[u8], at: usize) -> Self {
        match &text[at..] {
            [b'*', b'*', ..] => Self::Below,
            [b'*', ..] => Self::Segment,
            [byte, ..] => Self::Byte(*byte),
            [] => Self::End,
        }
    }

    fn is_star(self) -> bool {
        matches!(self, Self::Below | Self::Segment)
    }

    /// Whether this star may stand for that byte.
    fn takes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Below, Self::Byte(_)) => true,
            (Self::Segment, Self::Byte(byte)) => byte != b'/',
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Glob, RedirectStatus};

    fn redirect<'a>(from: &'a str, to: &'a str) -> Redirect<'a> {
        Redirect::new(Glob::new(from).unwrap(), to, RedirectStatus::Found).unwrap()
    }

    #[test]
    fn a_redirect_to_its_own_paths_is_found() {
        for (from, to, leads) in [
            ("/a", "/a", true),
            ("/a", "/a?b", true),
            ("/*", "/a", true),
            ("/a/**", "/a/b/**", true),
            ("/a/*", "/a/*.html", true),
            ("/a/*", "/b/*", false),
            ("/*.htm", "/*.html", false),
            ("/a/*", "/a/x/*", false),
            ("/a", "https://host/a", false),
        ] {
            assert_eq!(
                leads_to_itself(&redirect(from, to)),
                leads,
                "{from} to {to}"
            );
        }
    }

    #[test]
    fn redirects_in_a_circle_go_on() {
        let table = Table {
            redirects: vec![
                redirect("/a", "/b"),
                redirect("/b", "/c/d"),
                redirect("/c/*", "/a"),
                redirect("/x", "/y"),
            ],
            ..Table::default()
        };
        let goes = table.redirects.iter().map(|it| goes_on(it, &table));
        assert_eq!(goes.collect::<Vec<_>>(), [true, true, true, false]);
    }

    proptest! {
        #[test]
        fn a_redirect_that_does_not_lead_to_itself_acts_once(
            from in "(/[ab*]{1,3}){1,3}(/\\*\\*)?",
            to in "(/[ab*]{1,3}){1,3}(/\\*\\*)?",
            path in "[ab]{0,3}(/[ab]{1,3}){0,3}/?",
        ) {
            let Ok(from) = Glob::new(&from) else { return Ok(()) };
            let Ok(redirect) = Redirect::new(from, &to, RedirectStatus::Found) else { return Ok(()) };
            let mut out = Vec::new();
            if !leads_to_itself(&redirect) && redirect.write(&path, None, &mut out) {
                let location = String::from_utf8(out).unwrap();
                prop_assert!(!from.matches(&location[1..]), "{}", location);
            }
        }
    }
}
