//! CPU quotas of cgroups, of both versions.

use std::fs;
use std::path::{Path, PathBuf};

use tare_probe::proc::CpuLimit;

/// A CPU quota, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPUs, thousandths.
    pub millicpus: u64,
    /// Periods in which it was used up, since the group was made.
    pub throttled_periods: u64,
    /// Its cgroup.
    pub group: PathBuf,
    /// Its file, and what takes it off.
    pub file: PathBuf,
    /// What is written there for no quota.
    pub none: &'static str,
}

impl Quota {
    /// Of this group and of those above it, the inner ones first.
    pub(super) fn all(group: &Path) -> Vec<Self> {
        group.ancestors().filter_map(Self::of).collect()
    }

    /// The one that binds first: the smallest, and the innermost of several.
    pub(super) fn binding(quotas: Vec<Self>) -> Option<Self> {
        quotas.into_iter().min_by_key(|quota| quota.millicpus)
    }

    fn of(group: &Path) -> Option<Self> {
        let limit = CpuLimit::of(group)?;
        let (file, none) = limit.removal();
        let stat = fs::read_to_string(group.join("cpu.stat")).ok();
        Some(Self {
            millicpus: limit.millicpus(),
            throttled_periods: stat.and_then(|stat| throttled(&stat)).unwrap_or(0),
            group: group.to_owned(),
            file: group.join(file),
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
    use super::super::cgroup;
    use super::*;

    /// Three processes that no host has: PID_MAX_LIMIT is 4,194,304 (include/linux/threads.h),
    /// and a small number may be a kernel thread of this one.
    const PIDS: [u32; 3] = [5_000_007, 5_000_008, 5_000_009];

    /// `machine.slice` with 30 % of a CPU, above a group with `inner`, which holds the first of
    /// [`PIDS`].
    fn nested(inner: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (outer, own) = (
            dir.path().join("machine.slice"),
            dir.path().join("machine.slice/vm"),
        );
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("cpu.max"), inner).unwrap();
        fs::write(own.join("cgroup.procs"), listed(&PIDS[..1])).unwrap();
        fs::write(outer.join("cpu.max"), "30000 100000\n").unwrap();
        fs::write(outer.join("cpu.stat"), "nr_periods 9\nnr_throttled 7\n").unwrap();
        fs::write(outer.join("cgroup.procs"), "").unwrap();
        (dir, outer, own)
    }

    fn listed(pids: &[u32]) -> String {
        pids.iter().map(|pid| format!("{pid}\n")).collect()
    }

    #[test]
    fn the_smallest_quota_binds_wherever_it_is() {
        let (_dir, outer, own) = nested("400000 100000\n");
        let quotas = Quota::all(&own);
        let read = quotas.iter().map(|it| (it.millicpus, it.throttled_periods));
        assert_eq!(read.collect::<Vec<_>>(), [(4000, 0), (300, 7)]);
        let binding = Quota::binding(quotas).unwrap();
        assert_eq!((&binding.group, binding.none), (&outer, "max"));
        assert_eq!(binding.file, outer.join("cpu.max"));
        fs::write(own.join("cpu.max"), "20000 100000\n").unwrap();
        let binding = Quota::binding(Quota::all(&own)).unwrap();
        assert_eq!((binding.millicpus, binding.group), (200, own));
    }

    #[test]
    fn a_group_without_a_quota_has_that_of_the_one_above() {
        let (_dir, outer, own) = nested("max 100000\n");
        let quotas = Quota::all(&own);
        assert_eq!(quotas.len(), 1);
        assert_eq!((quotas[0].millicpus, &quotas[0].group), (300, &outer));
    }

    #[test]
    fn a_group_with_processes_of_others_is_not_the_targets_own() {
        let (_dir, outer, own) = nested("400000 100000\n");
        let owned = || {
            let quotas = Quota::all(&own).into_iter();
            let holds = |quota: Quota| cgroup::holds_only(&quota.group, &PIDS[..2]);
            quotas.map(holds).collect::<Vec<_>>()
        };
        assert_eq!(owned(), [true, true]);
        // A second machine in the slice.
        let other = outer.join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("cgroup.procs"), listed(&PIDS[2..])).unwrap();
        assert_eq!(owned(), [true, false]);
        fs::write(own.join("cgroup.procs"), listed(&[PIDS[0], PIDS[2]])).unwrap();
        assert_eq!(owned(), [false, false]);
        // A threaded group lists threads only; one that cannot be read may hold anything.
        fs::remove_dir_all(&other).unwrap();
        fs::remove_file(own.join("cgroup.procs")).unwrap();
        fs::write(own.join("cgroup.threads"), listed(&PIDS[..2])).unwrap();
        assert_eq!(owned(), [true, true]);
        fs::remove_file(own.join("cgroup.threads")).unwrap();
        assert_eq!(owned(), [false, false]);
    }
}
