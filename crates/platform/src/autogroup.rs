//! The scheduler's automatic groups, which are kept out of a weighing.
//!
//! Where they are on, each session (`setsid`) outside of cgroups gets an equal
//! share of the CPUs, however many threads it has (`kernel/sched/autogroup.c`). On bare
//! metal a server that is its own session then shares with its clients by halves,
//! in a container, which is one group, by threads: another rule, not a cost of the
//! platform. A service of a host's init is in a cgroup, and under no such rule
//! either.

use std::fs;
use std::io;
use std::path::Path;

use crate::journal::{Change, Journal, JournalError};

/// The kernel's switch.
const SWITCH: &str = "/proc/sys/kernel/sched_autogroup_enabled";
/// The same for a guest, on its command line.
pub(crate) const GUEST_WORD: &str = "noautogroup";

/// Automatic groups that stay on.
#[derive(Debug, thiserror::Error)]
pub enum AutogroupError {
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel refuses.
    #[error("cannot disable autogroups of the scheduler in {SWITCH}")]
    Write(#[source] io::Error),
}

/// Switches them off until the journal is undone; nothing where they are off or not
/// in the kernel.
pub fn switch_off(journal: &mut Journal) -> Result<(), AutogroupError> {
    switch(journal, Path::new(SWITCH))
}

fn switch(journal: &mut Journal, path: &Path) -> Result<(), AutogroupError> {
    let was = fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned();
    if was.is_empty() || was == "0" {
        return Ok(());
    }
    let path = path.to_owned();
    journal.note(Change::Setting {
        path: path.clone(),
        was,
    })?;
    fs::write(path, "0").map_err(AutogroupError::Write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_off_for_as_long_as_the_journal_lives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("switch");
        for (was, within) in [("1\n", "0"), ("0\n", "0\n")] {
            fs::write(&path, was).unwrap();
            let (mut journal, _) = Journal::begin(&dir.path().join("journal")).unwrap();
            switch(&mut journal, &path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), within);
            drop(journal);
            assert_eq!(fs::read_to_string(&path).unwrap().trim(), was.trim());
        }
    }

    #[test]
    fn a_kernel_without_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::begin(dir.path()).unwrap();
        let path = dir.path().join("none");
        switch(&mut journal, &path).unwrap();
        assert!(!path.exists());
    }
}
