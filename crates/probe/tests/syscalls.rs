//! Programs with known calls, counted in the kernel.
//!
//! They need root and BPF, and SKIP without.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, getppid, kill_process};
use tare_probe::syscalls::{Container, FollowError, Limits, Recorder};
use tare_profile::{Argument, Profile, Way};

/// What this program does instead of its tests, when a test starts it.
const ACT: &str = "TARE_PROBE_ACT";

fn ready() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    if !geteuid().is_root() {
        tare_vmtest::lacks("observing system calls needs root");
        return None;
    }
    match Recorder::start(None) {
        Ok(_) => Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner)),
        Err(why) => {
            tare_vmtest::lacks(why);
            None
        }
    }
}

/// Not a test: the programs that are observed.
#[test]
fn act() {
    match std::env::var(ACT).unwrap_or_default().as_str() {
        "getppid" => ask(1000),
        "threads" => {
            let threads: Vec<_> = (0..7).map(|_| thread::spawn(|| ask(100))).collect();
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        }
        "sockets" => sockets(),
        "requests" => {
            for _ in BufReader::new(std::io::stdin()).bytes() {
                ask(100);
                println!("\nasked");
            }
        }
        "exec" => {
            let exec = || {
                ask(100);
                Command::new("/bin/true").exec()
            };
            panic!("{:?}", thread::spawn(exec).join());
        }
        _ => {}
    }
}

fn ask(times: usize) {
    for _ in 0..times {
        let _ = getppid();
    }
}

fn sockets() {
    use rustix::net::{AddressFamily, SocketType, socket, sockopt};
    let tcp = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseaddr(&tcp, true).unwrap();
    sockopt::set_tcp_nodelay(&tcp, true).unwrap();
    rustix::io::ioctl_fionbio(&tcp, true).unwrap();
    for _ in 0..3 {
        socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
    }
    socket(AddressFamily::from_raw(255), SocketType::STREAM, None).unwrap_err();
}

fn acting(act: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "act", "--test-threads=1"]);
    command.env(ACT, act).stdout(Stdio::null());
    command
}

/// Runs a command to its end under observation.
fn profile(command: &mut Command) -> Profile {
    let mut recorder = Recorder::start(None).unwrap();
    let mut child = recorder.spawn(command).unwrap();
    assert!(child.wait().unwrap().success());
    while !recorder.living().is_empty() {
        thread::sleep(Duration::from_millis(5));
        recorder.drain();
    }
    let (profile, log) = recorder.finish("test", Way::Command(Vec::new()));
    assert!(log.is_none());
    let json = profile.to_json().unwrap();
    assert_eq!(Profile::read(&json).unwrap(), profile);
    assert_eq!(profile.phases[0].observer.lost, 0);
    profile
}

#[test]
fn a_thousand_calls_are_a_thousand_with_thirty_fastest() {
    let Some(_alone) = ready() else { return };
    let profile = profile(&mut acting("getppid"));
    let call = &profile.calls["getppid"];
    assert_eq!((call.number, call.count), (110, 1000));
    assert_eq!(call.time.count(), 1000);
    assert_eq!(call.time.fastest_ns.len(), 30);
    assert!(call.time.mean_of_fastest_ns() <= call.time.mean_ns());
    assert!(call.errors.is_empty());
    // It runs in the test's own thread, which libtest names after it.
    assert_eq!(call.tasks, ["act"]);
    assert_eq!(profile.calls["execve"].count, 1);
    let observer = profile.phases[0].observer;
    println!(
        "{} events, {} ns each",
        observer.events,
        observer.kernel_ns / observer.events.max(1)
    );
}

#[test]
fn calls_of_every_thread_are_counted_and_each_is_listed() {
    let Some(_alone) = ready() else { return };
    let profile = profile(&mut acting("threads"));
    assert_eq!(profile.calls["getppid"].count, 700);
    let own = |task: &&tare_profile::Task| task.calls >= 100;
    assert!(
        profile.tasks.iter().filter(own).count() >= 7,
        "{:#?}",
        profile.tasks
    );
    let program = std::env::current_exe().unwrap();
    let programs: Vec<_> = profile.tasks.iter().map(|task| &task.program).collect();
    assert!(
        programs
            .iter()
            .all(|path| **path == program.to_str().unwrap()),
        "{programs:?}"
    );
    let threads = |flags: &[String]| flags.contains(&"CLONE_THREAD".to_owned());
    let clones = profile
        .features
        .clones
        .iter()
        .filter(|clone| threads(&clone.flags));
    // The seven, and the one that the test runs in.
    assert_eq!(clones.map(|clone| clone.count).sum::<u64>(), 8);
}

