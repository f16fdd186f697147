//! Where a tree comes from: Debian's package, an archive, a directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use tare_rootfs::cache::{Cache, CacheError};
use tare_rootfs::package;
use tare_rootfs::package::PackageError;

use super::{SourceError, Tree};
use crate::lock::{self, LockError};

/// Debian's package of the sources.
const PACKAGE: &str = "linux-source-6.1";
/// Its archive, in the package.
const PACKAGE_ARCHIVE: &str = "usr/src/linux-source-6.1.tar.xz";
/// The cache's directory of trees.
const ENTRIES: &str = "linux-source";
/// The hash of a tree, beside it.
const HASH: &str = "tree.sha256";

/// Where the sources are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Debian's package.
    #[default]
    Debian,
    /// An archive that tar reads.
    Archive(PathBuf),
    /// An unpacked tree.
    Directory(PathBuf),
}

/// A tree and what it is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The tree.
    pub tree: Tree,
    /// SHA-256 of its files.
    pub sha256: String,
}

/// Why sources are not available.
#[derive(Debug, thiserror::Error)]
pub enum ObtainError {
    /// The cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Debian's package.
    #[error("the sources of Debian's kernel are not available; name others with --source")]
    Package(#[from] PackageError),
    /// The tree.
    #[error(transparent)]
    Tree(#[from] SourceError),
    /// Its hash.
    #[error(transparent)]
    Hash(#[from] LockError),
    /// No such archive.
    #[error("cannot read the sources {}", path.display())]
    Missing {
        /// What was named.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// tar could not read it.
    #[error("{} cannot be unpacked: {said}", path.display())]
    Unpack {
        /// The archive.
        path: PathBuf,
        /// What tar said.
        said: String,
    },
    /// No tar.
    #[error("cannot run tar")]
    NoTar(#[source] io::Error),
}

impl Source {
    /// The source that a path names.
    pub fn at(path: PathBuf) -> Self {
        if path.is_dir() {
            Self::Directory(path)
        } else {
            Self::Archive(path)
        }
    }

    /// The tree, unpacked once, without its hash, which of a directory takes
    /// seconds.
    pub fn tree(&self, cache: &Cache) -> Result<Tree, ObtainError> {
        match self {
            Self::Directory(path) => Ok(Tree::open(path)?),
            Self::Debian | Self::Archive(_) => Ok(self.obtain(cache)?.tree),
        }
    }

    /// The tree, unpacked once, and its hash.
    pub fn obtain(&self, cache: &Cache) -> Result<Sources, ObtainError> {
        match self {
            Self::Debian => kept(&debian(cache)?),
            Self::Archive(path) => kept(&archive(cache, path)?),
            Self::Directory(path) => {
                let tree = Tree::open(path)?;
                // Anybody may have changed it since.
                let sha256 = lock::sha256_of_tree(&tree)?;
                Ok(Sources { tree, sha256 })
            }
        }
    }
}

fn debian(cache: &Cache) -> Result<PathBuf, ObtainError> {
    let entries = cache.dir().join(ENTRIES);
    let version = match package::candidate(PACKAGE) {
        Ok(version) => version.replace(':', "_"),
        // Without a network, or apt's lists, what is there already will do.
        Err(error) => {
            let Some(found) = newest_kept(&entries) else {
                return Err(error.into());
            };
            return Ok(found);
        }
    };
    cache.get_or_fill(&format!("{ENTRIES}/debian-{version}"), |entry| {
        package::download(PACKAGE, entry)?;
        let packed = entry.join(PACKAGE_ARCHIVE);
        unpack(&packed, entry, Path::new(PACKAGE))?;
        let _ = fs::remove_dir_all(entry.join("usr"));
        Ok(())
    })
}

fn newest_kept(entries: &Path) -> Option<PathBuf> {
    let names = fs::read_dir(entries).ok()?.flatten();
    let mut kept: Vec<PathBuf> = names
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("debian-"))
        .map(|entry| entry.path())
        .collect();
    kept.sort();
    kept.pop()
}

fn archive(cache: &Cache, path: &Path) -> Result<PathBuf, ObtainError> {
    fs::File::open(path).map_err(|source| ObtainError::Missing {
        path: path.to_owned(),
        source,
    })?;
    let hash = lock::sha256_of_file(path)?;
    cache.get_or_fill(&format!("{ENTRIES}/archive-{}", &hash[..16]), |entry| {
        unpack(path, entry, path)
    })
}

/// Unpacks an archive of one directory as `entry/linux`, and hashes it; `name` is
/// what the user knows it by.
fn unpack(archive: &Path, entry: &Path, name: &Path) -> Result<(), ObtainError> {
    let dir = entry.join("linux");
    let io = |source| ObtainError::Missing {
        path: dir.clone(),
        source,
    };
    fs::create_dir(&dir).map_err(io)?;
    let output = Command::new("tar")
        .args(["--extract", "--no-same-owner", "--strip-components=1"])
        .arg("--file")
        .arg(archive)
        .arg("--directory")
        .arg(&dir)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(ObtainError::NoTar)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(ObtainError::Unpack {
            path: archive.to_owned(),
            said: said
                .lines()
                .find(|line| !line.trim().is_empty())
                .unwrap_or("it said nothing")
                .to_owned(),
        });
    }
    let tree = Tree::open(&dir).map_err(|error| error.of(name))?;
    let hash = lock::sha256_of_tree(&tree)?;
    fs::write(entry.join(HASH), hash).map_err(io)
}

/// A tree that was unpacked by us, with the hash it had then.
fn kept(entry: &Path) -> Result<Sources, ObtainError> {
    let tree = Tree::open(&entry.join("linux"))?;
    let path = entry.join(HASH);
    let sha256 =
        fs::read_to_string(&path).map_err(|source| ObtainError::Missing { path, source })?;
    Ok(Sources { tree, sha256 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn packed(dir: &Path, makefile: &str) -> PathBuf {
        let tree = dir.join("linux-6.1.1");
        fs::create_dir_all(tree.join("scripts/kconfig")).unwrap();
        fs::write(tree.join("Kconfig"), "").unwrap();
        fs::write(tree.join("Makefile"), makefile).unwrap();
        let archive = dir.join("linux.tar");
        let mut tar = Command::new("tar");
        tar.current_dir(dir)
            .args(["cf", "linux.tar", "linux-6.1.1"]);
        assert!(tar.status().unwrap().success());
        archive
    }

    #[test]
    fn an_archive_is_unpacked_once_and_hashed_as_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("cache"));
        let makefile = "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 1\n";
        let archive = packed(dir.path(), makefile);
        let first = Source::at(archive.clone()).obtain(&cache).unwrap();
        assert_eq!(first, Source::at(archive).obtain(&cache).unwrap());
        let directory = Source::at(dir.path().join("linux-6.1.1")).obtain(&cache);
        assert_eq!(first.sha256, directory.unwrap().sha256);
        let entries = fs::read_dir(cache.dir().join(ENTRIES)).unwrap();
        assert_eq!(entries.count(), 1);
    }

    #[test]
    fn a_download_that_is_not_a_kernel_leaves_nothing_in_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("cache"));
        let old = packed(dir.path(), "VERSION = 5\nPATCHLEVEL = 4\nSUBLEVEL = 1\n");
        let error = Source::at(old).obtain(&cache).unwrap_err().to_string();
        assert!(error.contains("/linux.tar is Linux 5.4.1"), "{error}");
        let damaged = dir.path().join("damaged.tar");
        fs::write(&damaged, "no archive").unwrap();
        let error = Source::at(damaged).obtain(&cache).unwrap_err().to_string();
        assert!(error.contains("damaged.tar cannot be unpacked"), "{error}");
        let packed = dir.path().join("packed.tar.gz");
        fs::write(&packed, [0x1f, 0x8b, 8, 0]).unwrap();
        let error = Source::at(packed).obtain(&cache).unwrap_err().to_string();
        assert!(error.contains("gzip: "), "{error}");
        let missing = Source::at(dir.path().join("none")).obtain(&cache);
        assert!(matches!(missing, Err(ObtainError::Missing { .. })));
        let entries = fs::read_dir(cache.dir().join(ENTRIES)).unwrap();
        assert_eq!(entries.count(), 0);
    }
}
