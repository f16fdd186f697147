//! The PID namespace of a machine, with a fork of this test as the machine: what it sees and reaches, and
//! what the process outside of it does. As root with the machine's own user and without.
//!
//! The fork has one thread, and takes no lock that another thread may have held: it prints nothing.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::fs;
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, geteuid, getpid, kill_process, setpgid,
    test_kill_process, waitpid,
};
use tare_control::config::{Jail, JailUser};
use tare_daemon::{jail, signals};
use tare_host::process::own_number;
use tare_host::signals::{OF_PROGRAMS, is_ignored};

/// No account's.
const USER: u32 = 1_899_999_997;
/// Status of a machine that a signal ended, less its number.
const BY_SIGNAL: i32 = 64;
const LIMIT: Duration = Duration::from_secs(60);

/// What a machine does.
#[derive(Clone, Copy)]
enum Act {
    End(i32),
    /// At a process of the host.
    Look(Pid),
    WaitForRequest,
    /// After the process outside is the machine's user, and the machine not yet.
    WaitBeforeItsUser,
}

/// The process outside, and the machine's number.
struct Running {
    outside: Pid,
    machine: u32,
    is_first: bool,
    said: BufReader<PipeReader>,
    /// A fork has the descriptors of all.
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl Running {
    fn start(user: Option<JailUser>, act: Act) -> Self {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let guard = ONE_AT_A_TIME.lock();
        let guard = guard.unwrap_or_else(PoisonError::into_inner);
        let jail = Jail {
            namespaces: true,
            user,
        };
        let (reader, writer) = std::io::pipe().unwrap();
        // SAFETY: the child has one thread, and ends without returning.
        let outside = match unsafe { libc::fork() } {
            0 => {
                let lives = AssertUnwindSafe(|| machine(&jail, act, writer));
                let status = catch_unwind(lives).unwrap_or(101);
                // SAFETY: nothing of the test's is to be dropped in the child.
                unsafe { libc::_exit(status) }
            }
            child => Pid::from_raw(child).unwrap(),
        };
        drop(writer);
        let mut said = BufReader::new(reader);
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let (machine, is_first) = line.trim().split_once(' ').unwrap();
        Self {
            outside,
            machine: machine.parse().unwrap(),
            is_first: is_first == "true",
            said,
            _one_at_a_time: guard,
        }
    }

    fn end(&mut self) -> WaitStatus {
        let (_, status) = waitpid(Some(self.outside), WaitOptions::empty())
            .unwrap()
            .unwrap();
        status
    }

    fn outside(&self) -> u32 {
        self.outside.as_raw_pid().unsigned_abs()
    }

    fn signal_outside(&self, signal: Signal) {
        kill_process(self.outside, signal).unwrap();
    }
}

/// The machine; its exit status. What it says comes on the pipe.
fn machine(jail: &Jail, act: Act, mut out: PipeWriter) -> i32 {
    // A job of a terminal's shell.
    setpgid(None, None).unwrap();
    let entering = jail::fork_into_namespaces(jail, &OF_PROGRAMS).unwrap();
    signals::install_also(&OF_PROGRAMS).unwrap();
    let outside = own_number().unwrap();
    let is_first = getpid().as_raw_pid() == 1;
    if let Act::WaitBeforeItsUser = act {
        let parent = status(outside, "PPid:")[0].parse().unwrap();
        let user = jail.user.map_or(0, |user| user.uid).to_string();
        eventually("its parent has its user", || {
            status(parent, "Uid:")[0] == user
        });
        writeln!(out, "{outside} {is_first}").unwrap();
        // Time for a signal to come, which may come later as well.
        thread::sleep(Duration::from_millis(50));
        jail::enter_rest(jail, &entering).unwrap();
        return wait_for_request();
    }
    jail::enter_rest(jail, &entering).unwrap();
    writeln!(out, "{outside} {is_first}").unwrap();
    match act {
        Act::End(status) => status,
        Act::Look(process) => match look(process) {
            Ok(()) => 0,
            Err(seen) => {
                writeln!(out, "{seen}").unwrap();
                1
            }
        },
        Act::WaitForRequest | Act::WaitBeforeItsUser => wait_for_request(),
    }
}

/// What can be seen of and done to a process of the host, if anything.
fn look(process: Pid) -> Result<(), String> {
    for signal in [Signal::KILL, Signal::TERM] {
        let sent = kill_process(process, signal);
        if sent != Err(Errno::SRCH) {
            return Err(format!("{signal:?}: {sent:?}"));
        }
    }
    if test_kill_process(process) != Err(Errno::SRCH) {
        return Err("it is there".to_owned());
    }
    let listed = fs::read_dir("/proc").unwrap().flatten();
    let names = listed.filter_map(|entry| entry.file_name().into_string().ok());
    let seen: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    if seen != [1] {
        return Err(format!("/proc has {seen:?}"));
    }
    Ok(())
}

fn wait_for_request() -> i32 {
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        if let Some(signal) = signals::take().next() {
            return BY_SIGNAL + signal;
        }
        thread::sleep(Duration::from_millis(5));
    }
    6
}