#[test]
fn sockets_options_and_ioctls_are_named_and_refusals_are_errors() {
    let Some(_alone) = ready() else { return };
    let profile = profile(&mut acting("sockets"));
    let features = &profile.features;
    let sockets: Vec<_> = features
        .sockets
        .iter()
        .map(|socket| (socket.family.as_str(), socket.kind.as_str(), socket.count))
        .collect();
    assert_eq!(
        sockets,
        [("AF_INET", "SOCK_STREAM", 1), ("AF_UNIX", "SOCK_DGRAM", 3)]
    );
    let options: Vec<_> = features
        .socket_options
        .iter()
        .map(|option| &option.name)
        .collect();
    assert!(
        options.iter().any(|name| *name == "SO_REUSEADDR"),
        "{options:?}"
    );
    assert!(
        options.iter().any(|name| *name == "TCP_NODELAY"),
        "{options:?}"
    );
    assert!(
        features
            .ioctls
            .iter()
            .any(|ioctl| ioctl.request == "FIONBIO")
    );
    let socket = &profile.calls["socket"];
    assert_eq!(socket.count, 5);
    assert_eq!(socket.errors["EAFNOSUPPORT"], 1);
}

#[test]
fn files_devices_and_children_of_a_shell_are_seen() {
    let Some(_alone) = ready() else { return };
    let script = "cat /proc/self/status /proc/$$/stat >/dev/null; test -e /sys/kernel; true";
    let profile = profile(Command::new("/bin/sh").args(["-c", script]));
    let has = |file_system: &str, path: &str| {
        let files = &profile.features.files;
        files
            .iter()
            .any(|file| file.file_system == file_system && file.path == path)
    };
    assert!(
        has("proc", "/proc/self/status"),
        "{:#?}",
        profile.features.files
    );
    assert!(
        has("proc", "/proc/self/stat"),
        "{:#?}",
        profile.features.files
    );
    assert!(has("sysfs", "/sys/kernel"), "{:#?}", profile.features.files);
    assert_eq!(profile.devices, ["/dev/null"]);
    let names: Vec<_> = profile
        .tasks
        .iter()
        .map(|task| task.name.as_str())
        .collect();
    assert!(names.contains(&"sh") && names.contains(&"cat"), "{names:?}");
    assert_eq!(profile.calls["execve"].count, 2);
}

/// `strace -f -c` of the same program, without what strace does itself.
fn counted_by_strace(words: &[&str]) -> Option<Vec<(String, u64)>> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let traced = Command::new("strace")
        .args(["-f", "-c", "-U", "calls,name", "-o", log.path().to_str()?])
        .args(words)
        .stdout(Stdio::null())
        .status();
    if !traced.is_ok_and(|status| status.success()) {
        tare_vmtest::lacks("strace is not installed, or may not trace");
        return None;
    }
    let text = fs::read_to_string(log.path()).unwrap();
    let mut counts: Vec<(String, u64)> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let count = fields.next()?.parse().ok()?;
            Some((fields.next()?.to_owned(), count))
        })
        .filter(|(name, _)| name != "total")
        .collect();
    counts.sort();
    Some(counts)
}

#[test]
fn counts_are_those_of_strace() {
    let Some(_alone) = ready() else { return };
    let args = ["/bin/cat", "/etc/hostname", "/etc/passwd"];
    let Some(traced) = counted_by_strace(&args) else {
        return;
    };
    let mut command = Command::new(args[0]);
    command.args(&args[1..]).stdout(Stdio::null());
    let profile = profile(&mut command);
    let mut counted: Vec<(String, u64)> = profile
        .calls
        .iter()
        .map(|(name, call)| (name.clone(), call.count))
        .collect();
    // strace does not count what never returns.
    counted.retain(|(name, _)| name != "exit_group");
    let traced: Vec<_> = traced
        .into_iter()
        .filter(|(name, _)| name != "exit_group")
        .collect();
    assert_eq!(counted, traced);
}

#[test]
fn arguments_that_never_change_are_constants() {
    let Some(_alone) = ready() else { return };
    let mut command = Command::new("/bin/dd");
    command.args(["if=/dev/zero", "of=/dev/null", "bs=4096", "count=200"]);
    let profile = profile(command.stderr(Stdio::null()));
    let write = &profile.calls["write"];
    assert!(write.count >= 200);
    assert_eq!(write.arguments.len(), 3);
    // 200 blocks to descriptor 1; dd's own messages go to 2.
    assert_eq!(write.arguments[0], Argument::Varies);
    let execve = &profile.calls["execve"];
    assert!(matches!(execve.arguments[0], Argument::Constant(_)));
}

