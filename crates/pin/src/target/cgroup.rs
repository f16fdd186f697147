//! Where a process's cgroups are, in both versions of cgroups side by side.

use std::fs;
use std::path::{Path, PathBuf};

use tare_host::process::is_kernel_thread;

/// Deepest nesting of cgroups that is followed.
const DEEPEST: usize = 16;

/// Mounted hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts {
    /// Version 1: controllers and where they are.
    v1: Vec<(Vec<String>, PathBuf)>,
    v2: Option<PathBuf>,
}

/// A process's place in each hierarchy; no controllers for version 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(pub(crate) Vec<(Vec<String>, String)>);

impl Mounts {
    /// This process's view.
    pub(crate) fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
    }

    /// Of `mountinfo` (`proc_pid_mountinfo(5)`).
    pub(crate) fn parse(text: &str) -> Self {
        let mut mounts = Self::default();
        for line in text.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let Some(point) = left.split(' ').nth(4).map(PathBuf::from) else {
                continue;
            };
            let mut right = right.split(' ');
            match right.next() {
                Some("cgroup") => {
                    let options = right.nth(1).unwrap_or_default().split(',');
                    mounts
                        .v1
                        .push((options.map(str::to_owned).collect(), point));
                }
                Some("cgroup2") => mounts.v2 = mounts.v2.or(Some(point)),
                _ => {}
            }
        }
        mounts
    }

    /// The mount of a version 1 controller.
    pub(crate) fn v1(&self, controller: &str) -> Option<&Path> {
        let has = |(names, _): &&(Vec<String>, PathBuf)| names.iter().any(|n| n == controller);
        self.v1.iter().find(has).map(|(_, point)| point.as_path())
    }

    /// The mount of version 2.
    pub(crate) fn v2(&self) -> Option<&Path> {
        self.v2.as_deref()
    }

    /// A place's folder in the hierarchy of these controllers.
    pub(crate) fn folder(&self, controllers: &[String], place: &str) -> Option<PathBuf> {
        let point = match controllers.first() {
            None => self.v2()?,
            Some(first) => {
                let has = |(names, _): &&(Vec<String>, PathBuf)| names.contains(first);
                &self.v1.iter().find(has)?.1
            }
        };
        Some(point.join(place.trim_start_matches('/')))
    }

    /// A folder's place within the hierarchy that it lies in.
    pub(crate) fn place_of(&self, folder: &Path) -> Option<String> {
        let v1 = self.v1.iter().map(|(_, point)| point.as_path());
        let mut points: Vec<&Path> = v1.chain(self.v2()).collect();
        points.sort_by_key(|point| std::cmp::Reverse(point.as_os_str().len()));
        let place = points
            .iter()
            .find_map(|point| folder.strip_prefix(point).ok())?;
        Some(format!("/{}", place.to_str()?))
    }
}

impl Places {
    /// Of a process.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(crate::task::process(pid).join("cgroup")).ok()?;
        Some(Self::parse(&text))
    }

    /// Of `/proc/PID/cgroup`.
    pub(crate) fn parse(text: &str) -> Self {
        let place = |line: &str| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, place) = (parts.next()?, parts.next()?, parts.next()?);
            let names = controllers.split(',').filter(|name| !name.is_empty());
            Some((names.map(str::to_owned).collect(), place.to_owned()))
        };
        Self(text.lines().filter_map(place).collect())
    }

    /// The place for a controller of version 1.
    pub(crate) fn v1(&self, controller: &str) -> Option<&str> {
        let has = |(names, _): &&(Vec<String>, String)| names.iter().any(|n| n == controller);
        self.0.iter().find(has).map(|(_, place)| place.as_str())
    }

    /// The place in version 2.
    pub(crate) fn v2(&self) -> Option<&str> {
        let found = self.0.iter().find(|(names, _)| names.is_empty());
        found.map(|(_, place)| place.as_str())
    }

    /// Each place cut off after the first component that `matches`; others are left
    /// out.
    pub(crate) fn cut(&self, matches: impl Fn(&str) -> bool) -> Self {
        let cut = |place: &str| {
            let parts: Vec<&str> = place.split('/').collect();
            let end = parts.iter().position(|part| matches(part))?;
            Some(parts[..=end].join("/"))
        };
        let places = self.0.iter();
        Self(
            places
                .filter_map(|(names, place)| Some((names.clone(), cut(place)?)))
                .collect(),
        )
    }

    /// Without the roots, which belong to all processes.
    pub(crate) fn own(&self) -> Self {
        let own = self.0.iter().filter(|(_, place)| place != "/");
        Self(own.cloned().collect())
    }
}

/// Processes of a cgroup and of all below it, ascending.
pub(crate) fn processes(folder: &Path) -> Vec<u32> {
    let mut pids: Vec<u32> = folders(folder)
        .iter()
        .flat_map(|folder| {
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            text.lines()
                .filter_map(|line| line.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Whether a cgroup and all below it hold none but these processes and threads; not if one
/// cannot be read. Threads of the kernel in it work for them: KVM starts one for each machine in the
/// groups of its process (`kvm-nx-lpage-recovery`).
pub(crate) fn holds_only(folder: &Path, members: &[u32]) -> bool {
    folders(folder).iter().all(|folder| {
        // Threaded groups of version 2 refuse to list processes.
        let files = ["cgroup.procs", "cgroup.threads"];
        let mut read = files
            .iter()
            .map(|file| fs::read_to_string(folder.join(file)));
        let text = read.find_map(Result::ok);
        text.is_some_and(|text| {
            let mut ids = text.lines().map(str::parse::<u32>);
            ids.all(|id| id.is_ok_and(|id| members.contains(&id) || is_kernel_thread(id)))
        })
    })
}

/// A cgroup and all below it, the upper ones first.
pub(crate) fn folders(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut level = found.clone();
    for _ in 0..DEEPEST {
        level = level.iter().flat_map(|folder| children(folder)).collect();
        found.extend(level.iter().cloned());
    }
    found
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
31 24 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
33 24 0:29 / /tmp rw - tmpfs tmpfs rw
broken
";

    #[test]
    fn both_versions_are_found_side_by_side() {
        let mounts = Mounts::parse(MOUNTS);
        assert_eq!(
            mounts.v1("cpuset"),
            Some(Path::new("/sys/fs/cgroup/cpuset"))
        );
        assert_eq!(mounts.v1("cpuacct"), mounts.v1("cpu"));
        assert_eq!(mounts.v2(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(mounts.v1("memory"), None);
        let folder = Path::new("/sys/fs/cgroup/cpuset/a/b");
        assert_eq!(mounts.place_of(folder).as_deref(), Some("/a/b"));
        assert_eq!(mounts.place_of(Path::new("/tmp")), None);
        let names = ["cpuset".to_owned()];
        assert_eq!(mounts.folder(&names, "/a/b").as_deref(), Some(folder));
    }

    #[test]
    fn places_are_read_and_cut() {
        let places = Places::parse("3:cpuset:/x/id1/sub\n1:cpu,cpuacct:/\n0::/y/id1\nbroken\n");
        assert_eq!(places.v1("cpuset"), Some("/x/id1/sub"));
        assert_eq!(places.v1("cpuacct"), Some("/"));
        assert_eq!(places.v2(), Some("/y/id1"));
        let cut = places.cut(|part| part == "id1");
        assert_eq!((cut.v1("cpuset"), cut.v1("cpu")), (Some("/x/id1"), None));
        assert_eq!(places.own().v1("cpu"), None);
    }
}
