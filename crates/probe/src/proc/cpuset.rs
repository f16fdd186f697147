//! CPU sets of cgroups, of both versions: those that leave a thread fewer CPUs than the host has.

use std::fs;
use std::path::{Path, PathBuf};

use tare_account::{CgroupVersion, Cpuset};
use tare_host::cpu_list::cpu_list;

use super::quota::Mounts;

/// The groups that narrow these threads, an outer one before those in it.
pub(crate) fn narrowing(threads: &[u32], online: &[u32], mounts: &Mounts) -> Vec<Cpuset> {
    narrowing_in(Path::new("/proc"), threads, online, mounts)
}

fn narrowing_in(proc: &Path, threads: &[u32], online: &[u32], mounts: &Mounts) -> Vec<Cpuset> {
    let mut found: Vec<(PathBuf, Cpuset)> = Vec::new();
    for tid in threads {
        let file = proc.join(tid.to_string()).join("cgroup");
        let cgroup = fs::read_to_string(file).unwrap_or_default();
        for (directory, version) in mounts.cpuset_groups(&cgroup).into_iter().rev() {
            match found.iter_mut().find(|(known, _)| *known == directory) {
                Some((_, group)) => group.threads.push(*tid),
                None => {
                    let group = read(&directory, version, *tid, online);
                    found.extend(group.map(|group| (directory, group)));
                }
            }
        }
    }
    found.into_iter().map(|(_, group)| group).collect()
}

/// `None` if the group allows every CPU; an empty list allows those of the group above.
fn read(directory: &Path, version: CgroupVersion, tid: u32, online: &[u32]) -> Option<Cpuset> {
    let text = fs::read_to_string(directory.join("cpuset.cpus")).ok()?;
    let cpus = cpu_list(text.trim());
    let narrows = !cpus.is_empty() && online.iter().any(|cpu| !cpus.contains(cpu));
    narrows.then(|| Cpuset {
        directory: directory.display().to_string(),
        version,
        cpus,
        threads: vec![tid],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn found(files: &[(&str, &str)], mount: &str) -> Vec<(String, Vec<u32>, Vec<u32>)> {
        let folder = tree(files);
        let root = folder.path().join("cgroup").display().to_string();
        let mounts = Mounts::parse(&mount.replace("ROOT", &root));
        let proc = folder.path().join("proc");
        let groups = narrowing_in(&proc, &[1, 2, 3], &[0, 1, 2, 3], &mounts);
        let place = |group: Cpuset| {
            let place = group.directory.strip_prefix(&root).unwrap().to_owned();
            (place, group.cpus, group.threads)
        };
        groups.into_iter().map(place).collect()
    }

    /// Threads 1 and 2 are in a group whose set is empty, below one that narrows; 3 has ended.
    #[test]
    fn groups_of_the_unified_hierarchy_that_narrow_are_named_once() {
        let files = [
            ("proc/1/cgroup", "0::/slice/vm\n"),
            ("proc/2/cgroup", "0::/slice/vm\n"),
            ("cgroup/slice/cpuset.cpus", "1-2\n"),
            ("cgroup/slice/vm/cpuset.cpus", "\n"),
        ];
        let mount = "31 23 0:27 / ROOT rw shared:4 - cgroup2 cgroup2 rw";
        let expected = [("/slice".to_owned(), vec![1, 2], vec![1, 2])];
        assert_eq!(found(&files, mount), expected);
    }

    #[test]
    fn groups_of_version_1_are_named_from_the_outer_one_on() {
        let files = [
            ("proc/1/cgroup", "5:cpuset:/a/b/c\n3:cpu:/x\n0::/y\n"),
            ("cgroup/a/cpuset.cpus", "0-3\n"),
            ("cgroup/a/b/cpuset.cpus", "0-1\n"),
            ("cgroup/a/b/c/cpuset.cpus", "1\n"),
        ];
        let mount = "34 23 0:30 / ROOT rw - cgroup cgroup rw,cpuset";
        let expected = [
            ("/a/b".to_owned(), vec![0, 1], vec![1]),
            ("/a/b/c".to_owned(), vec![1], vec![1]),
        ];
        assert_eq!(found(&files, mount), expected);
    }
}
