//! On and off a CPU: processes that do one thing, and what is reported of them.
//!
//! They need BPF (root), and SKIP without; with TARE_REQUIRE_KVM=1 a skip fails.
#![allow(clippy::unwrap_used)]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tare_probe::sched::{Cause, Observer, Times};

const WINDOW: Duration = Duration::from_millis(600);

fn observer() -> Option<Observer> {
    tare_vmtest::or_skip(Observer::start())
}

/// A child that is ended with the test.
struct Doing(Child);

impl Doing {
    fn new(program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command
            .args(args)
            .stdout(Stdio::null())
            .stdin(Stdio::piped());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a process does within a window.
fn watched(program: &str, args: &[&str]) -> Option<Times> {
    let mut observer = observer()?;
    let doing = Doing::new(program, args);
    let group = observer.group();
    observer.watch_process(group, doing.0.id());
    std::thread::sleep(Duration::from_millis(100));
    observer.turn();
    std::thread::sleep(WINDOW);
    let times = observer.turn().remove(0);
    assert_eq!(observer.unavailable(), []);
    Some(times)
}

#[test]
fn a_process_that_computes_is_on_a_cpu_or_waits_for_one() {
    let Some(times) = watched("sh", &["-c", "while :; do :; done"]) else {
        return;
    };
    let ready = times.off_ns(Cause::RunQueue);
    let accounted = times.on_cpu.sum_ns + ready;
    assert!(accounted > times.window_ns * 8 / 10, "{times:?}");
    assert!(accounted < times.window_ns * 12 / 10, "{times:?}");
    assert!(times.io_ns() < times.window_ns / 10, "{times:?}");
}

#[test]
fn a_wait_is_told_by_its_cause() {
    for (program, args, cause) in [
        ("sleep", &["30"] as &[&str], Cause::Sleep),
        ("cat", &[], Cause::Stream),
    ] {
        // From its first sleep on: the wait began before the window.
        let Some(mut observer) = observer() else {
            return;
        };
        let group = observer.group();
        observer.watch_process(group, std::process::id());
        let _doing = Doing::new(program, args);
        std::thread::sleep(WINDOW);
        let times = observer.turn().remove(0);
        assert!(times.off_ns(cause) > 300_000_000, "{cause:?}: {times:?}");
    }
}

#[test]
fn what_a_watched_process_starts_is_watched_with_it() {
    let Some(mut observer) = observer() else {
        return;
    };
    let group = observer.group();
    observer.watch_process(group, std::process::id());
    let begin = Instant::now();
    let script = "i=0; while [ $i -lt 20 ]; do /bin/true; i=$((i+1)); done";
    assert!(
        Command::new("sh")
            .args(["-c", script])
            .status()
            .unwrap()
            .success()
    );
    assert!(begin.elapsed() < Duration::from_secs(30));
    let times = observer.turn().remove(0);
    assert!(times.threads_begun >= 21, "{times:?}");
    assert!(times.on_cpu.count() >= 21, "{times:?}");
    assert!(times.off_ns(Cause::Child) > 0, "{times:?}");
}

#[test]
fn groups_are_told_apart() {
    let Some(mut observer) = observer() else {
        return;
    };
    let busy = Doing::new("sh", &["-c", "while :; do :; done"]);
    let idle = Doing::new("sleep", &["30"]);
    let groups = [observer.group(), observer.group()];
    observer.watch_process(groups[0], busy.0.id());
    observer.watch_process(groups[1], idle.0.id());
    std::thread::sleep(WINDOW);
    let times = observer.turn();
    assert_eq!([times[0].group, times[1].group], groups);
    assert!(times[0].on_cpu.sum_ns + times[0].off_ns(Cause::RunQueue) > 100_000_000);
    assert!(times[1].on_cpu.sum_ns < 50_000_000, "{:?}", times[1]);
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
