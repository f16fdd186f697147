//! CPU quotas of cgroups, of both cgroup versions, and of those that a thread is in.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use tare_account::{CgroupVersion, Quota};

/// The CPU time that a group may use: `quota_us` of each `period_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLimit {
    version: CgroupVersion,
    quota_us: u64,
    /// Never 0.
    period_us: u64,
}

impl CpuLimit {
    /// Of the group in this directory: of `cpu.max` (version 2), or of `cpu.cfs_quota_us` and
    /// its period (version 1). `None` if the group has no quota.
    pub fn of(directory: &Path) -> Option<Self> {
        let file = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let (version, text) = match file("cpu.max") {
            Some(text) => (CgroupVersion::V2, text),
            None => {
                let (quota, period) = (file("cpu.cfs_quota_us")?, file("cpu.cfs_period_us")?);
                (
                    CgroupVersion::V1,
                    format!("{} {}", quota.trim(), period.trim()),
                )
            }
        };
        let (quota, period) = text.trim().split_once(' ')?;
        // "max", or -1: no quota.
        let (quota_us, period_us) = (quota.parse().ok()?, period.parse().ok()?);
        (period_us > 0).then_some(Self {
            version,
            quota_us,
            period_us,
        })
    }

    /// In thousandths of a CPU.
    pub fn millicpus(&self) -> u64 {
        self.quota_us.saturating_mul(1000) / self.period_us
    }

    /// The group's file that holds it, and what is written there for no quota.
    pub fn removal(&self) -> (&'static str, &'static str) {
        match self.version {
            CgroupVersion::V1 => ("cpu.cfs_quota_us", "-1"),
            CgroupVersion::V2 => ("cpu.max", "max"),
        }
    }
}

/// What a quota has stopped since its group was made (`cpu.stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Throttled {
    /// Time, of stops that have ended, summed over CPUs.
    ns: u64,
    /// Periods, also of a stop that goes on.
    periods: u64,
}

/// The files of one group with a quota, by its directory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    limit: CpuLimit,
    throttled: Throttled,
    threads: Vec<u32>,
}

/// Where this host mounts its cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts {
    cpu_v1: Option<PathBuf>,
    cpuset_v1: Option<PathBuf>,
    unified: Option<PathBuf>,
}

impl Mounts {
    /// Those of this process's mount namespace.
    pub(crate) fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    pub(crate) fn parse(mountinfo: &str) -> Self {
        let mut mounts = Self::default();
        for line in mountinfo.lines() {
            let Some((mount, file_system)) = line.split_once(" - ") else {
                continue;
            };
            let Some(point) = mount.split(' ').nth(4).map(PathBuf::from) else {
                continue;
            };
            let mut fields = file_system.split(' ');
            let kind = fields.next();
            let options: Vec<&str> = fields.flat_map(|field| field.split(',')).collect();
            match kind {
                Some("cgroup2") => mounts.unified = mounts.unified.or(Some(point)),
                Some("cgroup") => {
                    let has = |controller| options.contains(&controller).then(|| point.clone());
                    mounts.cpu_v1 = mounts.cpu_v1.or(has("cpu"));
                    mounts.cpuset_v1 = mounts.cpuset_v1.or(has("cpuset"));
                }
                _ => {}
            }
        }
        mounts
    }

    /// The groups of a thread that may have a quota, the innermost first.
    fn groups(&self, cgroup: &str) -> Vec<PathBuf> {
        let groups = self.groups_of("cpu", self.cpu_v1.as_deref(), cgroup);
        groups.into_iter().map(|(directory, _)| directory).collect()
    }

    /// Those that may have a set of CPUs, the innermost first.
    pub(crate) fn cpuset_groups(&self, cgroup: &str) -> Vec<(PathBuf, CgroupVersion)> {
        self.groups_of("cpuset", self.cpuset_v1.as_deref(), cgroup)
    }

