//! What a build is made of, so that it can be made again bit for bit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cut::Cut;
use crate::mapping::Symbol;
use crate::objects;
use crate::source::Tree;

/// The schema that this version writes and reads.
pub const SCHEMA: &str = "tare-kernel-lock/1";

/// Largest lock, bytes; one of a kernel with all options has 500 KiB.
const LARGEST_LOCK: u64 = 16 << 20;
/// Largest file of sources, bytes: Linux's has 20 MiB.
const LARGEST_SOURCE: u64 = 256 << 20;

/// A built kernel's ingredients and what came of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// [`SCHEMA`].
    pub schema: String,
    /// Tare's version.
    pub tare_version: String,
    /// The kernel's version.
    pub linux_version: String,
    /// SHA-256 of the source tree before patches.
    pub source_sha256: String,
    /// Patches in the order of applying.
    pub patches: Vec<Patch>,
    /// Cuts that were taken.
    pub cuts: BTreeSet<Cut>,
    /// More flags for the compiler.
    pub flags: Vec<String>,
    /// First line of the compiler's and the linker's `--version`.
    pub tools: Vec<String>,
    /// Lines of the configuration that set something.
    pub config: Vec<String>,
    /// Options that were added to what the profile needs, by proofs or the user, each with why.
    /// Locks of earlier versions have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub added: BTreeMap<Symbol, String>,
    /// Counts that the compiler optimized by, which are in a file beside the lock; none without the cut `pgo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<LockedCounts>,
    /// SHA-256 of the compressed image.
    pub image_sha256: String,
    /// Its size, bytes.
    pub image_bytes: u64,
}

/// Execution counts of a build ([`crate::counts`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedCounts {
    /// SHA-256 over their files.
    pub sha256: String,
    /// The directory of the sources, by whose path gcc finds a function's counts.
    pub sources: String,
}

/// A patch of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// Its name.
    pub name: String,
    /// SHA-256 of its text.
    pub sha256: String,
}

/// A lock that cannot be used or kept.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// No lock, or a damaged one.
    #[error("{} is not a kernel lock file, or it is damaged", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Of another version.
    #[error("{} has the schema `{found}`, this version reads `{SCHEMA}`: tailor the kernel again", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// One that cannot be read.
    #[error("cannot read the lock file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that cannot be written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Lock {
    /// Reads a lock file.
    pub fn read(path: &Path) -> Result<Self, LockError> {
        let mut bytes = Vec::new();
        let opened = fs::File::open(path);
        let read = opened.and_then(|file| file.take(LARGEST_LOCK + 1).read_to_end(&mut bytes));
        let failed = |source| LockError::Read {
            path: path.to_owned(),
            source,
        };
        read.map_err(failed)?;
        if bytes.len() as u64 > LARGEST_LOCK {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        Self::parse(path, &bytes)
    }

    /// What a file's bytes say.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, LockError> {
        let json = |source| LockError::Json {
            path: path.to_owned(),
            source,
        };
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(json)?;
        let found = value.get("schema").and_then(|schema| schema.as_str());
        match found {
            Some(SCHEMA) => serde_json::from_value(value).map_err(json),
            found => Err(LockError::Schema {
                path: path.to_owned(),
                found: found.unwrap_or("none").chars().take(40).collect(),
            }),
        }
    }

    /// Writes the lock.
    pub fn write(&self, path: &Path) -> Result<(), LockError> {
        let json = serde_json::to_vec_pretty(self).map_err(|source| LockError::Json {
            path: path.to_owned(),
            source,
        })?;
        fs::write(path, [&json, b"\n".as_slice()].concat()).map_err(file(path))
    }

    /// What is another in the second build than in the first: names of fields,
    /// the likeliest cause of different bits first. Empty for equal builds.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let fields = [
            ("source", self.source_sha256 != other.source_sha256),
            ("patches", self.patches != other.patches),
            ("flags of the compiler", self.flags != other.flags),
            ("compiler or linker", self.tools != other.tools),
            ("configuration", self.config != other.config),
            ("execution counts", self.counts != other.counts),
            ("image", self.image_sha256 != other.image_sha256),
        ];
        let different = fields.into_iter().filter(|(_, differs)| *differs);
        different.map(|(name, _)| name).collect()
    }
}

