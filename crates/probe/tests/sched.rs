//! On and off a CPU: processes that do one thing, and what is reported of them.
//!
//! They need BPF (root), and SKIP without; with TARE_REQUIRE_KVM=1 a skip fails.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tare_probe::sched::{Cause, Observer};
use tare_vmtest::eventually;

/// CPU time, or time in a wait, after which a process has shown what it does.
const ENOUGH: Duration = Duration::from_millis(200);
/// The scheduler brings a running task's time up to date at its tick.
const TICK_NS: u64 = 10_000_000;

fn observer() -> Option<Observer> {
    tare_vmtest::or_skip(Observer::start())
}

/// A shell that waits for [`Doing::go`], does `script`, and is ended with the test.
struct Doing(Child);

impl Doing {
    fn new(script: &str) -> Self {
        let child = Command::new("sh")
            .args(["-c", &format!("read go; {script}")])
            .stdout(Stdio::null())
            .stdin(Stdio::piped())
            .spawn();
        let doing = Self(child.unwrap());
        // In its read: what it does from now on begins with a wake-up, which is seen.
        eventually("it reads", || doing.proc("syscall").starts_with("0 0x0 "));
        doing
    }

    fn go(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap()
    }

    /// CPU time by the scheduler's own clock.
    fn ran_ns(&self) -> u64 {
        let schedstat = self.proc("schedstat");
        schedstat.split(' ').next().unwrap().parse().unwrap()
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        self.end();
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

/// Its time on CPUs agrees with the scheduler's clock, and all of its time is on a CPU
/// or in a wait, however little of a CPU it gets.
#[test]
fn a_process_that_computes_is_on_a_cpu_or_waits_for_one() {
    let Some(mut observer) = observer() else {
        return;
    };
    let mut doing = Doing::new("while :; do :; done");
    let group = observer.group();
    observer.watch_process(group, doing.0.id());
    let begin = Instant::now();
    observer.turn();
    let before_ns = doing.ran_ns();
    doing.go();
    eventually("it runs", || doing.ran_ns() > before_ns + ns(ENOUGH));
    let ran_ns = doing.ran_ns() - before_ns;
    doing.end();
    let times = observer.turn().remove(0);
    let most_ns = ns(begin.elapsed());
    assert_eq!(observer.unavailable(), []);
    assert!(
        times.on_cpu.sum_ns + TICK_NS > ran_ns,
        "{ran_ns}: {times:?}"
    );
    let off_ns: u64 = times.off_cpu.iter().map(|off| off.stretches.sum_ns).sum();
    assert!(
        times.on_cpu.sum_ns + off_ns <= most_ns,
        "{most_ns}: {times:?}"
    );
    for off in &times.off_cpu {
        match off.cause {
            // Pages of the shell that were not in memory.
            Cause::RunQueue | Cause::Memory | Cause::Disk => {}
            // The wait that `go` ended.
            Cause::Stream => assert_eq!(off.stretches.count(), 1, "{times:?}"),
            _ => panic!("{:?}: {times:?}", off.cause),
        }
    }
}

/// Charges of control groups are counted on request only: at least one for each stretch on a CPU.
#[test]
fn charges_of_control_groups_are_counted_on_request() {
    let Some(mut observer) = observer() else {
        return;
    };
    for counts in [false, true, false] {
        observer.count_charges(counts);
        let mut doing = Doing::new("for i in 1 2 3 4 5; do sleep 0.001; done; exec cat");
        let group = observer.group();
        observer.watch_process(group, doing.0.id());
        observer.turn();
        doing.go();
        eventually("it is done", || doing.proc("comm").starts_with("cat"));
        let times = observer.turn().remove(0);
        observer.forget(group);
        doing.end();
        assert_eq!(observer.unavailable(), []);
        if counts {
            assert!(times.charges >= times.voluntary_switches, "{times:?}");
        } else {
            assert_eq!(times.charges, 0, "{times:?}");
        }
        assert!(times.voluntary_switches > 0, "{times:?}");
    }
}

#[test]
fn a_wait_is_classified_by_its_cause() {
    for (script, cause) in [("exec sleep 60", Cause::Sleep), ("exec cat", Cause::Stream)] {
        let Some(mut observer) = observer() else {
            return;
        };
        let mut doing = Doing::new(script);
        let group = observer.group();
        observer.watch_process(group, doing.0.id());
        doing.go();
        let program = script.split(' ').nth(1).unwrap();
        eventually("it has executed", || doing.proc("comm").trim() == program);
        observer.turn();
        let mut waited_ns = 0;
        eventually("it waits", || {
            waited_ns += observer.turn().remove(0).off_ns(cause);
            waited_ns > ns(ENOUGH)
        });
    }
}

#[test]
fn what_a_watched_process_starts_is_watched_with_it() {
    let Some(mut observer) = observer() else {
        return;
    };
    let group = observer.group();
    observer.watch_process(group, std::process::id());
    let script = "i=0; while [ $i -lt 20 ]; do /bin/true; i=$((i+1)); done";
    assert!(
        Command::new("sh")
            .args(["-c", script])
            .status()
            .unwrap()
            .success()
    );
    let times = observer.turn().remove(0);
    assert!(times.threads_begun >= 21, "{times:?}");
    assert!(times.on_cpu.count() >= 21, "{times:?}");
    assert!(times.off_ns(Cause::Child) > 0, "{times:?}");
}

#[test]
fn groups_are_counted_separately() {
    let Some(mut observer) = observer() else {
        return;
    };
    let (mut busy, idle) = (Doing::new("while :; do :; done"), Doing::new(""));
    let groups = [observer.group(), observer.group()];
    observer.watch_process(groups[0], busy.0.id());
    observer.watch_process(groups[1], idle.0.id());
    observer.turn();
    let before_ns = busy.ran_ns();
    busy.go();
    eventually("it runs", || busy.ran_ns() > before_ns + ns(ENOUGH));
    busy.end();
    let times = observer.turn();
    assert_eq!([times[0].group, times[1].group], groups);
    assert!(times[0].on_cpu.sum_ns + TICK_NS > ns(ENOUGH), "{times:?}");
    assert_eq!((times[1].on_cpu.count(), times[1].on_cpu.sum_ns), (0, 0));
}

#[test]
fn groups_that_are_over_leave_room_for_others() {
    let Some(mut observer) = observer() else {
        return;
    };
    for _ in 0..3 {
        let group = observer.group();
        observer.watch_process(group, std::process::id());
        assert!(Command::new("true").status().unwrap().success());
        let times = observer.turn();
        assert_eq!(times.len(), 1, "{times:?}");
        assert!(
            times[0].group == group && times[0].threads_begun > 0,
            "{times:?}"
        );
        observer.forget(group);
        assert_eq!(observer.turn(), []);
    }
    assert_eq!(observer.unavailable(), []);
}
