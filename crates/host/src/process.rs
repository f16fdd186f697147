//! A process that cannot be mistaken for another one: its number and the time
//! at which it started. Numbers are used again; the pair is not.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// Fields of `/proc/PID/stat` with the parent, the flags and the start time (`proc_pid_stat(5)`).
const PARENT: usize = 4;
const FLAGS: usize = 9;
const START_TIME: usize = 22;
/// The first field after the name, which may hold spaces and parentheses.
const FIRST_AFTER_NAME: usize = 3;

/// When process `pid` started, in clock ticks since boot.
pub fn start_time(pid: u32) -> Option<u64> {
    stat_field(pid, START_TIME)
}

/// The process that started process `pid`, or took it over.
pub fn parent(pid: u32) -> Option<u32> {
    stat_field(pid, PARENT).and_then(|parent| u32::try_from(parent).ok())
}

/// Whether process `pid` is a thread of the kernel.
pub fn is_kernel_thread(pid: u32) -> bool {
    // PF_KTHREAD (include/linux/sched.h).
    stat_field(pid, FLAGS).is_some_and(|flags| flags & 0x0020_0000 != 0)
}

fn stat_field(pid: u32, field: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split_ascii_whitespace();
    fields.nth(field - FIRST_AFTER_NAME)?.parse().ok()
}

/// The number of this process where `/proc` was mounted: in a PID namespace below that one the
/// process sees another number itself (`pid_namespaces(7)`).
pub fn own_number() -> Option<u32> {
    let link = fs::read_link("/proc/self").ok()?;
    link.to_str()?.parse().ok()
}

/// The name of a process that waits outside of the PID namespace of its only child
/// (`tare_daemon::jail`).
pub const OUTSIDE: &CStr = c"tare-outside";

/// The child for which a process waits outside of its PID namespace; of any other process, that itself.
pub fn inside_of(pid: u32) -> u32 {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim_end().as_bytes() != OUTSIDE.to_bytes() {
        return pid;
    }
    children(pid).first().copied().unwrap_or(pid)
}

/// The children of a process: what its threads started, and orphans that it took over as a
/// subreaper. Empty where the kernel has no such list (`proc_tid_children(5)`).
pub fn children(pid: u32) -> Vec<u32> {
    let threads = threads(pid);
    threads.flat_map(|thread| children_of(&thread)).collect()
}

/// The same of one thread, by its directory in `/proc`.
pub fn children_of(thread: &Path) -> Vec<u32> {
    let list = fs::read_to_string(thread.join("children")).unwrap_or_default();
    let numbers = list.split_ascii_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// The directories of a process's threads in `/proc`.
fn threads(pid: u32) -> impl Iterator<Item = PathBuf> {
    let listed = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    listed.flatten().flatten().map(|thread| thread.path())
}

/// The numbers of a process's threads where `/proc` was mounted, by those that they have in the process's
/// own PID namespace.
pub fn threads_by_own_number(pid: u32) -> BTreeMap<u32, u32> {
    let statuses = threads(pid).filter_map(|thread| fs::read_to_string(thread.join("status")).ok());
    statuses.filter_map(|status| numbers(&status)).collect()
}

/// A thread's number in its own PID namespace, and in that of `/proc` (`proc_pid_status(5)`). Kernels
/// before 4.1 show one alone.
fn numbers(status: &str) -> Option<(u32, u32)> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut numbers = line.split_ascii_whitespace().map(str::parse);
    let outside = numbers.next()?.ok()?;
    let inside = numbers.next_back().unwrap_or(Ok(outside)).ok()?;
    Some((inside, outside))
}

/// A process that existed when this was opened. A signal reaches that process or
/// none.
///
/// Limit: without pidfds (kernels before 5.3, or a filter that refuses them) the start time is
/// compared just before each signal; the number would have to become another process's between two
/// system calls.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: Pid,
    start_time: u64,
    /// None: the kernel gives none.
    descriptor: Option<OwnedFd>,
}

