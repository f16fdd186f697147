//! Paths that were found, and what was asked of each.
//!
//! A relative path is completed by the identity of the directory that it begins in:
//! of a directory whose path is known, or else by what `/proc` tells of its task, while
//! it lives.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{major, minor};
use tare_profile::{Asked, Lookups as Found, paths};

use super::record::PathRecord;

/// Most paths that are kept.
const MOST: usize = 65_536;
/// Longest path of a record, bytes; a longer one was cut.
const LONGEST: usize = 511;
/// The descriptor that stands for the working directory.
const AT_FDCWD: u32 = -100_i32 as u32;
/// The kernel's `MINORBITS`.
const MINOR_BITS: u32 = 20;
/// By the bits of the kernel side's `enum asked`.
const ASKED: [Asked; 9] = [
    Asked::Access,
    Asked::Change,
    Asked::Enter,
    Asked::Execute,
    Asked::Link,
    Asked::List,
    Asked::Open,
    Asked::Stat,
    Asked::Write,
];

/// What was found so far.
#[derive(Debug)]
pub(super) struct Lookups {
    found: Found,
    /// Directories by device and inode, as the kernel numbers them.
    directories: BTreeMap<[u64; 2], String>,
    unplaced: u64,
}

impl Default for Lookups {
    /// Knows the observer's own directory, where a command starts.
    fn default() -> Self {
        let mut lookups = Self {
            found: Found::new(),
            directories: BTreeMap::new(),
            unplaced: 0,
        };
        if let Ok(here) = std::env::current_dir() {
            lookups.learn(&here);
        }
        lookups
    }
}

impl Lookups {
    /// A path was found.
    pub(super) fn found(&mut self, record: &PathRecord) {
        let asked: Vec<Asked> = ASKED
            .iter()
            .enumerate()
            .filter(|(bit, _)| record.mode >> bit & 1 == 1)
            .map(|(_, asked)| *asked)
            .collect();
        self.add(record, &asked);
    }

    /// A program was started.
    pub(super) fn started(&mut self, record: &PathRecord) {
        // A program's record tells what it is, not where its path begins.
        let record = PathRecord {
            what: AT_FDCWD,
            key: [0, 0],
            ..record.clone()
        };
        self.add(&record, &[Asked::Execute]);
    }

    /// All paths, and how many are missing.
    pub(super) fn finish(self) -> (Found, u64) {
        (self.found, self.unplaced)
    }

    fn add(&mut self, record: &PathRecord, asked: &[Asked]) {
        let path = self.absolute(record);
        let Some(path) = path.filter(|_| record.path.len() < LONGEST) else {
            self.unplaced += 1;
            return;
        };
        // Files there are the kernel's, and stand among the features.
        if paths::file_system(&path).is_some() {
            return;
        }
        if asked
            .iter()
            .any(|it| matches!(it, Asked::List | Asked::Enter))
        {
            self.learn(Path::new(&path));
        }
        if self.found.len() == MOST && !self.found.contains_key(&path) {
            self.unplaced += 1;
            return;
        }
        self.found.entry(path).or_default().extend(asked);
    }

    /// The path from the root; nothing where its beginning is not known.
    fn absolute(&mut self, record: &PathRecord) -> Option<String> {
        if record.path.starts_with('/') {
            return Some(paths::plain(&record.path));
        }
        let base = match self.directories.get(&record.key) {
            Some(known) => known.clone(),
            None => {
                let link = match record.what {
                    AT_FDCWD => format!("/proc/{}/cwd", record.tid),
                    descriptor => format!("/proc/{}/fd/{descriptor}", record.tid),
                };
                let base = fs::read_link(link)
                    .ok()?
                    .into_os_string()
                    .into_string()
                    .ok()?;
                self.learn(Path::new(&base));
                base
            }
        };
        Some(paths::plain(&format!("{base}/{}", record.path)))
    }

    fn learn(&mut self, directory: &Path) {
        let Some(text) = directory.to_str() else {
            return;
        };
        if self.directories.len() < MOST
            && let Ok(metadata) = fs::metadata(directory)
        {
            let device = metadata.dev();
            let device = u64::from(major(device)) << MINOR_BITS | u64::from(minor(device));
            self.directories
                .insert([device, metadata.ino()], text.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(path: &str, mode: u64, key: [u64; 2]) -> PathRecord {
        PathRecord {
            tid: u32::MAX,
            tgid: u32::MAX,
            what: AT_FDCWD,
            key,
            mode,
            file_system: String::new(),
            path: path.to_owned(),
        }
    }

    fn key(directory: &Path) -> [u64; 2] {
        let metadata = fs::metadata(directory).unwrap();
        let device = metadata.dev();
        let device = u64::from(major(device)) << MINOR_BITS | u64::from(minor(device));
        [device, metadata.ino()]
    }

    #[test]
    fn what_was_asked_of_a_path_is_added_up() {
        let mut lookups = Lookups::default();
        lookups.found(&record("/a/./b//c", 128, [0, 0]));
        lookups.found(&record("/a/b/c", 64 | 16, [0, 0]));
        lookups.started(&record("/a/b", 0o100_755, [7, 7]));
        let (found, missing) = lookups.finish();
        let asked: Vec<Asked> = found["/a/b/c"].iter().copied().collect();
        assert_eq!(asked, [Asked::Link, Asked::Open, Asked::Stat]);
        assert!(found["/a/b"].contains(&Asked::Execute));
        assert_eq!((found.len(), missing), (2, 0));
    }

    #[test]
    fn a_relative_path_is_completed_by_its_directory_after_its_task_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let mut lookups = Lookups::default();
        lookups.found(&record(place.to_str().unwrap(), 4, [0, 0]));
        lookups.found(&record("x/../y", 128, key(&place)));
        lookups.found(&record("x", 128, [1, 1]));
        let (found, missing) = lookups.finish();
        assert!(found.contains_key(&format!("{}/x/../y", place.display())));
        assert_eq!((found.len(), missing), (2, 1));
    }

    #[test]
    fn kernel_files_and_cut_paths_are_not_listed() {
        let mut lookups = Lookups::default();
        lookups.found(&record("/proc/1/stat", 128, [0, 0]));
        lookups.found(&record(&format!("/{}", "x".repeat(510)), 128, [0, 0]));
        assert_eq!(lookups.finish(), (Found::new(), 1));
    }
}
