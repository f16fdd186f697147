//! The kernel's CVE records as a measure of what a kernel exposes: how many of them are of
//! a file that it compiles.
//!
//! The records are an input: a checkout of the kernel's own (`vulns.git`, its directory
//! `cve/published`), a JSON file for each, which names the source files that its fix changed.
//! Fixed or not in these sources, a record shows where faults were found.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Years whose records count: the newest that there are.
const YEARS: usize = 2;
/// Most bytes of one record.
const RECORD_BYTES: u64 = 1 << 20;
/// Most records that are read.
const MOST_RECORDS: usize = 100_000;

/// Records of the last years.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Source files of each record.
    pub files: Vec<BTreeSet<String>>,
    /// The years.
    pub years: BTreeSet<u32>,
}

/// Records that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// A directory or file.
    #[error("cannot read {}", path.display())]
    Read {
        /// The directory or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A record is something else.
    #[error("{} is not a CVE record", path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// More than Tare reads.
    #[error("{} has more than {MOST_RECORDS} records", .0.display())]
    TooMany(PathBuf),
    /// There is none.
    #[error(
        "{} has no CVE records: name the directory cve/published of the kernel's vulns.git",
        .0.display()
    )]
    Empty(PathBuf),
}

/// The parts of a record (CVE JSON 5) that count here.
#[derive(Deserialize)]
struct Record {
    containers: Containers,
}

#[derive(Deserialize)]
struct Containers {
    cna: Cna,
}

#[derive(Deserialize)]
struct Cna {
    #[serde(default)]
    affected: Vec<Affected>,
}

#[derive(Deserialize)]
struct Affected {
    #[serde(default, rename = "programFiles")]
    program_files: Vec<String>,
}

impl Records {
    /// Reads those of the newest two years in a directory, `CVE-2026-1234.json` or in
    /// directories by year.
    pub fn read(dir: &Path) -> Result<Self, RecordsError> {
        let mut by_year: BTreeMap<u32, Vec<PathBuf>> = BTreeMap::new();
        let mut found = 0;
        for path in entries(dir)? {
            let below = if path.is_dir() {
                entries(&path)?
            } else {
                vec![path]
            };
            for path in below {
                let Some(year) = year(&path) else { continue };
                found += 1;
                if found > MOST_RECORDS {
                    return Err(RecordsError::TooMany(dir.to_owned()));
                }
                by_year.entry(year).or_default().push(path);
            }
        }
        let mut records = Self::default();
        for (year, paths) in by_year.into_iter().rev().take(YEARS) {
            records.years.insert(year);
            for path in paths {
                records.files.push(files(&path)?);
            }
        }
        if records.files.is_empty() {
            return Err(RecordsError::Empty(dir.to_owned()));
        }
        Ok(records)
    }

    /// The years, `2025 and 2026`.
    pub fn years(&self) -> String {
        let years: Vec<String> = self.years.iter().map(u32::to_string).collect();
        years.join(" and ")
    }
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, RecordsError> {
    let failed = |source| RecordsError::Read {
        path: dir.to_owned(),
        source,
    };
    let entries = fs::read_dir(dir).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<Result<_, _>>().map_err(failed)
}

/// The year of a record by its file's name.
fn year(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let (year, number) = name.strip_prefix("CVE-")?.split_once('-')?;
    let number = number.strip_suffix(".json")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    year.parse().ok().filter(|_| is_number)
}

fn files(path: &Path) -> Result<BTreeSet<String>, RecordsError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(RECORD_BYTES).read_to_end(&mut bytes))
        .map_err(|source| RecordsError::Read {
            path: path.to_owned(),
            source,
        })?;
    let record: Record = serde_json::from_slice(&bytes).map_err(|source| RecordsError::Record {
        path: path.to_owned(),
        source,
    })?;
    let affected = record.containers.cna.affected.into_iter();
    let files = affected.flat_map(|affected| affected.program_files);
    Ok(files.filter(|file| is_relative(file)).collect())
}

/// Names that stay below the tree.
fn is_relative(file: &str) -> bool {
    !file.starts_with('/') && !file.split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(dir: &Path, name: &str, files: &[&str]) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let affected = serde_json::json!([{ "programFiles": files }, { "product": "Linux" }]);
        let record = serde_json::json!({ "containers": { "cna": { "affected": affected } } });
        fs::write(path, record.to_string()).unwrap();
    }

    #[test]
    fn records_of_the_newest_two_years_count() {
        let dir = tempfile::tempdir().unwrap();
        for (name, file) in [
            ("2024/CVE-2024-1.json", "net/old.c"),
            ("2025/CVE-2025-26000.json", "net/ipv4/tcp.c"),
            ("2026/CVE-2026-1.json", "fs/open.c"),
            ("2026/CVE-2026-1.mbox", "fs/no.c"),
            ("CVE-2026-2.json", "../../etc/passwd"),
        ] {
            put(dir.path(), name, &[file]);
        }
        let records = Records::read(dir.path()).unwrap();
        assert_eq!(records.years(), "2025 and 2026");
        let all: Vec<&str> = records.files.iter().flatten().map(String::as_str).collect();
        assert_eq!(records.files.len(), 3);
        assert!(
            all.contains(&"net/ipv4/tcp.c") && all.contains(&"fs/open.c"),
            "{all:?}"
        );
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn what_is_no_record_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |dir: &Path| Records::read(dir).unwrap_err().to_string();
        assert!(refused(dir.path()).contains("has no CVE records"));
        fs::write(dir.path().join("CVE-2026-3.json"), "{}").unwrap();
        assert!(refused(dir.path()).ends_with("CVE-2026-3.json is not a CVE record"));
        assert!(refused(&dir.path().join("none")).contains("cannot read"));
    }
}
