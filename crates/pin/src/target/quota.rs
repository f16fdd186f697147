//! CPU quotas of control groups, of both versions.

use std::fs;
use std::path::{Path, PathBuf};

/// A CPU quota, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPUs, thousandths.
    pub millicpus: u64,
    /// Periods in which it was used up, since the group was made.
    pub throttled_periods: u64,
    /// Its file, and what takes it off.
    pub file: PathBuf,
    /// What is written there for no quota.
    pub none: &'static str,
}

impl Quota {
    /// Of this group, or of the innermost above it that has one.
    pub(super) fn above(group: &Path) -> Option<Self> {
        group.ancestors().find_map(Self::of)
    }

    /// Of `cpu.max`, or of `cpu.cfs_quota_us` and its period.
    fn of(group: &Path) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(group.join(name)).ok();
        let (text, name, none) = match read("cpu.max") {
            Some(text) => (text, "cpu.max", "max"),
            None => {
                let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
                let text = format!("{} {}", quota.trim(), period.trim());
                (text, "cpu.cfs_quota_us", "-1")
            }
        };
        let mut fields = text.split_whitespace();
        // "max", or -1: none.
        let quota_us: u64 = fields.next()?.parse().ok()?;
        let period_us: u64 = fields.next()?.parse().ok()?;
        Some(Self {
            millicpus: quota_us.checked_mul(1000)?.checked_div(period_us)?,
            throttled_periods: read("cpu.stat")
                .and_then(|stat| throttled(&stat))
                .unwrap_or(0),
            file: group.join(name),
            none,
        })
    }
}

/// `nr_throttled` of `cpu.stat`.
fn throttled(stat: &str) -> Option<u64> {
    let count = stat
        .lines()
        .find_map(|line| line.strip_prefix("nr_throttled "));
    count?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn quotas_of_both_versions_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let millicpus = || Quota::of(dir.path()).map(|quota| quota.millicpus);
        assert_eq!(millicpus(), None);
        write("cpu.cfs_quota_us", "-1\n");
        write("cpu.cfs_period_us", "100000\n");
        assert_eq!(millicpus(), None);
        write("cpu.cfs_quota_us", "150000\n");
        assert_eq!(millicpus(), Some(1500));
        write("cpu.max", "max 100000\n");
        assert_eq!(millicpus(), None);
        write("cpu.max", "50000 100000\n");
        assert_eq!(millicpus(), Some(500));
    }

    #[test]
    fn the_innermost_quota_counts_and_its_file_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("machine/vcpu0");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(Quota::above(&inner), None);
        let outer = dir.path().join("machine");
        fs::write(outer.join("cpu.max"), "20000 100000\n").unwrap();
        fs::write(outer.join("cpu.stat"), "nr_periods 9\nnr_throttled 7\n").unwrap();
        let quota = Quota::above(&inner).unwrap();
        assert_eq!((quota.millicpus, quota.throttled_periods), (200, 7));
        assert_eq!((quota.file, quota.none), (outer.join("cpu.max"), "max"));
    }
}
