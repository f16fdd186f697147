//! A tree of kernel sources: where it comes from, its version, its patches.

mod obtain;
mod patch;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use obtain::{ObtainError, Source, Sources};
pub use patch::{PatchError, patched, switched};

use crate::objects;

/// Series of Linux that the mapping and the patches were checked against.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Deserialize,
    serde::Serialize,
)]
pub enum Series {
    /// Debian 12's.
    #[default]
    #[serde(rename = "6.1")]
    V6_1,
    /// That of Debian 12's backports, and of Debian 13.
    #[serde(rename = "6.12")]
    V6_12,
}

impl Series {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::V6_1, Self::V6_12];

    /// The first two numbers of its versions.
    const fn numbers(self) -> (u32, u32) {
        match self {
            Self::V6_1 => (6, 1),
            Self::V6_12 => (6, 12),
        }
    }

    /// The series of a version.
    fn of(version: Version) -> Option<Self> {
        let numbers = (version.major, version.minor);
        Self::ALL.into_iter().find(|it| it.numbers() == numbers)
    }
}

/// A tree of kernel sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    dir: PathBuf,
    version: Version,
    series: Series,
}

/// A kernel's version, `6.1.192`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// `VERSION` in the tree's Makefile.
    pub major: u32,
    /// `PATCHLEVEL`.
    pub minor: u32,
    /// `SUBLEVEL`.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            major,
            minor,
            patch,
        } = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// A tree that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No kernel's.
    #[error("{} is not a tree of kernel sources: name the directory with Kconfig and Makefile, or its archive", dir.display())]
    NoTree {
        /// The directory.
        dir: PathBuf,
    },
    /// Another version than the mapping knows.
    #[error("{} is Linux {version}; Tare tailors Linux {}", dir.display(), supported())]
    Unsupported {
        /// The directory.
        dir: PathBuf,
        /// What it holds.
        version: Version,
    },
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl SourceError {
    /// The error of a tree by another name than the directory it was unpacked in.
    fn of(self, name: &Path) -> Self {
        let dir = name.to_owned();
        match self {
            Self::NoTree { .. } => Self::NoTree { dir },
            Self::Unsupported { version, .. } => Self::Unsupported { dir, version },
            Self::Read { .. } => self,
        }
    }
}

impl Tree {
    /// The tree in a directory.
    pub fn open(dir: &Path) -> Result<Self, SourceError> {
        let no_tree = || SourceError::NoTree {
            dir: dir.to_owned(),
        };
        if !dir.join("Kconfig").is_file() || !dir.join("scripts/kconfig").is_dir() {
            return Err(no_tree());
        }
        let path = dir.join("Makefile");
        let makefile = objects::read_text(dir, "Makefile").map_err(|source| SourceError::Read {
            path: path.clone(),
            source,
        })?;
        let version = version(&makefile).ok_or_else(no_tree)?;
        let dir = dir
            .canonicalize()
            .map_err(|source| SourceError::Read { path, source })?;
        match Series::of(version) {
            Some(series) => Ok(Self {
                dir,
                version,
                series,
            }),
            None => Err(SourceError::Unsupported { dir, version }),
        }
    }

    /// Its directory, absolute.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// What it is a version of.
    pub fn series(&self) -> Series {
        self.series
    }
}

fn supported() -> String {
    let all = Series::ALL.map(Series::numbers);
    all.map(|(major, minor)| format!("{major}.{minor}"))
        .join(" and ")
}

/// The version that a kernel's top Makefile says in its first lines.
fn version(makefile: &str) -> Option<Version> {
    let number = |name: &str| {
        let mut lines = makefile.lines().take(20);
        let value = lines.find_map(|line| line.strip_prefix(name)?.trim().strip_prefix('='))?;
        value.trim().parse().ok()
    };
    Some(Version {
        major: number("VERSION")?,
        minor: number("PATCHLEVEL")?,
        patch: number("SUBLEVEL")?,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(makefile: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("scripts/kconfig")).unwrap();
        fs::write(dir.path().join("Kconfig"), "").unwrap();
        fs::write(dir.path().join("Makefile"), makefile).unwrap();
        dir
    }

    #[test]
    fn the_version_is_the_makefiles() {
        let dir = tree("# SPDX\nVERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 192\nEXTRAVERSION =\n");
        let version = Tree::open(dir.path()).unwrap().version();
        assert_eq!(version.to_string(), "6.1.192");
    }

    /// Untrusted sources: files that block or have no end are skipped, or an error.
    #[test]
    fn pipes_and_devices_in_sources_are_not_read() {
        use std::os::unix::fs::symlink;

        use rustix::fs::{CWD, Mode, mkfifoat};

        let dir = tree("VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 1\n");
        let sources = Tree::open(dir.path()).unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["fs", "net", "mm"] {
            fs::create_dir(path(name)).unwrap();
        }
        fs::write(path("mm/Kconfig"), "config PSI\n\tbool \"psi\"\n").unwrap();
        mkfifoat(CWD, path("fs/Kconfig"), Mode::RUSR | Mode::WUSR).unwrap();
        symlink("/dev/zero", path("net/Kconfig")).unwrap();
        symlink("/dev/zero", path("net/Makefile")).unwrap();
        assert!(crate::kconfig::Prompts::of(&sources).has("PSI"));
        let config = crate::kconfig::Config::read("CONFIG_NET=y\n");
        let kbuild = crate::kbuild::Kbuild::of(sources.dir());
        assert!(kbuild.compiles("net/ipv4/a.c", &config) || !path("net/ipv4").exists());
        // A pipe has no hash; a link counts by what it points at.
        assert!(crate::lock::sha256_of_tree(&sources).is_err());
        fs::remove_file(path("fs/Kconfig")).unwrap();
        assert!(crate::lock::sha256_of_tree(&sources).is_ok());
        fs::remove_file(path("Makefile")).unwrap();
        symlink("/dev/zero", path("Makefile")).unwrap();
        assert!(Tree::open(dir.path()).is_err());
    }

    #[test]
    fn another_version_is_named() {
        let dir = tree("VERSION = 5\nPATCHLEVEL = 10\nSUBLEVEL = 3\n");
        let error = Tree::open(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("is Linux 5.10.3; Tare tailors Linux 6.1 and 6.12"),
            "{error}"
        );
    }

    #[test]
    fn a_directory_without_a_kernel_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = Tree::open(dir.path()).unwrap_err();
        assert!(matches!(error, SourceError::NoTree { .. }));
    }
}
