//! Containers: by name with their runtime's help, by ID, by the path of a cgroup.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use tare_policy::placement::CpuMask;

use super::cgroup::{self, Mounts, Places};
use crate::cpu_list::CpuList;
use crate::task;

/// Where runc keeps the state of root's containers.
const RUNC: &str = "/run/runc";
/// Programs that know containers by name.
const RUNTIMES: [&str; 2] = ["podman", "docker"];
/// Shortest part of an ID that stands for it.
const SHORTEST_ID: usize = 12;

/// A container: processes in their own cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// As the user or its runtime calls it.
    pub name: String,
    /// A folder whose processes, and those below it, are the container's.
    pub processes: PathBuf,
    /// The cgroup that bounds this container's CPUs alone, if it has one.
    pub cpuset: Option<Cpuset>,
    /// The folder with its CPU quota.
    pub(crate) cpu: Option<PathBuf>,
}

/// A cgroup with `cpuset.cpus`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpuset {
    /// Its folder.
    pub folder: PathBuf,
}

#[derive(Deserialize)]
struct RuncState {
    init_process_pid: u32,
}

impl Container {
    /// The container of that name, ID or path; `None` if none runs.
    pub(super) fn find(text: &str) -> Option<Self> {
        let mounts = Mounts::read();
        if text.starts_with('/') {
            return Self::of_folder(&mounts, text);
        }
        of_runc(&mounts, text)
            .or_else(|| of_id(&mounts, text))
            .or_else(|| of_runtime(&mounts, text))
    }

    fn of_folder(mounts: &Mounts, text: &str) -> Option<Self> {
        let folder = fs::canonicalize(text).ok()?;
        folder.join("cgroup.procs").is_file().then_some(())?;
        let place = mounts.place_of(&folder)?;
        (place != "/").then_some(())?;
        let controllers = ["cpuset", "cpu"];
        let mut places: Vec<_> = controllers
            .iter()
            .filter(|name| {
                let root = mounts.v1(name);
                root.is_some_and(|root| root.join(place.trim_start_matches('/')).is_dir())
            })
            .map(|name| (vec![(*name).to_owned()], place.clone()))
            .collect();
        places.push((Vec::new(), place));
        let mut container = Self::at(mounts, text, &Places(places))?;
        container.processes = folder;
        Some(container)
    }

    /// The container in these places, each its own.
    fn at(mounts: &Mounts, name: &str, places: &Places) -> Option<Self> {
        let folder = |place: Option<&str>, root: Option<&Path>| {
            let folder = root?.join(place?.trim_start_matches('/'));
            folder.is_dir().then_some(folder)
        };
        let cpuset = folder(places.v1("cpuset"), mounts.v1("cpuset"));
        let unified = folder(places.v2(), mounts.v2());
        let bounds = [&cpuset, &unified].into_iter().flatten();
        let bound = bounds
            .filter(|folder| folder.join("cpuset.cpus").is_file())
            .map(|folder| Cpuset {
                folder: folder.clone(),
            })
            .next();
        let any = || {
            let mut folders = places
                .0
                .iter()
                .filter_map(|(names, place)| mounts.folder(names, place));
            folders.find(|folder| folder.join("cgroup.procs").is_file())
        };
        Some(Self {
            name: name.to_owned(),
            cpuset: bound,
            cpu: folder(places.v1("cpu"), mounts.v1("cpu")).or_else(|| unified.clone()),
            processes: cpuset.or_else(any)?,
        })
    }

    /// Its processes now, ascending.
    pub(crate) fn pids(&self) -> Vec<u32> {
        cgroup::processes(&self.processes)
    }
}

impl Cpuset {
    /// The CPUs that it was given; empty where it takes its parent's.
    pub(crate) fn cpus(&self) -> Option<CpuMask> {
        let text = fs::read_to_string(self.folder.join("cpuset.cpus")).ok()?;
        CpuList::from_kernel(&text).map(|list| list.0)
    }

    /// Itself and those below it that have their own CPUs, the upper ones first.
    pub(crate) fn with_descendants(&self) -> Vec<Self> {
        let folders = cgroup::folders(&self.folder).into_iter();
        folders
            .map(|folder| Self { folder })
            .filter(|cpuset| cpuset.folder.join("cpuset.cpus").is_file())
            .collect()
    }

