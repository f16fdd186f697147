//! Redirects of paths.

use alloc::vec::Vec;

use crate::glob::{Captures, Glob, MOST_BYTES, Wildcard};

/// Paths that have moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirect<'a> {
    from: Glob<'a>,
    to: &'a str,
    status: RedirectStatus,
}

/// The status of a redirect (RFC 9110, 15.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RedirectStatus {
    /// 301
    MovedPermanently = 301,
    /// 302
    Found = 302,
    /// 307
    Temporary = 307,
    /// 308
    Permanent = 308,
}

impl RedirectStatus {
    /// The status of that code.
    pub fn from_code(code: u64) -> Option<Self> {
        [
            Self::MovedPermanently,
            Self::Found,
            Self::Temporary,
            Self::Permanent,
        ]
        .into_iter()
        .find(|status| u64::from(status.code()) == code)
    }

    /// Its three digits.
    pub const fn code(self) -> u16 {
        self as u16
    }
}

/// Why the target of a redirect cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// Neither a path nor an address.
    #[error("must begin with \"/\" (not \"//\"), \"http://\" or \"https://\"")]
    Form,
    /// It is too long.
    #[error("too long: the limit is {MOST_BYTES} bytes")]
    TooLong,
    /// A character that an address does not have.
    #[error("no address has {0:?}: write it as %XX")]
    Character(char),
    /// A host that is empty, has user information, or a wildcard.
    #[error("want a host without user name and wildcards")]
    Host,
    /// A wildcard that stands for nothing.
    #[error("each \"*\" and \"**\" repeats one of the redirect's \"from\", in the same order")]
    Wildcards,
    /// A wildcard in the query or fragment.
    #[error("wildcards are for the path only, and \"**\" for its end")]
    Place,
}

impl<'a> Redirect<'a> {
    /// Checks a target.
    pub fn new(from: Glob<'a>, to: &'a str, status: RedirectStatus) -> Result<Self, RedirectError> {
        check_form(to)?;
        check_wildcards(from, to)?;
        Ok(Self { from, to, status })
    }

    /// The paths that have moved.
    pub fn from(self) -> Glob<'a> {
        self.from
    }

    /// Where they are now, with wildcards.
    pub fn to(self) -> &'a str {
        self.to
    }

    /// The status.
    pub fn status(self) -> RedirectStatus {
        self.status
    }

    /// Appends where `path` is now, an address with `query` behind it unless it has its
    /// own; false if it has not moved. `path` is resolved and has no slash before it.
    pub fn write(self, path: &str, query: Option<&str>, out: &mut Vec<u8>) -> bool {
        let Some(captures) = self.from.captures(path) else {
            return false;
        };
        self.fill(&captures, out);
        if let (Some(query), false) = (query, self.to.contains(['?', '#'])) {
            out.push(b'?');
            out.extend_from_slice(query.as_bytes());
        }
        true
    }

    fn fill(self, captures: &Captures<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        let mut texts = captures.as_slice().iter();
        let mut rest = self.to;
        while let Some((before, after)) = rest.split_once('*') {
            out.extend_from_slice(before.as_bytes());
            let text = texts.next().copied().unwrap_or_default();
            for &byte in text.as_bytes() {
                // `//host` would be another host.
                if byte != b'/' || out.len() != start + 1 {
                    push_encoded(out, byte);
                }
            }
            rest = after.strip_prefix('*').unwrap_or(after);
            if out.len() == start + 1 {
                rest = rest.trim_start_matches('/');
            }
        }
        out.extend_from_slice(rest.as_bytes());
    }
}

fn check_form(to: &str) -> Result<(), RedirectError> {
    if to.len() > MOST_BYTES {
        return Err(RedirectError::TooLong);
    }
    let is_of_address =
        |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(c);
    if let Some(odd) = to.chars().find(|&c| !is_of_address(c)) {
        return Err(RedirectError::Character(odd));
    }
    if to.starts_with('/') {
        let is_here = !to.starts_with("//");
        return is_here.then_some(()).ok_or(RedirectError::Form);
    }
    let rest = to
        .strip_prefix("https://")
        .or_else(|| to.strip_prefix("http://"))
        .ok_or(RedirectError::Form)?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_of_host = |c: char| c.is_ascii_alphanumeric() || "-._~:[]".contains(c);
    let is_host = !host.is_empty() && host.chars().all(is_of_host);
    is_host.then_some(()).ok_or(RedirectError::Host)
}

