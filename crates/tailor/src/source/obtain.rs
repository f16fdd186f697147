//! Where a tree comes from: Debian's package, an archive, a directory.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Seek as _;
use std::path::{Path, PathBuf};

use tare_rootfs::archive::{self, ArchiveError};
use tare_rootfs::cache::{Cache, CacheError};
use tare_rootfs::kernel::debian::numbers;
use tare_rootfs::package;
use tare_rootfs::package::PackageError;

use super::{Series, SourceError, Tree};
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
    /// An archive of tar, compressed or not.
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
    /// It is damaged, or larger than sources are.
    #[error("cannot unpack {}", path.display())]
    Unpack {
        /// The archive.
        path: PathBuf,
        /// Why.
        source: ArchiveError,
    },
    /// Sources are archived as one directory.
    #[error("{} does not contain exactly one directory", .0.display())]
    NoDirectory(PathBuf),
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

    /// What it is a version of. Debian's package is not downloaded for that.
    pub fn series(&self, cache: &Cache) -> Result<Series, ObtainError> {
        match self {
            Self::Debian => Ok(Series::V6_1),
            Self::Archive(_) | Self::Directory(_) => Ok(self.tree(cache)?.series()),
        }
    }

    /// The tree, unpacked once, and its hash.
    pub fn obtain(&self, cache: &Cache) -> Result<Sources, ObtainError> {
        match self {
            Self::Debian => unpacked(&debian(cache)?),
            Self::Archive(path) => unpacked(&archive(cache, path)?),
            Self::Directory(path) => {
                let tree = Tree::open(path)?;
                // It may have changed since.
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
        let path = entry.join(PACKAGE_ARCHIVE);
        let packed = File::open(&path).map_err(missing(&path))?;
        unpack(&packed, entry, Path::new(PACKAGE))?;
        let _ = fs::remove_dir_all(entry.join("usr"));
        Ok(())
    })
}

fn newest_kept(entries: &Path) -> Option<PathBuf> {
    let names = fs::read_dir(entries).ok()?.flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let newest = names
        .filter(|name| name.starts_with("debian-"))
        .max_by_key(|name| numbers(name))?;
    Some(entries.join(newest))
}

fn archive(cache: &Cache, path: &Path) -> Result<PathBuf, ObtainError> {
    let opened = File::open(path).and_then(|mut file| {
        let hash = lock::sha256_of(&file)?;
        file.rewind()?;
        Ok((file, hash))
    });
    let (file, hash) = opened.map_err(missing(path))?;
    // What was hashed is unpacked, whatever has the name by then.
    cache.get_or_fill(&format!("{ENTRIES}/archive-{}", &hash[..16]), |entry| {
        unpack(&file, entry, path)
    })
}

fn missing(path: &Path) -> impl FnOnce(io::Error) -> ObtainError {
    let path = path.to_owned();
    move |source| ObtainError::Missing { path, source }
}

/// Unpacks an archive of one directory as `entry/linux`, and hashes it; `name` is
/// what the user knows it by.
fn unpack(archive: &File, entry: &Path, name: &Path) -> Result<(), ObtainError> {
    let dir = entry.join("linux");
    let unpacked = entry.join("unpacked");
    fs::create_dir(&unpacked).map_err(missing(&unpacked))?;
    let called = name.file_name().unwrap_or(name.as_os_str());
    let done = archive::unpack(archive, &called.to_string_lossy(), &unpacked);
    done.map_err(|source| ObtainError::Unpack {
        path: name.to_owned(),
        source,
    })?;
    let all: Vec<PathBuf> = fs::read_dir(&unpacked)
        .map_err(missing(&unpacked))?
        .flatten()
        .map(|found| found.path())
        .collect();
    let only = match &all[..] {
        [only] if only.is_dir() && !only.is_symlink() => only,
        _ => return Err(ObtainError::NoDirectory(name.to_owned())),
    };
    fs::rename(only, &dir).map_err(missing(&dir))?;
    let _ = fs::remove_dir(&unpacked);
    let tree = Tree::open(&dir).map_err(|error| error.of(name))?;
    let hash = lock::sha256_of_tree(&tree)?;
    let path = entry.join(HASH);
    fs::write(&path, hash).map_err(missing(&path))
}

/// A tree that was unpacked by us, with the hash it had then.
fn unpacked(entry: &Path) -> Result<Sources, ObtainError> {
    let tree = Tree::open(&entry.join("linux"))?;
    let path = entry.join(HASH);
    let sha256 = fs::read_to_string(&path).map_err(missing(&path))?;
    Ok(Sources { tree, sha256 })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

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
    fn the_newest_kept_sources_are_found() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(newest_kept(dir.path()), None);
        let names = ["6.1.99-1", "6.1.106-3", "6.1.106-10"];
        for name in names.map(|version| format!("debian-{version}")) {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::create_dir(dir.path().join("archive-9")).unwrap();
        let newest = newest_kept(dir.path());
        assert_eq!(newest, Some(dir.path().join("debian-6.1.106-10")));
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
        assert!(error.starts_with("cannot unpack "), "{error}");
        assert!(error.contains("damaged.tar"), "{error}");
        let packed = dir.path().join("packed.tar.gz");
        fs::write(&packed, [0x1f, 0x8b, 8, 0]).unwrap();
        let error = Source::at(packed).obtain(&cache).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("gzip: "), "{cause}");
        let several = dir.path().join("several.tar");
        let mut tar = Command::new("tar");
        let files = ["cf", "several.tar", "damaged.tar", "packed.tar.gz"];
        assert!(
            tar.current_dir(dir.path())
                .args(files)
                .status()
                .unwrap()
                .success()
        );
        let several = Source::at(several).obtain(&cache);
        assert!(matches!(several, Err(ObtainError::NoDirectory(_))));
        let missing = Source::at(dir.path().join("none")).obtain(&cache);
        assert!(matches!(missing, Err(ObtainError::Missing { .. })));
        let entries = fs::read_dir(cache.dir().join(ENTRIES)).unwrap();
        assert_eq!(entries.count(), 0);
    }
}