/// Who a machine is, of those for whom the kernel grants a PID namespace.
fn users() -> Vec<Option<JailUser>> {
    let another = geteuid().is_root().then_some(Some(JailUser {
        uid: USER,
        gid: USER,
        claim: None,
    }));
    let is_granted = |user: &Option<JailUser>| {
        let mut running = Running::start(*user, Act::End(0));
        running.end();
        running.is_first
    };
    let all = another.into_iter().chain([None]);
    let granted: Vec<_> = all.filter(is_granted).collect();
    if granted.is_empty() {
        tare_vmtest::lacks("the kernel grants no PID namespace");
    }
    granted
}

/// Fields of `/proc/PID/status` after a field's name; none of a process that is gone.
fn status(pid: u32, field: &str) -> Vec<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let fields = line.unwrap_or_default().split_ascii_whitespace();
    fields.map(str::to_owned).collect()
}

fn state(pid: u32) -> Option<String> {
    status(pid, "State:").into_iter().next()
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_machine_sees_and_signals_no_process_of_the_hosts() {
    for user in users() {
        let mut victim = Command::new("sleep").arg("600").spawn().unwrap();
        let mut running = Running::start(user, Act::Look(Pid::from_child(&victim)));
        let ended = running.end();
        let lives = victim.try_wait().unwrap().is_none();
        victim.kill().unwrap();
        victim.wait().unwrap();
        let mut said = String::new();
        running.said.read_line(&mut said).unwrap();
        assert_eq!(ended.exit_status(), Some(0), "{said}");
        assert!(lives);
    }
}

#[test]
fn the_process_outside_ends_as_its_machine_does() {
    for user in users() {
        let status = Running::start(user, Act::End(7)).end();
        assert_eq!(status.exit_status(), Some(7));
        let mut killed = Running::start(user, Act::WaitForRequest);
        let machine = Pid::from_raw(i32::try_from(killed.machine).unwrap()).unwrap();
        kill_process(machine, Signal::KILL).unwrap();
        assert_eq!(killed.end().terminating_signal(), Some(libc::SIGKILL));
    }
}

#[test]
fn signals_reach_the_machine_through_the_process_outside() {
    const SIGNALS: [Signal; 6] = [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
    ];
    for user in users() {
        for signal in SIGNALS {
            // A hangup that is ignored (`nohup`) stays so.
            if is_ignored(signal.as_raw()) {
                continue;
            }
            let mut running = Running::start(user, Act::WaitForRequest);
            running.signal_outside(signal);
            let ended = Some(BY_SIGNAL + signal.as_raw());
            assert_eq!(running.end().exit_status(), ended, "{signal:?}");
        }
    }
}

/// The process outside is the machine's user before the machine is, whom it may not signal then.
#[test]
fn a_request_to_end_reaches_a_machine_that_enters_its_jail() {
    for user in users().into_iter().filter(Option::is_some) {
        let mut running = Running::start(user, Act::WaitBeforeItsUser);
        running.signal_outside(Signal::TERM);
        let ended = Some(BY_SIGNAL + Signal::TERM.as_raw());
        assert_eq!(running.end().exit_status(), ended);
    }
}

#[test]
fn a_machine_ends_with_the_process_outside() {
    for user in users() {
        let mut running = Running::start(user, Act::WaitForRequest);
        running.signal_outside(Signal::KILL);
        running.end();
        let machine = running.machine;
        eventually("the machine has ended", || {
            matches!(state(machine).as_deref(), None | Some("Z"))
        });
    }
}

#[test]
fn a_stopped_job_stops_with_its_machine_and_goes_on() {
    for user in users() {
        let mut running = Running::start(user, Act::WaitForRequest);
        let both = [running.outside(), running.machine];
        let are = |wanted: &[&str]| {
            let states = both.iter().map(|pid| state(*pid));
            let mut states = states.map(Option::unwrap_or_default);
            states.all(|state| wanted.contains(&&*state))
        };
        for signal in [Signal::TSTP, Signal::TTIN] {
            running.signal_outside(signal);
            eventually("both are stopped", || are(&["T"]));
            running.signal_outside(Signal::CONT);
            eventually("both go on", || are(&["S", "R"]));
        }
        running.signal_outside(Signal::TERM);
        let ended = Some(BY_SIGNAL + Signal::TERM.as_raw());
        assert_eq!(running.end().exit_status(), ended);
    }
}

#[test]
fn the_process_outside_keeps_no_rights_and_no_descriptors() {
    for user in users() {
        let mut running = Running::start(user, Act::WaitForRequest);
        let (outside, machine) = (running.outside(), running.machine);
        let numbers = status(machine, "NSpid:");
        assert_eq!(numbers.last().map(String::as_str), Some("1"), "{numbers:?}");
        assert_eq!(status(machine, "PPid:"), [outside.to_string()]);
        // It gives up what it has while the machine begins.
        eventually("it has three streams and the machine's tie", || {
            let open = fs::read_dir(format!("/proc/{outside}/fd"));
            open.is_ok_and(|open| open.count() == 4)
        });
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(status(outside, set), ["0000000000000000"], "{set}");
        }
        assert_eq!(status(outside, "NoNewPrivs:"), ["1"]);
        assert_eq!(status(outside, "Name:"), ["tare-outside"]);
        assert_eq!(status(outside, "Uid:"), status(machine, "Uid:"));
        running.signal_outside(Signal::TERM);
        running.end();
    }
}
