//! Debian's packages: downloaded by apt and unpacked, never installed.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use flate2::read::GzDecoder;
use rustix::fs::{Mode, OFlags, Uid, chown, open};
use rustix::process::geteuid;
use sha2::{Digest as _, Sha256};

use crate::archive::{self, ArchiveError};

/// Largest package, bytes: ten times that of the kernel's sources.
const LARGEST: u64 = 2 << 30;
/// Longest line with a version, bytes.
const LONGEST_LINE: u64 = 1 << 10;

/// Why a package is not available.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// A program of Debian's is missing.
    #[error("{program} is missing, so Debian's packages cannot be downloaded")]
    NoProgram {
        /// The program.
        program: &'static str,
    },
    /// apt does not know the package.
    #[error("apt knows no package {0}; run apt-get update")]
    Unknown(String),
    /// A program failed.
    #[error("{what} failed ({said}); check the connection to Debian's servers and try again")]
    Failed {
        /// What was done.
        what: String,
        /// Its last line.
        said: String,
    },
    /// It is damaged, or more than a package may be.
    #[error("the package {package} cannot be unpacked")]
    Unpack {
        /// The package.
        package: String,
        /// Why.
        source: ArchiveError,
    },
    /// The package does not hold what it should.
    #[error("the package {package} does not contain {missing}")]
    Incomplete {
        /// The package.
        package: String,
        /// What is not in it.
        missing: &'static str,
    },
    /// A file or program of this computer failed.
    #[error("cannot {what}")]
    Io {
        /// What was done.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// The package that a package without content depends on and that
/// `is_meant`.
pub fn newest(meta: &str, is_meant: impl Fn(&str) -> bool) -> Result<String, PackageError> {
    let unknown = || PackageError::Unknown(meta.to_owned());
    let dependencies = output_of("apt-cache", &["depends", "--important", meta], None).map_err(
        |error| match error {
            PackageError::Failed { .. } => unknown(),
            other => other,
        },
    )?;
    dependencies
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| is_meant(name))
        .map(str::to_owned)
        .ok_or_else(unknown)
}

/// The version of a package that apt would download.
pub fn candidate(package: &str) -> Result<String, PackageError> {
    let policy = output_of("apt-cache", &["policy", package], None)?;
    policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))
        .filter(|version| is_plain(version))
        .map(str::to_owned)
        .ok_or_else(|| PackageError::Unknown(package.to_owned()))
}

/// The version becomes a path: only what Debian allows in versions, and a digit
/// first, which `(none)` has not.
fn is_plain(version: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "+-.~:".contains(c);
    version.starts_with(|c: char| c.is_ascii_digit()) && version.chars().all(allowed)
}

/// Downloads a package and unpacks it into `dir`; its version.
///
/// apt checks who signed the lists, and downloads as its own user (`_apt`), in a directory that is that
/// user's. What came is held against the list's hash where that user cannot change it.
pub fn download(package: &str, dir: &Path) -> Result<String, PackageError> {
    let io = |what| move |source| PackageError::Io { what, source };
    let version = candidate(package)?;
    let wanted = format!("{package}={version}");
    let uris = output_of(
        "apt-get",
        &["download", "--print-uris", "-qq", &wanted],
        None,
    )?;
    let expected = listed_hash(&uris).ok_or_else(|| PackageError::Failed {
        what: format!("apt-get download --print-uris {wanted}"),
        said: "it names no SHA-256".to_owned(),
    })?;
    let place = tempfile::Builder::new()
        .prefix("tare-apt-")
        .tempdir()
        .map_err(io("make a directory for apt"))?;
    if geteuid().is_root()
        && let Some(user) = sandbox_user()
    {
        let owner = Some(Uid::from_raw(user));
        chown(place.path(), owner, None)
            .map_err(|errno| io("make a directory for apt")(errno.into()))?;
    }
    output_of("apt-get", &["download", "-qq", &wanted], Some(place.path()))?;
    let file = only_file(place.path(), package)?;
    let kept = tempfile::tempfile_in(dir).map_err(io("write the cache"))?;
    let packed = keep_checked(&file, kept, expected, package)?;
    archive::unpack_package(packed, package, dir).map_err(|source| PackageError::Unpack {
        package: package.to_owned(),
        source,
    })?;
    Ok(version)
}

/// Names of a package's list of changes: of a rebuild, of Debian's, of one that is Debian's own.
const CHANGES: [&str; 3] = [
    "changelog.Debian.amd64.gz",
    "changelog.Debian.gz",
    "changelog.gz",
];

