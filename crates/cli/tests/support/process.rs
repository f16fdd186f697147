//! Processes as `/proc` shows them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{eventually, installed, needs};

/// Fields of `/proc/PID/status` after a field's name (`proc_pid_status(5)`).
pub(crate) fn status(pid: u32, field: &str) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let fields = line.unwrap().split_ascii_whitespace();
    fields.map(str::to_owned).collect()
}

/// Whether a process is in another namespace of that kind than this one.
pub(crate) fn has_own(pid: u32, name: &str) -> bool {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{name}")).unwrap();
    of(&pid.to_string()) != of("self")
}

/// What is in the root of a process.
pub(crate) fn root(pid: u32) -> Vec<String> {
    let root = fs::read_dir(format!("/proc/{pid}/root")).unwrap();
    root.map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Children of a process whose name begins so (`proc_tid_children(5)`).
pub(crate) fn children(pid: u32, name: &str) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let lists = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let all: Vec<u32> = lists
        .flat_map(|list| {
            let numbers = list.split_whitespace().map(|pid| pid.parse().unwrap());
            numbers.collect::<Vec<u32>>()
        })
        .collect();
    let comm = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    all.into_iter()
        .filter(|pid| comm(pid).starts_with(name))
        .collect()
}

/// Waits until a process has ended, whoever is to wait for it.
pub(crate) fn is_gone(pid: u32) {
    let stat = Path::new("/proc").join(pid.to_string()).join("stat");
    eventually("the process has ended", || {
        let stat = fs::read_to_string(&stat).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
        matches!(state, None | Some(b'Z'))
    });
}

/// What root starts without capabilities, as in a container: `setpriv(1)` takes a list such as
/// `-sys_admin,-sys_ptrace`.
pub(crate) fn without(capabilities: &str, tare: &Command) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set={capabilities}"));
    command.arg(tare.get_program()).args(tare.get_args());
    for (name, value) in tare.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Whether capabilities can be taken from what this user starts.
pub(crate) fn can_do_without() -> bool {
    let can = rustix::process::geteuid().is_root() && installed("setpriv");
    can || needs::skip("this user is not root, or setpriv is not installed")
}

/// Whether this user may make the namespaces of a jail.
pub(crate) fn may_make_namespaces() -> bool {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--net", "--ipc", "--uts", "true"]);
    let granted = unshare.status().is_ok_and(|status| status.success());
    granted || needs::skip("this user may make no namespaces")
}