    /// What its parent allows.
    pub(crate) fn limit(&self) -> Option<CpuMask> {
        effective(self.folder.parent()?)
    }
}

/// CPUs that a folder's processes may use at most, or the nearest upper folder's
/// that says so.
pub(crate) fn effective(folder: &Path) -> Option<CpuMask> {
    folder.ancestors().find_map(|folder| {
        let files = ["cpuset.effective_cpus", "cpuset.cpus.effective"];
        let text = files
            .iter()
            .find_map(|file| fs::read_to_string(folder.join(file)).ok())?;
        CpuList::from_kernel(&text).map(|list| list.0)
    })
}

/// A container whose state runc keeps.
fn of_runc(mounts: &Mounts, name: &str) -> Option<Container> {
    (!name.contains('/') && name != "." && name != "..").then_some(())?;
    let text = fs::read_to_string(Path::new(RUNC).join(name).join("state.json")).ok()?;
    let state: RuncState = serde_json::from_str(&text).ok()?;
    of_init(mounts, name, state.init_process_pid)
}

/// The container whose first process this is.
fn of_init(mounts: &Mounts, name: &str, pid: u32) -> Option<Container> {
    Container::at(mounts, name, &Places::of(pid)?.own())
}

/// A container with this ID in the path of its cgroup.
fn of_id(mounts: &Mounts, id: &str) -> Option<Container> {
    let mut found = (BTreeSet::new(), None);
    for pid in task::numbers(Path::new("/proc")) {
        let Some(places) = Places::of(pid) else {
            continue;
        };
        let places = places.cut(|part| names(part, id));
        let Some((_, place)) = places.0.first() else {
            continue;
        };
        if found.0.insert(place.clone()) && found.1.is_none() {
            found.1 = Container::at(mounts, id, &places);
        }
    }
    // A prefix that several IDs share identifies none of them.
    (found.0.len() == 1).then_some(found.1).flatten()
}

/// Whether a cgroup called `part` is that of the container `id`.
fn names(part: &str, id: &str) -> bool {
    if part == id {
        return true;
    }
    let bare = part.strip_suffix(".scope").unwrap_or(part);
    let runtime = ["docker-", "libpod-", "crio-", "cri-containerd-", "nerdctl-"];
    let bare = runtime
        .iter()
        .find_map(|prefix| bare.strip_prefix(prefix))
        .unwrap_or(bare);
    let is_hex = id.bytes().all(|byte| byte.is_ascii_hexdigit());
    id.len() >= SHORTEST_ID && is_hex && bare.starts_with(id)
}

/// A container that podman or docker knows by this name.
fn of_runtime(mounts: &Mounts, name: &str) -> Option<Container> {
    (!name.starts_with('-')).then_some(())?;
    RUNTIMES.iter().find_map(|runtime| {
        let output = Command::new(runtime)
            .args(["inspect", "--type", "container", "--format"])
            .args(["{{.State.Pid}}", "--", name])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let pid: u32 = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
        (pid > 0).then_some(())?;
        of_init(mounts, name, pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_found_by_name_or_by_a_long_part_of_its_id() {
        let id = "0123456789abcdef";
        for part in ["0123456789abcdef", "docker-0123456789abcdef77.scope"] {
            assert!(names(part, id), "{part}");
        }
        assert!(names("libpod-0123456789abcdef", "0123456789ab"));
        assert!(names("web", "web"));
        for (part, id) in [
            ("web1", "web"),
            ("libpod-conmon-0123456789abcdef.scope", "0123456789abcdef"),
            ("0123456789abcdef", "0123"),
            ("", "web"),
        ] {
            assert!(!names(part, id), "{part} {id}");
        }
    }

    #[test]
    fn the_root_of_a_hierarchy_is_not_a_container() {
        for text in [
            "/",
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/cpuset",
            "/nonexistent",
            "/tmp",
        ] {
            assert_eq!(Container::find(text), None, "{text}");
        }
    }
}