/// SHA-256 of a file, in hexadecimal.
pub fn sha256_of_file(path: &Path) -> Result<String, LockError> {
    let input = fs::File::open(path).map_err(file(path))?;
    sha256_of(input).map_err(file(path))
}

/// SHA-256 of what is read, in hexadecimal.
pub(crate) fn sha256_of(mut input: impl io::Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut input, &mut Writer(&mut hash))?;
    Ok(hex(hash))
}

/// SHA-256 of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::new_with_prefix(bytes))
}

/// SHA-256 over names and contents of all files of a tree, in the order of
/// their names; links count by what they point at.
pub(crate) fn sha256_of_tree(tree: &Tree) -> Result<String, LockError> {
    let mut paths = Vec::new();
    list(tree.dir(), &mut paths)?;
    paths.sort();
    let mut hash = Sha256::new();
    for path in paths {
        let name = path.strip_prefix(tree.dir()).unwrap_or(&path);
        hash.update(name.as_os_str().as_encoded_bytes());
        hash.update([0]);
        let content = if path.is_symlink() {
            fs::read_link(&path).map(|target| target.into_os_string().into_encoded_bytes())
        } else {
            // A pipe would be waited for, a device read without end.
            objects::read(tree.dir(), name, LARGEST_SOURCE)
        };
        let content = content.map_err(file(&path))?;
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(&content);
    }
    Ok(hex(hash))
}

fn list(dir: &Path, paths: &mut Vec<PathBuf>) -> Result<(), LockError> {
    for entry in fs::read_dir(dir).map_err(file(dir))? {
        let entry = entry.map_err(file(dir))?;
        let kind = entry.file_type().map_err(file(dir))?;
        if kind.is_dir() {
            list(&entry.path(), paths)?
        } else {
            paths.push(entry.path())
        }
    }
    Ok(())
}

fn hex(hash: Sha256) -> String {
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> LockError {
    let path = path.to_owned();
    move |source| LockError::File { path, source }
}

struct Writer<'a>(&'a mut Sha256);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> Lock {
        Lock {
            schema: SCHEMA.to_owned(),
            tare_version: "0.1.0".to_owned(),
            linux_version: "6.1.192".to_owned(),
            source_sha256: "aa".to_owned(),
            patches: Vec::new(),
            cuts: BTreeSet::from([Cut::Smp]),
            flags: Vec::new(),
            tools: vec!["gcc: 12.2".to_owned()],
            config: vec!["CONFIG_NET=y".to_owned()],
            added: BTreeMap::new(),
            counts: None,
            image_sha256: "bb".to_owned(),
            image_bytes: 7,
        }
    }

    #[test]
    fn a_lock_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kernel.lock");
        lock().write(&path).unwrap();
        assert_eq!(Lock::read(&path).unwrap(), lock());
        fs::write(&path, "{\"schema\": \"tare-kernel-lock/7\"}").unwrap();
        let error = Lock::read(&path).unwrap_err().to_string();
        assert!(error.contains("`tare-kernel-lock/7`"), "{error}");
        fs::write(&path, "{").unwrap();
        assert!(matches!(Lock::read(&path), Err(LockError::Json { .. })));
    }

    #[test]
    fn what_differs_is_named_cause_first() {
        let mut other = lock();
        assert!(lock().differences(&other).is_empty());
        other.image_sha256 = "cc".to_owned();
        other.tools = vec!["gcc: 13".to_owned()];
        assert_eq!(lock().differences(&other), ["compiler or linker", "image"]);
    }

    #[test]
    fn a_files_hash_is_the_known_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        fs::write(&path, "abc").unwrap();
        // FIPS 180-2, appendix B.1.
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of_file(&path).unwrap(), known);
    }
}
