//! Where an image lies: `PATH`, or `PATH:NAME` where several lie together, as
//! skopeo writes it (`docker-archive:PATH:NAME`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// An image's file or directory, and its name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRef {
    /// The archive or layout.
    pub path: PathBuf,
    /// Which of its images; the only one without it.
    pub name: Option<String>,
}

impl ImageRef {
    /// A path is taken as it is if there is such a file, for a colon may be part of it;
    /// else the name begins behind the first colon whose left side is one.
    pub fn of(text: &Path) -> Self {
        let whole = Self {
            path: text.to_owned(),
            name: None,
        };
        if text.exists() {
            return whole;
        }
        let bytes = text.as_os_str().as_bytes();
        let colons = bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b':')
            .map(|(at, _)| at);
        colons
            .filter_map(|at| {
                let path = Path::new(OsStr::from_bytes(&bytes[..at]));
                let name = std::str::from_utf8(&bytes[at + 1..]).ok()?;
                (path.exists() && !name.is_empty()).then(|| Self {
                    path: path.to_owned(),
                    name: Some(name.to_owned()),
                })
            })
            .next()
            .unwrap_or(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_begins_behind_the_file() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.tar", "b:c"] {
            std::fs::write(dir.path().join(name), b"").unwrap();
        }
        let place = |text: &str| {
            let place = ImageRef::of(&dir.path().join(text));
            let file = place.path.strip_prefix(dir.path()).unwrap().to_owned();
            (file.to_str().unwrap().to_owned(), place.name)
        };
        let named = |file: &str, name: &str| (file.to_owned(), Some(name.to_owned()));
        assert_eq!(place("a.tar"), ("a.tar".to_owned(), None));
        assert_eq!(place("b:c"), ("b:c".to_owned(), None));
        assert_eq!(place("a.tar:web:1.2"), named("a.tar", "web:1.2"));
        assert_eq!(place("b:c:web"), named("b:c", "web"));
        assert_eq!(place("none:web"), ("none:web".to_owned(), None));
        assert_eq!(place("a.tar:"), ("a.tar:".to_owned(), None));
    }
}