    /// Groups of a controller, whose own hierarchy is mounted there.
    fn groups_of(
        &self,
        controller: &str,
        v1: Option<&Path>,
        cgroup: &str,
    ) -> Vec<(PathBuf, CgroupVersion)> {
        let mut groups = Vec::new();
        for line in cgroup.lines() {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next(), fields.next(), fields.next());
            let (root, version) = match controllers {
                Some("") => (self.unified.as_deref(), CgroupVersion::V2),
                Some(list) if list.split(',').any(|name| name == controller) => {
                    (v1, CgroupVersion::V1)
                }
                _ => continue,
            };
            let (Some(root), Some(path)) = (root, path) else {
                continue;
            };
            let path = Path::new(path.trim_start_matches('/'));
            let below = path.ancestors().filter(|part| !part.as_os_str().is_empty());
            groups.extend(below.map(|part| (root.join(part), version)));
        }
        groups
    }
}

/// A thread, and its group of the `cpu` controller by the kernel's ID, where that is known.
pub(crate) type Member = (u32, Option<u64>);

/// Reads groups: the files of each once a turn, the path of a group that has an ID once.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    mounts: Mounts,
    /// Where the kernel has a folder for each thread, whatever its process.
    proc: PathBuf,
    /// By the kernel's ID, the innermost first.
    paths: HashMap<u64, Vec<PathBuf>>,
    /// Read in this turn.
    files: HashMap<PathBuf, Option<Group>>,
}

impl Groups {
    /// Of this process's mount namespace.
    pub(crate) fn new() -> Self {
        Self {
            mounts: Mounts::read(),
            proc: PathBuf::from("/proc"),
            ..Self::default()
        }
    }

    /// Where the groups are.
    pub(crate) fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// What is read from now on is new.
    pub(crate) fn turn(&mut self) {
        self.files.clear();
    }

    /// Groups with a quota that these threads are in, of whatever process.
    pub(crate) fn of(&mut self, members: &[Member]) -> BTreeMap<PathBuf, Group> {
        let mut found: BTreeMap<PathBuf, Group> = BTreeMap::new();
        for &(tid, group) in members {
            for directory in self.paths(tid, group) {
                let files = self
                    .files
                    .entry(directory.clone())
                    .or_insert_with_key(|directory| Group::read(directory));
                if let Some(files) = files {
                    let group = found.entry(directory).or_insert_with(|| files.clone());
                    group.threads.push(tid);
                }
            }
        }
        found
    }

    /// The groups of a thread, the innermost first; none if it has ended.
    fn paths(&mut self, tid: u32, group: Option<u64>) -> Vec<PathBuf> {
        // The root's, which has no quota, or an automatic group of a session.
        if group == Some(0) {
            return Vec::new();
        }
        if let Some(known) = group.and_then(|id| self.paths.get(&id)) {
            return known.clone();
        }
        let file = self.proc.join(tid.to_string()).join("cgroup");
        // Another thread of the group may be readable: a failure is not kept.
        let Ok(cgroup) = fs::read_to_string(file) else {
            return Vec::new();
        };
        let paths = self.mounts.groups(&cgroup);
        if let Some(id) = group {
            self.paths.insert(id, paths.clone());
        }
        paths
    }
}

/// What was throttled between two readings.
pub(crate) fn since(
    now: &BTreeMap<PathBuf, Group>,
    before: &BTreeMap<PathBuf, Group>,
) -> Vec<Quota> {
    let quota = |(directory, group): (&PathBuf, &Group)| {
        let then = before
            .get(directory)
            .map_or_else(Throttled::default, |group| group.throttled);
        Quota {
            directory: directory.display().to_string(),
            version: group.limit.version,
            cpus: group.limit.quota_us as f64 / group.limit.period_us as f64,
            period_us: group.limit.period_us,
            throttled_ns: group.throttled.ns.saturating_sub(then.ns),
            throttled_periods: group.throttled.periods.saturating_sub(then.periods),
            threads: group.threads.clone(),
        }
    };
    now.iter().map(quota).collect()
}

