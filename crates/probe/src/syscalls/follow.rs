//! Whom an observation is about: a process with its descendants, a container.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use crate::proc;

/// Where groups are, in both versions.
const CGROUPS: &str = "/sys/fs/cgroup";
/// How deep containers' groups lie at most.
const DEPTH: usize = 8;
/// Shortest beginning of an ID that names a container.
const SHORTEST_ID: usize = 6;
/// Who may know a container by name: program and arguments before the name.
const RUNTIMES: &[(&str, &[&str])] = &[
    ("podman", &["inspect", "--format", "{{.State.Pid}}"]),
    ("docker", &["inspect", "--format", "{{.State.Pid}}"]),
    ("runc", &["state"]),
    ("crun", &["state"]),
];

/// Why a process or container cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// No process has this ID.
    #[error("no process has the ID {0}")]
    NoProcess(u32),
    /// It belongs to another user.
    #[error("process {0} belongs to another user: become root to observe it")]
    NotPermitted(u32),
    /// Nothing is called so.
    #[error(
        "no container or cgroup is named {0:?}; give its name, its ID, or the path of its cgroup"
    )]
    NoContainer(String),
    /// Several are.
    #[error("{count} cgroups match {name:?}; give more of the ID, or the path")]
    Ambiguous {
        /// What was requested.
        name: String,
        /// How many.
        count: usize,
    },
    /// It exists and is empty.
    #[error("the container {0:?} has no process")]
    Empty(String),
}

/// A container, by its cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The group's directory.
    pub cgroup: PathBuf,
}

impl Container {
    /// Finds a container by the path of its group, by an ID or its beginning, or by
    /// the name that a container engine knows.
    pub fn find(name: &str) -> Result<Self, FollowError> {
        let path = Path::new(name);
        if name.starts_with('/') && path.join("cgroup.procs").is_file() {
            return Ok(Self {
                cgroup: path.to_owned(),
            });
        }
        let inside = Path::new(CGROUPS).join(name.trim_start_matches('/'));
        if !name.is_empty() && inside.join("cgroup.procs").is_file() {
            return Ok(Self { cgroup: inside });
        }
        let mut found = named(name);
        match found.len() {
            0 => by_runtime(name).ok_or_else(|| FollowError::NoContainer(name.to_owned())),
            1 => Ok(Self {
                cgroup: found.remove(0),
            }),
            count => Err(FollowError::Ambiguous {
                name: name.to_owned(),
                count,
            }),
        }
    }

    /// Processes in the group and in those below it.
    pub fn processes(&self) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        walk(&self.cgroup, DEPTH, &mut |dir| {
            let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        });
        found
    }
}

/// Checks that a process is there and may be observed.
pub(super) fn check(pid: u32) -> Result<(), FollowError> {
    let metadata = fs::metadata(proc::process(pid)).map_err(|_| FollowError::NoProcess(pid))?;
    // A thread's ID has a folder too, but is not a process.
    let status = fs::read_to_string(proc::process(pid).join("status")).unwrap_or_default();
    let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    if leader.and_then(|text| text.trim().parse().ok()) != Some(pid) {
        return Err(FollowError::NoProcess(pid));
    }
    if geteuid().is_root() || geteuid().as_raw() == metadata.uid() {
        Ok(())
    } else {
        Err(FollowError::NotPermitted(pid))
    }
}

/// A process and all that descend from it.
pub(super) fn with_descendants(pid: u32) -> Vec<u32> {
    let mut children = BTreeMap::<u32, Vec<u32>>::new();
    for other in proc::numbers(Path::new("/proc")).unwrap_or_default() {
        if let Some(stat) = proc::stat(&proc::process(other)) {
            children.entry(stat.parent).or_default().push(other);
        }
    }
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(parent) = all.get(next) {
        let more = children.remove(parent).unwrap_or_default();
        all.extend(more);
        next += 1;
    }
    all
}