impl ProcessHandle {
    /// The process `pid` if it started at `start_time`; `None` if it has ended.
    pub fn open(pid: u32, start_time: u64) -> Option<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        Self::opened(pidfd_open(number, PidfdFlags::empty()), number, start_time)
    }

    fn opened(descriptor: Result<OwnedFd, Errno>, pid: Pid, start_time: u64) -> Option<Self> {
        let descriptor = match descriptor {
            Ok(descriptor) => Some(descriptor),
            Err(Errno::SRCH) => return None,
            Err(_) => None,
        };
        let handle = Self {
            pid,
            start_time,
            descriptor,
        };
        // A descriptor holds one process: if that is the one asked for now, the
        // number cannot have been another's in between.
        handle.is_that_process().then_some(handle)
    }

    /// Sends a signal. A process that has ended takes none.
    pub fn signal(&self, signal: Signal) -> Result<(), Errno> {
        let sent = match &self.descriptor {
            Some(descriptor) => pidfd_send_signal(descriptor, signal),
            None if self.is_that_process() => kill_process(self.pid, signal),
            None => return Ok(()),
        };
        match sent {
            Err(Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    fn is_that_process(&self) -> bool {
        let pid = self.pid.as_raw_pid().unsigned_abs();
        start_time(pid) == Some(self.start_time)
    }
}

/// Sends a signal to each process whose number `members` gives, which the kernel takes out as
/// processes end (a cgroup's, an observer's). Each is opened, and then looked for once
/// more: if it has ended meanwhile it gets none, and neither does what has its number now.
pub fn signal_members(members: impl Fn() -> Vec<u32>, signal: Signal) {
    let listed: BTreeSet<u32> = members().into_iter().collect();
    let open = |pid: &u32| Some((*pid, ProcessHandle::open(*pid, start_time(*pid)?)?));
    let opened: Vec<(u32, ProcessHandle)> = listed.iter().filter_map(open).collect();
    let listed: BTreeSet<u32> = members().into_iter().collect();
    for (_, process) in opened.iter().filter(|(pid, _)| listed.contains(pid)) {
        // As root; else those of this user.
        let _ = process.signal(signal);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn a_signal_reaches_the_process_that_started_then() {
        let mut child = sleeper();
        let start = start_time(child.id()).unwrap();
        let handle = ProcessHandle::open(child.id(), start).unwrap();
        handle.signal(Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        assert!(handle.signal(Signal::TERM).is_ok());
    }

    #[test]
    fn a_process_has_a_parent_and_is_no_thread_of_the_kernel() {
        let mut child = sleeper();
        assert_eq!(parent(child.id()), Some(std::process::id()));
        assert!(!is_kernel_thread(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(parent(child.id()), None);
        // Process 2 starts the others of the kernel, where this PID namespace has it.
        let kthreadd = fs::read_to_string("/proc/2/comm").unwrap_or_default();
        assert_eq!(is_kernel_thread(2), kthreadd == "kthreadd\n");
    }

    #[test]
    fn a_thread_has_a_number_in_each_pid_namespace() {
        let of = |line: &str| numbers(&format!("Name:\tvcpu0\nPid:\t812\n{line}\nThreads:\t1\n"));
        assert_eq!(of("NSpid:\t812\t77\t3"), Some((3, 812)));
        assert_eq!(of("NSpid:\t812"), Some((812, 812)));
        assert_eq!(of("NSpid:\t"), None);
        assert_eq!(of("NStgid:\t812\t3"), None);
        let own = own_number().unwrap();
        assert!(threads_by_own_number(own).values().any(|it| *it == own));
        assert!(threads_by_own_number(0).is_empty());
    }

    #[test]
    fn a_process_that_waits_outside_means_its_child() {
        let mut child = sleeper();
        assert_eq!(inside_of(child.id()), child.id(), "it waits for none");
        child.kill().unwrap();
        child.wait().unwrap();
        let named = "printf tare-outside > /proc/$$/comm; sleep 60 & echo $!; wait";
        let mut outside = Command::new("sh");
        let mut outside = outside
            .args(["-c", named])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stdout = BufReader::new(outside.stdout.take().unwrap());
        stdout.read_line(&mut said).unwrap();
        let inside = inside_of(outside.id());
        assert_eq!(Ok(inside), said.trim().parse());
        outside.kill().unwrap();
        outside.wait().unwrap();
        let inside = Pid::from_raw(i32::try_from(inside).unwrap()).unwrap();
        kill_process(inside, Signal::KILL).unwrap();
    }

    #[test]
    fn the_own_number_is_that_of_proc() {
        let own = own_number().unwrap();
        assert!(start_time(own).is_some());
        // Tests may run in a PID namespace whose /proc is an outer one's.
        let status = fs::read_to_string("/proc/self/status").unwrap();
        assert!(status.contains(&format!("\nPid:\t{own}\n")));
    }

    #[test]
    fn a_number_that_belongs_to_another_process_now_is_not_opened() {
        let mut child = sleeper();
        let start = start_time(child.id()).unwrap();
        assert!(ProcessHandle::open(child.id(), start + 1).is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ProcessHandle::open(child.id(), start).is_none());
        assert_eq!(start_time(0), None);
    }

    fn without_descriptor(child: &Child, start: u64) -> Option<ProcessHandle> {
        ProcessHandle::opened(Err(Errno::NOSYS), Pid::from_child(child), start)
    }

    #[test]
    fn without_pidfds_a_signal_reaches_the_process_that_started_then() {
        let mut child = sleeper();
        let start = start_time(child.id()).unwrap();
        let handle = without_descriptor(&child, start).unwrap();
        handle.signal(Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(15));
        assert!(handle.signal(Signal::TERM).is_ok());
        assert!(without_descriptor(&child, start).is_none());
    }

    /// A handle of what had the number before, as it is once that is another process's.
    #[test]
    fn without_pidfds_a_number_that_is_used_again_gets_no_signal() {
        let mut child = sleeper();
        let start = start_time(child.id()).unwrap();
        assert!(without_descriptor(&child, start - 1).is_none());
        let before = ProcessHandle {
            pid: Pid::from_child(&child),
            start_time: start - 1,
            descriptor: None,
        };
        assert_eq!(before.signal(Signal::TERM), Ok(()));
        child.kill().unwrap();
        // A fatal signal decides how a process ends when it is sent.
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }

    #[test]
    fn only_what_is_still_a_member_once_it_is_open_gets_the_signal() {
        let mut child = sleeper();
        let pid = child.id();
        let signals = |lists: [Vec<u32>; 2], signal| {
            let lists = RefCell::new(lists.into_iter());
            signal_members(|| lists.borrow_mut().next().unwrap_or_default(), signal);
        };
        // As if the member had ended, and its number were another process's.
        signals([vec![pid], Vec::new()], Signal::TERM);
        signals([Vec::new(), vec![pid]], Signal::TERM);
        signals([vec![0, pid], vec![pid, u32::MAX]], Signal::KILL);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