impl Group {
    /// `None` if the group has no quota.
    fn read(directory: &Path) -> Option<Self> {
        let limit = CpuLimit::of(directory)?;
        let stat = fs::read_to_string(directory.join("cpu.stat")).ok()?;
        Some(Self {
            limit,
            throttled: Throttled::parse(&stat),
            threads: Vec::new(),
        })
    }
}

impl Throttled {
    /// `throttled_time` (version 1, ns) or `throttled_usec` (version 2) of `cpu.stat`, and
    /// `nr_throttled`.
    fn parse(stat: &str) -> Self {
        let field = |name: &str| -> Option<u64> {
            let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
        };
        let ns = field("throttled_usec").map_or_else(
            || field("throttled_time").unwrap_or(0),
            |us| us.saturating_mul(1000),
        );
        Self {
            ns,
            periods: field("nr_throttled").unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n\
33 23 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
34 23 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
cut";

    #[test]
    fn groups_of_both_versions_are_found_up_to_the_root() {
        let mounts = Mounts::parse(MOUNTS);
        let groups = mounts.groups("4:cpuset:/a\n3:cpu,cpuacct:/machine/vm\n0::/user/x\n9:name=y");
        let expected = [
            "/sys/fs/cgroup/cpu,cpuacct/machine/vm",
            "/sys/fs/cgroup/cpu,cpuacct/machine",
            "/sys/fs/cgroup/unified/user/x",
            "/sys/fs/cgroup/unified/user",
        ];
        assert_eq!(groups, expected.map(PathBuf::from));
        assert!(mounts.groups("0::/").is_empty());
    }

    #[test]
    fn quotas_of_both_versions_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let read = || CpuLimit::of(dir.path()).map(|limit| (limit.millicpus(), limit.removal().0));
        assert_eq!(read(), None);
        write("cpu.cfs_quota_us", "-1\n");
        write("cpu.cfs_period_us", "100000\n");
        assert_eq!(read(), None);
        write("cpu.cfs_quota_us", "150000\n");
        assert_eq!(read(), Some((1500, "cpu.cfs_quota_us")));
        write("cpu.max", "max 100000\n");
        assert_eq!(read(), None);
        write("cpu.max", "50000 100000\n");
        assert_eq!(read(), Some((500, "cpu.max")));
        for broken in [
            "",
            "50000",
            "50000 0\n",
            "50000 -1\n",
            "18446744073709551616 1\n",
        ] {
            write("cpu.max", broken);
            assert_eq!(read(), None, "{broken:?}");
        }
    }

    #[test]
    fn throttled_times_of_both_versions_are_read() {
        let v1 = "nr_periods 10\nnr_throttled 9\nthrottled_time 3511000000\n";
        let expected = Throttled {
            ns: 3_511_000_000,
            periods: 9,
        };
        assert_eq!(Throttled::parse(v1), expected);
        let v2 = "usage_usec 1\nnr_throttled 9\nthrottled_usec 3511000\n";
        assert_eq!(Throttled::parse(v2), expected);
        assert_eq!(Throttled::parse(""), Throttled::default());
    }

    #[test]
    fn a_group_is_read_once_for_all_of_its_threads() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cpu.max"), "50000 100000\n").unwrap();
        fs::write(folder.path().join("cpu.stat"), "throttled_usec 4\n").unwrap();
        let mut groups = Groups::default();
        let path = folder.path().to_owned();
        groups.paths.insert(7, vec![path.clone()]);
        let members = [(1, Some(7)), (2, Some(7)), (3, Some(0))];
        let found = groups.of(&members);
        assert_eq!(found[&path].threads, [1, 2]);
        // Until the next turn it is as it was read, for other machines too.
        fs::write(folder.path().join("cpu.stat"), "throttled_usec 9\n").unwrap();
        let again = groups.of(&members[..1]);
        assert_eq!(
            (again[&path].threads.len(), again[&path].throttled.ns),
            (1, 4_000)
        );
        groups.turn();
        assert_eq!(groups.of(&members)[&path].throttled.ns, 9_000);
    }