/// Threads of a process.
pub(super) fn threads(pid: u32) -> Vec<u32> {
    proc::numbers(&proc::process(pid).join("task")).unwrap_or_default()
}

/// Groups whose name is `name`, or has it as an ID's beginning. With the
/// controllers of version 1 one container has a group in each; one is enough.
fn named(name: &str) -> Vec<PathBuf> {
    let mut found = BTreeMap::<String, PathBuf>::new();
    walk(Path::new(CGROUPS), DEPTH, &mut |dir| {
        let Some(group) = dir.file_name().and_then(|group| group.to_str()) else {
            return;
        };
        if is_named(group, name) && dir.join("cgroup.procs").is_file() {
            found.entry(group.to_owned()).or_insert(dir.to_owned());
        }
    });
    found.into_values().collect()
}

/// `ID`, `docker-ID.scope`, `libpod-ID.scope`, `cri-containerd-ID.scope`.
fn is_named(group: &str, name: &str) -> bool {
    let plain = group.strip_suffix(".scope").unwrap_or(group);
    let id = plain.rsplit('-').next().unwrap_or(plain);
    let is_id = name.len() >= SHORTEST_ID && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    !name.is_empty() && (group == name || plain == name || is_id && id.starts_with(name))
}

fn walk(dir: &Path, depth: usize, visit: &mut impl FnMut(&Path)) {
    visit(dir);
    let entries = fs::read_dir(dir).into_iter().flatten();
    for entry in entries.filter_map(io::Result::ok) {
        if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), depth - 1, visit);
        }
    }
}

fn by_runtime(name: &str) -> Option<Container> {
    // A name that looks like an option is not a name.
    if name.is_empty() || name.starts_with('-') {
        return None;
    }
    let pid = RUNTIMES.iter().find_map(|(program, args)| {
        let output = Command::new(program)
            .args(*args)
            .arg(name)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        pid_in(&String::from_utf8_lossy(&output.stdout))
    })?;
    group_of(pid).map(|cgroup| Container { cgroup })
}

/// A number alone, or the `pid` of a document.
fn pid_in(text: &str) -> Option<u32> {
    let document = || serde_json::from_str::<serde_json::Value>(text).ok();
    let of_document = || u32::try_from(document()?.get("pid")?.as_u64()?).ok();
    let pid: Option<u32> = text.trim().parse().ok().or_else(of_document);
    pid.filter(|pid| *pid > 0)
}

/// The group of a process, the deepest of its hierarchies; never the root.
fn group_of(pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(proc::process(pid).join("cgroup")).ok()?;
    let groups = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let first = controllers.split(',').next().unwrap_or_default();
        let places = [controllers, first, "unified", ""];
        let tried = places.map(|place| {
            Path::new(CGROUPS)
                .join(place)
                .join(path.trim_start_matches('/'))
        });
        let found = tried
            .into_iter()
            .find(|dir| dir.join("cgroup.procs").is_file());
        found.filter(|_| path != "/")
    });
    groups.max_by_key(|path| path.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_named_by_id_beginning_or_name() {
        assert!(is_named("docker-0123abcdef.scope", "0123ab"));
        assert!(is_named("0123abcdef", "0123abcdef"));
        assert!(is_named("web", "web"));
        assert!(!is_named("docker-0123abcdef.scope", "0123"));
        assert!(!is_named("web2", "web"));
        assert!(!is_named("web", ""));
    }

    #[test]
    fn engines_say_a_number_or_a_document() {
        assert_eq!(pid_in("4711\n"), Some(4711));
        assert_eq!(pid_in("{\"id\": \"a\", \"pid\": 12}"), Some(12));
        assert_eq!(pid_in("0\n"), None);
        assert_eq!(pid_in(""), None);
    }

    #[test]
    fn an_unknown_process_is_an_error_with_its_id() {
        assert!(matches!(
            check(4_194_304),
            Err(FollowError::NoProcess(4_194_304))
        ));
        assert!(check(std::process::id()).is_ok());
    }
}
