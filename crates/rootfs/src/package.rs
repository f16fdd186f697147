//! Debian's packages: downloaded by apt and unpacked, never installed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::archive::{self, ArchiveError};

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
    #[error("{what} failed ({said}); with a network that reaches Debian's servers try again")]
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

/// The package that a package of no content of its own depends on and that
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

/// Downloads a package and unpacks it into `dir`; its version. apt checks who signed it.
pub fn download(package: &str, dir: &Path) -> Result<String, PackageError> {
    let version = candidate(package)?;
    let wanted = format!("{package}={version}");
    // apt leaves the package in its working directory, which its own user may
    // not enter; it then says so and goes on as root.
    output_of("apt-get", &["download", "-qq", &wanted], Some(dir))?;
    let file = only_file(dir, package)?;
    let io = |what| move |source| PackageError::Io { what, source };
    let packed = File::open(&file).map_err(io("read the package"))?;
    archive::unpack_package(packed, package, dir).map_err(|source| PackageError::Unpack {
        package: package.to_owned(),
        source,
    })?;
    fs::remove_file(&file).map_err(io("write the cache"))?;
    Ok(version)
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
    fn a_version_that_could_be_a_path_is_refused() {
        assert!(is_plain("6.1.192-2"));
        for version in ["(none)", "../6", "6/1", ""] {
            assert!(!is_plain(version), "{version}");
        }
    }
}