    #[test]
    fn a_group_is_found_by_any_of_its_threads() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        // Thread 1 has ended, 2 is of another process than 1.
        fs::create_dir_all(at("proc/2")).unwrap();
        fs::create_dir_all(at("cgroup/vm")).unwrap();
        fs::write(at("proc/2/cgroup"), "0::/vm\n").unwrap();
        fs::write(at("cgroup/vm/cpu.max"), "50000 100000\n").unwrap();
        fs::write(at("cgroup/vm/cpu.stat"), "throttled_usec 4\n").unwrap();
        let mut groups = Groups {
            mounts: Mounts {
                unified: Some(at("cgroup")),
                ..Mounts::default()
            },
            proc: at("proc"),
            ..Groups::default()
        };
        let found = groups.of(&[(1, Some(7)), (2, Some(7)), (1, None)]);
        assert_eq!(found[&at("cgroup/vm")].threads, [2]);
        // From now on the group is known by its ID.
        let found = groups.of(&[(1, Some(7)), (2, Some(7))]);
        assert_eq!(found[&at("cgroup/vm")].threads, [1, 2]);
    }

    /// A host of version 2 whose machine is in a scope below a slice with a quota.
    #[test]
    fn a_tree_of_version_2_is_read_from_its_mount_to_what_was_throttled() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let scope = at("cgroup/machine.slice/vm.scope");
        fs::create_dir_all(&scope).unwrap();
        fs::create_dir_all(at("proc/41")).unwrap();
        fs::create_dir_all(at("proc/42")).unwrap();
        let root = at("cgroup").display().to_string();
        let mountinfo = format!("31 23 0:27 / {root} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
        fs::write(at("proc/41/cgroup"), "0::/machine.slice/vm.scope\n").unwrap();
        // Of the root, which has no files for CPU time.
        fs::write(at("proc/42/cgroup"), "0::/\n").unwrap();
        fs::write(scope.join("cpu.max"), "max 100000\n").unwrap();
        fs::write(scope.join("cpu.stat"), "usage_usec 7\n").unwrap();
        let slice = at("cgroup/machine.slice");
        fs::write(slice.join("cpu.max"), "30000 100000\n").unwrap();
        let throttle = |us: u64, periods: u64| {
            let stat = format!(
                "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 99\nnr_throttled {periods}\n\
                 throttled_usec {us}\nnr_bursts 0\nburst_usec 0\n"
            );
            fs::write(slice.join("cpu.stat"), stat).unwrap();
        };
        let mut groups = Groups {
            mounts: Mounts::parse(&mountinfo),
            proc: at("proc"),
            ..Groups::default()
        };
        let members = [(41, None), (42, None)];
        throttle(1_000, 2);
        let before = groups.of(&members);
        throttle(3_511_000, 41);
        groups.turn();
        let quotas = since(&groups.of(&members), &before);
        let [quota] = &quotas[..] else {
            panic!("{quotas:?}")
        };
        assert_eq!(quota.directory, slice.display().to_string());
        assert_eq!(quota.version, CgroupVersion::V2);
        assert_eq!((quota.cpus, quota.period_us), (0.3, 100_000));
        assert_eq!(
            (quota.throttled_ns, quota.throttled_periods),
            (3_510_000_000, 39)
        );
        assert_eq!(quota.threads, [41]);
    }

    #[test]
    fn what_was_throttled_is_the_difference_of_two_readings() {
        let folder = tempfile::tempdir().unwrap();
        let group = |throttled_us: u64| {
            fs::write(folder.path().join("cpu.max"), "50000 100000\n").unwrap();
            let stat = format!("throttled_usec {throttled_us}\n");
            fs::write(folder.path().join("cpu.stat"), stat).unwrap();
            let group = Group::read(folder.path()).unwrap();
            BTreeMap::from([(folder.path().to_owned(), group)])
        };
        let quotas = since(&group(900), &group(400));
        assert_eq!((quotas[0].cpus, quotas[0].throttled_ns), (0.5, 500_000));
        fs::write(folder.path().join("cpu.max"), "max 100000\n").unwrap();
        assert_eq!(Group::read(folder.path()), None);
    }
}
