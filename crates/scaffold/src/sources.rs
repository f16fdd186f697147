//! Where a new crate takes the library OS from.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

/// The crates that a new one names, with their places below Tare's sources.
const CRATES: [(&str, &str); 2] = [("tare-libos", "guest/libos"), ("tare-web", "guest/web")];
/// What marks a word as the address of a git repository.
const SCHEME: &str = "://";

/// Tare's sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sources {
    /// A directory, absolute.
    Directory(PathBuf),
    /// A git repository, which cargo fetches.
    Git(String),
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// No place has them.
    #[error(
        "cannot find Tare's sources: they are not installed, and this program is not in a source tree"
    )]
    NotFound,
    /// The directory that was given cannot be read.
    #[error("cannot open {}", .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    /// It has something else.
    #[error("{} has no {}: not Tare's sources", .0.display(), CRATES[0].1)]
    Other(PathBuf),
    /// A place that cannot be written into Cargo.toml.
    #[error("{0:?} cannot be written into Cargo.toml: it has control characters or no text")]
    NotText(PathBuf),
}

impl Sources {
    /// Those that are given, as a directory or the address of a repository, else those
    /// that came with the running program: installed beside it, or the tree whose
    /// `target` it lies in.
    pub fn find(given: Option<&Path>) -> Result<Self, SourcesError> {
        let Some(given) = given else {
            let program = env::current_exe().map_err(|_| SourcesError::NotFound)?;
            return Self::of_program(&program).ok_or(SourcesError::NotFound);
        };
        let text = text(given)?;
        if text.contains(SCHEME) {
            return Ok(Self::Git(text.to_owned()));
        }
        let directory = given
            .canonicalize()
            .map_err(|error| SourcesError::Unreadable(given.to_owned(), error))?;
        if !are_in(&directory) {
            return Err(SourcesError::Other(given.to_owned()));
        }
        Self::directory(directory)
    }

    fn of_program(program: &Path) -> Option<Self> {
        let beside = program.parent()?.join("src");
        let around = program.ancestors().skip(1).map(Path::to_owned);
        let found = [beside].into_iter().chain(around).find(|dir| are_in(dir))?;
        Self::directory(found).ok()
    }

    fn directory(directory: PathBuf) -> Result<Self, SourcesError> {
        text(&directory)?;
        Ok(Self::Directory(directory))
    }

    /// The lines of Cargo.toml that name the crates.
    pub(crate) fn dependencies(&self) -> String {
        let line = |(name, below): (&str, &str)| match self {
            Self::Directory(directory) => {
                let path = directory.join(below);
                format!(
                    "{name} = {{ path = {} }}\n",
                    toml_string(&path.to_string_lossy())
                )
            }
            Self::Git(address) => format!("{name} = {{ git = {} }}\n", toml_string(address)),
        };
        CRATES.map(line).concat()
    }

    /// The versions that Tare is built with, if they are here.
    pub(crate) fn lock_file(&self) -> Option<PathBuf> {
        match self {
            Self::Directory(directory) => Some(directory.join("Cargo.lock")),
            Self::Git(_) => None,
        }
    }
}

/// A place as Cargo.toml has it.
fn text(place: &Path) -> Result<&str, SourcesError> {
    let text = place.to_str();
    text.filter(|text| !text.contains(char::is_control))
        .ok_or_else(|| SourcesError::NotText(place.to_owned()))
}

fn are_in(directory: &Path) -> bool {
    CRATES
        .iter()
        .all(|(_, below)| directory.join(below).join("Cargo.toml").is_file())
}

/// A basic string of TOML; control characters are refused before.
fn toml_string(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(at: &Path) {
        for (_, below) in CRATES {
            fs::create_dir_all(at.join(below)).unwrap();
            fs::write(at.join(below).join("Cargo.toml"), "").unwrap();
        }
    }

    #[test]
    fn installed_sources_come_before_the_tree_around_the_program() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("target/debug/tare");
        assert_eq!(Sources::of_program(&program), None);
        tree(place.path());
        let around = Sources::Directory(place.path().to_owned());
        assert_eq!(Sources::of_program(&program), Some(around));
        let installed = place.path().join("target/debug/src");
        tree(&installed);
        assert_eq!(
            Sources::of_program(&program),
            Some(Sources::Directory(installed))
        );
    }

    #[test]
    fn a_place_without_the_crates_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let other = Sources::find(Some(place.path())).unwrap_err();
        assert!(matches!(other, SourcesError::Other(_)), "{other}");
        let gone = Sources::find(Some(&place.path().join("gone"))).unwrap_err();
        assert!(matches!(gone, SourcesError::Unreadable(..)), "{gone}");
        let split = Sources::find(Some(Path::new("a\nb"))).unwrap_err();
        assert!(matches!(split, SourcesError::NotText(_)), "{split}");
    }

    #[test]
    fn every_place_is_written_as_toml() {
        let odd = Sources::Directory(PathBuf::from("/a \"b\" \\c/ü"));
        let git = Sources::find(Some(Path::new("https://a.example/tare"))).unwrap();
        for (sources, key, value) in [
            (odd, "path", "/a \"b\" \\c/ü/guest/web"),
            (git, "git", "https://a.example/tare"),
        ] {
            let read: toml::Table = toml::from_str(&sources.dependencies()).unwrap();
            assert_eq!(read["tare-web"][key].as_str(), Some(value));
        }
    }
}
