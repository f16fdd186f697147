//! From a request's target to a path below the root (RFC 9112, 3.2).

use alloc::vec::Vec;

use crate::request::authority;

/// What a target names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// Path from the root, without slashes at either end and without `.`, `..`
    /// or empty components; empty for the root itself.
    pub path: &'a str,
    /// How the path ended.
    pub form: Form,
    /// What follows `?`, as sent.
    pub query: Option<&'a str>,
}

/// How a path ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In a name.
    Name,
    /// In a slash: a directory is meant.
    Directory,
}

/// Why a target names nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Neither a path nor an absolute URI.
    #[error("target has no path")]
    NoPath,
    /// An absolute URI without a valid host, or with user information.
    #[error("target names no host")]
    Authority,
    /// `%` without two hexadecimal digits after it.
    #[error("percent sign without two hexadecimal digits")]
    BadEscape,
    /// A NUL, raw or escaped.
    #[error("target contains a NUL")]
    Nul,
    /// More `..` than there are directories.
    #[error("target leaves the root")]
    OutsideRoot,
    /// The path is not UTF-8; no file here has such a name.
    #[error("path is not UTF-8")]
    NotUtf8,
}

/// Resolves `target`. A path that must be rewritten is built in `scratch`.
pub fn resolve<'a>(target: &'a str, scratch: &'a mut Vec<u8>) -> Result<Resource<'a>, TargetError> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let path = strip_authority(path)?;
    let (path, form) = match plain(path) {
        Some(resolved) => resolved,
        None => rewrite(path, scratch)?,
    };
    Ok(Resource { path, form, query })
}

/// The path of an origin-form or absolute-form target.
fn strip_authority(target: &str) -> Result<&str, TargetError> {
    if target.starts_with('/') {
        return Ok(target);
    }
    let (host, path) = split_authority(target).ok_or(TargetError::NoPath)?;
    if !authority::is_valid(host.as_bytes()) {
        return Err(TargetError::Authority);
    }
    Ok(path)
}

/// Authority and path of an absolute-form target without its query.
fn split_authority(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    Some(match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    })
}

/// The authority of an absolute-form target, valid or not.
pub(crate) fn authority(target: &str) -> Option<&[u8]> {
    if target.starts_with('/') {
        return None;
    }
    let path = target.split('?').next().unwrap_or(target);
    split_authority(path).map(|(host, _)| host.as_bytes())
}

/// A path that means what it says; `None` if it may have to be rewritten.
fn plain(path: &str) -> Option<(&str, Form)> {
    let mut previous = 0;
    for &byte in path.as_bytes() {
        let special =
            matches!(byte, b'%' | 0 | b'#') || (previous == b'/' && matches!(byte, b'/' | b'.'));
        if special {
            return None;
        }
        previous = byte;
    }
    let path = &path[1..];
    Some(match path.strip_suffix('/') {
        Some(path) => (path, Form::Directory),
        None if path.is_empty() => (path, Form::Directory),
        None => (path, Form::Name),
    })
}

/// Decodes escapes, then takes out `.`, `..` and empty components.
fn rewrite<'a>(path: &str, scratch: &'a mut Vec<u8>) -> Result<(&'a str, Form), TargetError> {
    scratch.clear();
    decode(path.as_bytes(), scratch)?;
    let (mut from, mut to, mut form) = (0, 0, Form::Directory);
    while from < scratch.len() {
        let rest = &scratch[from..];
        let len = rest
            .iter()
            .position(|byte| *byte == b'/')
            .unwrap_or(rest.len());
        form = Form::Directory;
        match &rest[..len] {
            b"" | b"." => {}
            b".." if to == 0 => return Err(TargetError::OutsideRoot),
            b".." => {
                to = scratch[..to]
                    .iter()
                    .rposition(|byte| *byte == b'/')
                    .unwrap_or(0)
            }
            _ => {
                if to > 0 {
                    scratch[to] = b'/';
                    to += 1;
                }
                scratch.copy_within(from..from + len, to);
                to += len;
                form = Form::Name;
            }
        }
        from += len + 1;
        if from == scratch.len() {
            // The component ended in a slash, the path's last byte.
            form = Form::Directory;
        }
    }
    scratch.truncate(to);
    let path = core::str::from_utf8(scratch).map_err(|_| TargetError::NotUtf8)?;
    Ok((path, form))
}

fn decode(path: &[u8], out: &mut Vec<u8>) -> Result<(), TargetError> {
    let mut bytes = path.iter();
    while let Some(&byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let (high, low) = (hex(bytes.next())?, hex(bytes.next())?);
                high << 4 | low
            }
            // A fragment is never sent (RFC 9112, 3.2); it names no file.
            b'#' => return Err(TargetError::BadEscape),
            byte => byte,
        };
        if byte == 0 {
            return Err(TargetError::Nul);
        }
        out.push(byte);
    }
    Ok(())
}