/// The version of a package that was unpacked into `dir`, from its list of changes: its first
/// line is `NAME (VERSION) RELEASES; urgency=...`.
pub fn unpacked_version(dir: &Path, package: &str) -> Option<String> {
    let docs = dir.join("usr/share/doc").join(package);
    CHANGES.into_iter().find_map(|name| {
        let file = File::open(docs.join(name)).ok()?;
        let mut line = String::new();
        let text = GzDecoder::new(file).take(LONGEST_LINE);
        BufReader::new(text).read_line(&mut line).ok()?;
        let (version, _) = line.split_once(" (")?.1.split_once(')')?;
        is_plain(version).then(|| version.to_owned())
    })
}

/// The hash in a line `'URI' FILE BYTES SHA256:HASH`.
fn listed_hash(uris: &str) -> Option<&str> {
    let hash = uris.lines().next()?.rsplit_once(" SHA256:")?.1;
    let is_hash = hash.len() == 64 && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hash.then_some(hash)
}

/// As whom apt downloads for root.
fn sandbox_user() -> Option<u32> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find_map(|line| line.strip_prefix("_apt:"))?;
    line.split(':').nth(1)?.parse().ok()
}

/// Copies a file into one without a name, if it has that SHA-256.
fn keep_checked(
    path: &Path,
    mut kept: File,
    expected: &str,
    package: &str,
) -> Result<File, PackageError> {
    let io = |source| PackageError::Io {
        what: "read the package",
        source,
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty()).map_err(|errno| io(errno.into()))?;
    let mut file = File::from(file).take(LARGEST);
    let mut hash = Sha256::new();
    let mut part = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut part).map_err(io)?;
        if read == 0 {
            break;
        }
        hash.update(&part[..read]);
        kept.write_all(&part[..read]).map_err(io)?;
    }
    let found: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if found != expected {
        return Err(PackageError::Failed {
            what: format!("the check of {package}"),
            said: format!("SHA-256 {found}, apt's list has {expected}"),
        });
    }
    kept.rewind().map_err(io)?;
    Ok(kept)
}

fn only_file(dir: &Path, package: &str) -> Result<PathBuf, PackageError> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .ok_or_else(|| PackageError::Incomplete {
            package: package.to_owned(),
            missing: "file",
        })
}

/// What a program prints.
fn output_of(
    program: &'static str,
    arguments: &[&str],
    dir: Option<&Path>,
) -> Result<String, PackageError> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(dir.unwrap_or(Path::new("/")))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => PackageError::NoProgram { program },
            _ => PackageError::Io {
                what: "start a program",
                source,
            },
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(PackageError::Failed {
        what: format!("{program} {}", arguments.join(" ")),
        said: said.unwrap_or("it said nothing").trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_another_hash_than_apts_list_has_is_refused() {
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let line = format!("'http://deb.debian.org/a.deb' a.deb 3 SHA256:{hash}\n");
        assert_eq!(listed_hash(&line), Some(hash));
        for bad in ["", "'http://a' a.deb 3 MD5Sum:00", "a SHA256:12"] {
            assert_eq!(listed_hash(bad), None);
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.deb");
        let kept = || tempfile::tempfile().unwrap();
        fs::write(&path, "abc").unwrap();
        let mut text = String::new();
        let mut packed = keep_checked(&path, kept(), hash, "a").unwrap();
        packed.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
        fs::write(&path, "abd").unwrap();
        let error = keep_checked(&path, kept(), hash, "a").unwrap_err();
        assert!(error.to_string().contains(hash), "{error}");
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(keep_checked(&link, kept(), hash, "a").is_err());
    }

    #[test]
    fn a_package_that_was_unpacked_has_the_version_of_its_changes() {
        let dir = tempfile::tempdir().unwrap();
        let docs = dir.path().join("usr/share/doc/redis-server");
        fs::create_dir_all(&docs).unwrap();
        let put = |name: &str, text: &str| {
            let file = File::create(docs.join(name)).unwrap();
            let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
            packed.write_all(text.as_bytes()).unwrap();
            packed.finish().unwrap();
        };
        let version = || unpacked_version(dir.path(), "redis-server");
        assert_eq!(version(), None);
        put("changelog.gz", "Redis 7.0 release notes\n");
        assert_eq!(version(), None, "the program's own");
        let line = "redis (5:7.0.15-1~deb12u4) bookworm; urgency=high\n\n  * Fix.\n";
        put("changelog.Debian.gz", line);
        assert_eq!(version().as_deref(), Some("5:7.0.15-1~deb12u4"));
        put("changelog.Debian.amd64.gz", &line.replace("u4)", "u4+b1)"));
        assert_eq!(version().as_deref(), Some("5:7.0.15-1~deb12u4+b1"));
    }

    #[test]
    fn a_version_that_could_be_a_path_is_refused() {
        assert!(is_plain("6.1.192-2"));
        for version in ["(none)", "../6", "6/1", ""] {
            assert!(!is_plain(version), "{version}");
        }
    }
}