#[test]
fn a_process_that_runs_is_followed_with_its_descendants_and_logged() {
    let Some(_alone) = ready() else { return };
    let script = "exec 3<&0; (while read go; do sleep 0.05; echo slept; done <&3) & echo $!; wait";
    let mut child = Command::new("/bin/sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let inner = line().parse().unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut recorder = Recorder::start(Some(log.reopen().unwrap())).unwrap();
    assert!(recorder.follow(child.id()).unwrap() >= 2);
    for _ in 0..3 {
        writeln!(child.stdin.as_mut().unwrap(), "go").unwrap();
        assert_eq!(line(), "slept");
    }
    recorder.drain();
    let (profile, end) = recorder.finish("", Way::Pid(child.id()));
    let inner = Pid::from_raw(inner).unwrap();
    kill_process(inner, Signal::KILL).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        profile.calls["clock_nanosleep"].count >= 2,
        "{:?}",
        profile.calls.keys()
    );
    assert!(profile.tasks.iter().any(|task| task.name == "sleep"));
    let end = end.unwrap().unwrap();
    assert_eq!(end.missing, 0);
    let text = fs::read_to_string(log.path()).unwrap();
    assert_eq!(text.lines().count() as u64, end.written);
    assert!(text.contains(" sleep clock_nanosleep("), "{text}");
    let timed: u64 = profile.calls.values().map(|call| call.time.count()).sum();
    assert_eq!(end.written, timed);
}

/// Calls of all tasks, and all calls.
fn sums(profile: &Profile) -> (u64, u64) {
    let of_tasks = profile.tasks.iter().map(|task| task.calls).sum();
    (
        of_tasks,
        profile.calls.values().map(|call| call.count).sum(),
    )
}

#[test]
fn a_process_that_is_observed_twice_starts_afresh() {
    let Some(_alone) = ready() else { return };
    let mut command = acting("requests");
    command.arg("--nocapture").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut request = |times: usize| {
        for _ in 0..times {
            input.write_all(b"?").unwrap();
            while lines.next().unwrap().unwrap() != "asked" {}
        }
    };
    request(1);
    for times in [3, 2] {
        let mut recorder = Recorder::start(None).unwrap();
        recorder.follow(child.id()).unwrap();
        request(times);
        let (profile, _) = recorder.finish("", Way::Pid(child.id()));
        assert_eq!(profile.calls["getppid"].count, times as u64 * 100);
        let (of_tasks, all) = sums(&profile);
        assert_eq!(of_tasks, all);
        request(1);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_thread_that_executes_a_program_goes_on_as_the_first() {
    let Some(_alone) = ready() else { return };
    let profile = profile(&mut acting("exec"));
    assert_eq!(profile.calls["getppid"].count, 100);
    assert_eq!(profile.calls["execve"].count, 2);
    let task = profile.tasks.iter().find(|task| task.name == "true");
    let task = task.unwrap();
    assert_eq!(task.pid, task.tid);
    assert!(task.program.ends_with("/true"), "{task:?}");
    // Those of the thread before too: it is the same task.
    assert!(task.calls > 100, "{task:?}");
    let (of_tasks, all) = sums(&profile);
    assert_eq!(of_tasks, all);
}

#[test]
fn each_process_is_asked_to_end_once() {
    let Some(_alone) = ready() else { return };
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("told");
    let begun = dir.path().join("begun");
    let script = "trap 'echo told >> $0' TERM; : > $1; \
                  until [ -e $0 ]; do sleep 0.05; done; sleep 0.3";
    let mut recorder = Recorder::start(None).unwrap();
    let mut command = Command::new("/bin/bash");
    command.args(["-c", script]).arg(&told).arg(&begun);
    let mut child = recorder.spawn(&mut command).unwrap();
    let limits = Limits::default();
    let asked = Arc::clone(&limits.terminated);
    let waiter = thread::spawn(move || {
        for _ in 0..3_000 {
            if begun.exists() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        asked.store(true, Ordering::Relaxed);
    });
    let outcome = recorder.until_command_ends(&mut child, &limits, |_| {});
    waiter.join().unwrap();
    assert_eq!(outcome.unwrap().status.unwrap().code(), Some(0));
    assert_eq!(fs::read_to_string(told).unwrap(), "told\n");
}

#[test]
fn strangers_are_refused_by_name() {
    let Some(_alone) = ready() else { return };
    let mut recorder = Recorder::start(None).unwrap();
    assert!(matches!(
        recorder.follow(4_194_304),
        Err(FollowError::NoProcess(_))
    ));
    assert!(matches!(
        Container::find("no-such-box"),
        Err(FollowError::NoContainer(_))
    ));
    let error = recorder
        .spawn(&mut Command::new("/no/such/program"))
        .unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
    assert!(recorder.living().is_empty());
}
