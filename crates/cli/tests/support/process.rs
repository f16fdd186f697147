//! Processes as `/proc` shows them.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

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

/// Children of a process whose name begins so (`proc_tid_children(5)`), or theirs where they wait outside of a
/// PID namespace.
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
        .map(tare_host::process::inside_of)
        .filter(|pid| comm(pid).starts_with(name))
        .collect()
}

/// Waits until a process handles a signal, which would end it before.
pub(crate) fn handles(pid: u32, signal: Signal) {
    eventually("the process handles the signal", || {
        let caught = status(pid, "SigCgt:");
        let caught = u64::from_str_radix(&caught[0], 16).unwrap();
        caught & (1 << (signal.as_raw() - 1)) != 0
    });
}

/// Sends a signal to a child that has not been reaped.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits until a process has ended, whichever process reaps it.
pub(crate) fn is_gone(pid: u32) {
    let stat = Path::new("/proc").join(pid.to_string()).join("stat");
    eventually("the process has ended", || {
        let stat = fs::read_to_string(&stat).unwrap_or_default();
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
        matches!(state, None | Some(b'Z'))
    });
}

/// Runs a command that ends with its terminal and by Ctrl-C, also below a program that ignores SIGHUP
/// (`nohup`) or SIGINT (a shell's background job).
pub(crate) fn ends_with_terminal(tare: &Command) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT");
    executes(&mut command, tare.get_program(), tare);
    command
}

/// Runs a command as root without capabilities, as in a container: `setpriv(1)` takes a list such
/// as `-sys_admin,-sys_ptrace`.
pub(crate) fn without(capabilities: &str, tare: &Command) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set={capabilities}"));
    executes(&mut command, tare.get_program(), tare);
    command
}

/// Becomes the root of a user namespace that grants no further one, without the capabilities to
/// make other namespaces.
const REFUSED: &str = "echo 0 > /proc/sys/user/max_user_namespaces && \
    exec setpriv --bounding-set=-sys_admin,-sys_ptrace,-net_admin \"$@\"";

fn refused() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", REFUSED, "sh"]);
    command
}

/// Runs a command as on a host that grants no namespaces.
pub(crate) fn without_namespaces(tare: &Command) -> Command {
    let mut command = refused();
    executes(&mut command, tare.get_program(), tare);
    command
}

/// Whether this user may create the namespace for that.
pub(crate) fn can_refuse_namespaces() -> bool {
    let can = refused().arg("true").status();
    can.is_ok_and(|status| status.success())
        || needs::skip("this user may make no user namespace without others in it")
}

/// An ordinary user.
pub(crate) const USER: u32 = 65_534;

/// Runs a command as an ordinary user, who then owns everything in `place`: a copy of `tare` and of
/// the first process there.
pub(crate) fn as_user(place: &Path, tare: &Command) -> Command {
    let program = place.join("tare");
    fs::copy(tare.get_program(), &program).unwrap();
    if let Ok(init) = tare_rootfs::guest::find_init() {
        let linux = place.join("linux");
        fs::create_dir(&linux).unwrap();
        fs::copy(&init, linux.join(init.file_name().unwrap())).unwrap();
    }
    let mut chown = Command::new("chown");
    chown.args(["-hR", &format!("{USER}:{USER}")]).arg(place);
    assert!(chown.status().unwrap().success());
    let mut command = Command::new("setpriv");
    let ids = ["--reuid", "--regid"].map(|name| format!("{name}={USER}"));
    command.args(ids).arg("--clear-groups");
    executes(&mut command, program.as_os_str(), tare);
    command
}

/// The command `tare` of another file.
pub(crate) fn of(program: &Path, tare: &Command) -> Command {
    let mut command = Command::new(program);
    takes_over(&mut command, tare);
    command
}

/// Makes a command execute `program` with the arguments of `tare`.
fn executes(command: &mut Command, program: &OsStr, tare: &Command) {
    takes_over(command.arg(program), tare);
}

/// Adds the arguments of `tare`, with its environment.
fn takes_over(command: &mut Command, tare: &Command) {
    command.args(tare.get_args());
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
}

/// Whether capabilities can be taken from what this user starts.
pub(crate) fn can_do_without() -> bool {
    let can = rustix::process::geteuid().is_root() && installed("setpriv");
    can || needs::skip("this user is not root, or setpriv is not installed")
}

/// Whether an ordinary user may make user namespaces, and this one can become it.
pub(crate) fn users_make_namespaces() -> bool {
    let mut command = Command::new("setpriv");
    let ids = ["--reuid", "--regid"].map(|name| format!("{name}={USER}"));
    command.args(ids).args(["--clear-groups", "unshare"]);
    command.args(["--user", "--map-current-user", "--mount", "--net", "true"]);
    let granted = can_do_without() && command.status().is_ok_and(|status| status.success());
    granted || needs::skip("ordinary users may make no namespaces")
}

/// Whether this user may make the namespaces of a jail.
pub(crate) fn may_make_namespaces() -> bool {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--net", "--ipc", "--uts", "true"]);
    let granted = unshare.status().is_ok_and(|status| status.success());
    granted || needs::skip("this user may make no namespaces")
}