fn check_wildcards(from: Glob<'_>, to: &str) -> Result<(), RedirectError> {
    let (path, behind) = to.split_at(to.find(['?', '#']).unwrap_or(to.len()));
    if behind.contains('*') {
        return Err(RedirectError::Place);
    }
    let mut have = from.wildcards();
    let mut rest = path;
    while let Some((_, after)) = rest.split_once('*') {
        let (kind, after) = match after.strip_prefix('*') {
            Some("") => (Wildcard::Below, ""),
            Some(_) => return Err(RedirectError::Place),
            None => (Wildcard::Segment, after),
        };
        if have.next() != Some(kind) {
            return Err(RedirectError::Wildcards);
        }
        rest = after;
    }
    Ok(())
}

/// Appends a byte of a path as an address has it.
pub fn push_encoded(out: &mut Vec<u8>, byte: u8) {
    if byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=:@".contains(&byte) {
        out.push(byte);
    } else {
        out.push(b'%');
        out.extend([byte >> 4, byte & 15].map(|half| b"0123456789ABCDEF"[usize::from(half)]));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn new<'a>(from: &'a str, to: &'a str) -> Result<Redirect<'a>, RedirectError> {
        let from = Glob::new(from).unwrap();
        Redirect::new(from, to, RedirectStatus::Found)
    }

    fn location(from: &str, to: &str, path: &str, query: Option<&str>) -> Option<String> {
        let mut out = Vec::new();
        let found = new(from, to).unwrap().write(path, query, &mut out);
        found.then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn targets_repeat_what_the_wildcards_stand_for() {
        let of = |from, to, path| location(from, to, path, None);
        assert_eq!(of("/a", "/b", "a").as_deref(), Some("/b"));
        assert_eq!(of("/a", "/b", "c"), None);
        assert_eq!(
            of("/a/*", "/b/*.html", "a/x y").as_deref(),
            Some("/b/x%20y.html")
        );
        assert_eq!(
            of("/a/*/**", "/b/*/c/**", "a/x/y/z").as_deref(),
            Some("/b/x/c/y/z")
        );
        assert_eq!(
            of("/a/**", "https://h/**", "a/b/").as_deref(),
            Some("https://h/b/")
        );
        assert_eq!(of("/a/*", "/b", "a/x").as_deref(), Some("/b"));
        assert_eq!(of("/a/*", "/b/*", "a/\\").as_deref(), Some("/b/%5C"));
    }

    #[test]
    fn the_query_stays_unless_the_target_has_one() {
        assert_eq!(
            location("/a", "/b", "a", Some("x=1")).as_deref(),
            Some("/b?x=1")
        );
        assert_eq!(
            location("/a", "/b?y", "a", Some("x=1")).as_deref(),
            Some("/b?y")
        );
        assert_eq!(
            location("/a", "/b#y", "a", Some("x=1")).as_deref(),
            Some("/b#y")
        );
    }

    #[test]
    fn targets_that_could_lead_astray_are_refused() {
        for (from, to, error) in [
            ("/a", "b", RedirectError::Form),
            ("/a", "//host/", RedirectError::Form),
            ("/a", "ftp://host/", RedirectError::Form),
            ("/a", "/b c", RedirectError::Character(' ')),
            ("/a", "/\\host", RedirectError::Character('\\')),
            ("/a", "/b\r\nX: y", RedirectError::Character('\r')),
            ("/a", "https:///x", RedirectError::Host),
            ("/a/*", "https://*/x", RedirectError::Host),
            ("/a/*", "https://host*/x", RedirectError::Host),
            ("/a", "https://user@host/", RedirectError::Host),
            ("/a", "/b/*", RedirectError::Wildcards),
            ("/a/*", "/b/**", RedirectError::Wildcards),
            ("/a/*", "/b?x=*", RedirectError::Place),
            ("/a/**", "/**/b", RedirectError::Place),
        ] {
            assert_eq!(new(from, to).err(), Some(error), "{from} to {to}");
        }
        assert!(new("/a/*", "/b/*").is_ok());
    }

    #[test]
    fn an_empty_wildcard_names_no_other_host() {
        let of = |from, to, path| location(from, to, path, None);
        assert_eq!(of("/a*/*", "/*/*", "a/host").as_deref(), Some("/host"));
        assert_eq!(
            of("/a*/**", "/*/**", "a/host/x").as_deref(),
            Some("/host/x")
        );
    }

    proptest! {
        #[test]
        fn locations_stay_on_this_host(
            from in "(/[ab*]{1,3}){1,3}(/\\*\\*)?",
            to in "/[ab*/]{0,6}",
            path in "[ab]{0,3}(/[ab]{1,3}){0,3}/?",
        ) {
            let Ok(glob) = Glob::new(&from) else { return Ok(()) };
            let Ok(redirect) = Redirect::new(glob, &to, RedirectStatus::Found) else { return Ok(()) };
            let mut out = Vec::new();
            if redirect.write(&path, None, &mut out) {
                let location = String::from_utf8(out).unwrap();
                prop_assert!(location.starts_with('/') && !location.starts_with("//"), "{}", location);
            }
        }
    }
}