fn hex(digit: Option<&u8>) -> Result<u8, TargetError> {
    let digit = char::from(*digit.ok_or(TargetError::BadEscape)?);
    let value = digit.to_digit(16).ok_or(TargetError::BadEscape)?;
    Ok(value as u8)
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use proptest::prelude::*;

    use super::*;

    fn path(target: &str) -> Result<(String, Form), TargetError> {
        let mut scratch = Vec::new();
        resolve(target, &mut scratch).map(|found| (found.path.into(), found.form))
    }

    fn named(path: &str) -> Result<(String, Form), TargetError> {
        Ok((path.into(), Form::Name))
    }

    fn directory(path: &str) -> Result<(String, Form), TargetError> {
        Ok((path.into(), Form::Directory))
    }

    #[test]
    fn plain_paths_stay_as_they_are() {
        assert_eq!(path("/"), directory(""));
        assert_eq!(path("/a"), named("a"));
        assert_eq!(path("/a/b.c/"), directory("a/b.c"));
        assert_eq!(path("/a?b/../c"), named("a"));
    }

    #[test]
    fn absolute_targets_lose_their_authority() {
        assert_eq!(path("http://host:80/a"), named("a"));
        assert_eq!(path("HTTP://host"), directory(""));
        assert_eq!(path("http://host?q"), directory(""));
        assert_eq!(path("ftp://host/a"), Err(TargetError::NoPath));
        assert_eq!(path("*"), Err(TargetError::NoPath));
        assert_eq!(path("host:80"), Err(TargetError::NoPath));
        assert_eq!(path("a/b"), Err(TargetError::NoPath));
    }

    #[test]
    fn escapes_are_decoded_once() {
        assert_eq!(path("/a%20b"), named("a b"));
        assert_eq!(path("/%2525"), named("%25"));
        assert_eq!(path("/%c3%BC"), named("ü"));
        assert_eq!(path("/a%2Fb"), named("a/b"));
        assert_eq!(path("/a%3Fb"), named("a?b"));
        assert_eq!(path("/a+b"), named("a+b"));
        for bad in ["/%", "/%4", "/%4x", "/%zz", "/%+1", "/a#b"] {
            assert_eq!(path(bad), Err(TargetError::BadEscape), "{bad}");
        }
    }

    #[test]
    fn nul_is_refused_in_any_spelling() {
        assert_eq!(path("/a%00.html"), Err(TargetError::Nul));
        assert_eq!(path("/a\0"), Err(TargetError::Nul));
    }

    #[test]
    fn names_that_are_no_text_are_refused() {
        assert_eq!(path("/%ff"), Err(TargetError::NotUtf8));
    }

    #[test]
    fn dots_and_empty_components_are_taken_out() {
        assert_eq!(path("/./a//b/"), directory("a/b"));
        assert_eq!(path("/a/../b"), named("b"));
        assert_eq!(path("/a/b/.."), directory("a"));
        assert_eq!(path("/a/."), directory("a"));
        assert_eq!(path("/a/b/../../c/d"), named("c/d"));
        assert_eq!(path("//a"), named("a"));
        assert_eq!(path("/.hidden"), named(".hidden"));
        assert_eq!(path("/..."), named("..."));
        assert_eq!(path("/a/.."), directory(""));
    }

    #[test]
    fn no_spelling_leaves_the_root() {
        for bad in [
            "/..",
            "/../etc/passwd",
            "/a/../../b",
            "/%2e%2e/b",
            "/a/%2e%2e%2f%2e%2e/b",
            "/.%2e/",
            "//../a",
        ] {
            assert_eq!(path(bad), Err(TargetError::OutsideRoot), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn resolved_paths_are_clean(target in "/(\\.|/|%2e|%2F|%|a|b|\\?|ü|%00){0,24}") {
            if let Ok((path, _)) = path(&target) {
                prop_assert!(!path.contains('\0'));
                prop_assert!(path.is_empty() || path.split('/').all(|part| !matches!(part, "" | "." | "..")));
            }
        }

        #[test]
        fn rewriting_agrees_with_a_stack_of_components(target in "(/(\\.|\\.\\.|a|bc|)){1,8}") {
            let mut stack = Vec::new();
            let mut outside = false;
            for part in target[1..].split('/') {
                match part {
                    "" | "." => {}
                    ".." => outside |= stack.pop().is_none(),
                    name => stack.push(name),
                }
            }
            let last = target.rsplit('/').next().unwrap_or_default();
            let form = if matches!(last, "" | "." | "..") { Form::Directory } else { Form::Name };
            let expected = if outside { Err(TargetError::OutsideRoot) } else { Ok((stack.join("/"), form)) };
            prop_assert_eq!(path(&target), expected);
        }

        #[test]
        fn no_text_crashes(target in ".{0,60}") {
            let _ = path(&target);
        }
    }
}
