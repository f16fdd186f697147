//! Timers of CPU time of programs: their signals, a profiler that uses them, and an idle program.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::offers::answers_as_here_on_one_and_two_cpus;
use crate::support::compile::{c, source};
use crate::support::needs::skip;
use crate::support::{TestDir, end, eventually, installed};
use crate::{can_run, run};

#[test]
fn timers_of_cpu_time_ring_as_linuxs_do() {
    if !can_run() {
        return;
    }
    answers_as_here_on_one_and_two_cpus("cpu_timers.c");
}

#[test]
fn gos_profiler_of_cpu_time_collects_samples() {
    if !can_run() {
        return;
    }
    if !installed("go") {
        skip("go is not installed");
        return;
    }
    let place = TestDir::new();
    let program = place.path().join("profiled");
    let mut go = Command::new("go");
    go.env("CGO_ENABLED", "0")
        .args(["build", "-o"])
        .arg(&program);
    assert!(go.arg(source("pprof.go")).status().unwrap().success());
    for (cpus, threads) in [("1", "1"), ("1", "3"), ("2", "3")] {
        let args = ["--cpus", cpus, "--", threads];
        let ended = run(&place, program.to_str().unwrap(), &args);
        ended.expect(0, "samples true named true");
    }
}

/// The times that a machine has halted.
fn halts(place: &TestDir, name: &str) -> u64 {
    let stats = place.run(&["stats", name, "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&stats.out).unwrap();
    let vcpus = stats["vcpus"].as_array().unwrap();
    let halts = vcpus.iter().map(|vcpu| vcpu["kvm"]["halt_exits"].as_u64());
    halts.map(Option::unwrap).sum()
}

/// A thousand periods a second would pass if its time counted.
#[test]
fn an_idle_program_does_not_wake_for_timers_of_cpu_time() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "cpu_timers.c", &["-static"]) else {
        return;
    };
    let args = ["run", &program, "--name", "idle", "--net", "none"];
    let child = place
        .tare(&[&args[..], &["--", "idle"]].concat())
        .spawn()
        .unwrap();
    eventually("it waits", || {
        place.run(&["logs", "idle"]).out.contains("waits")
    });
    let before = halts(&place, "idle");
    sleep(Duration::from_secs(1));
    let wakes = halts(&place, "idle") - before;
    place.run(&["stop", "--time", "1", "idle"]);
    end(child);
    assert!(wakes < 20, "{wakes}");
}

/// How often the program's `call` ran out, by the statistics of its machine; `None` if it never did.
fn ran_out(place: &TestDir, name: &str, call: &str) -> Option<u64> {
    let stats = place.run(&["stats", name, "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&stats.out).unwrap();
    let expiries = stats["expiries"].as_array().unwrap();
    let found = expiries.iter().find(|expiry| expiry["call"] == call)?;
    assert_eq!(found["thread"], 1, "{found}");
    assert_eq!(found["thread_name"], "ticker", "{found}");
    found["count"].as_u64()
}

#[test]
fn time_limits_and_timers_that_run_out_are_counted_by_call_and_named_by_why() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    let Some(program) = c(&place, "expiries.c", &["-static"]) else {
        return;
    };
    let args = ["run", &program, "--name", "ticking", "--net", "none"];
    let child = place.tare(&args).spawn().unwrap();
    eventually("it has waited for each", || {
        place.run(&["logs", "ticking"]).out.contains("counted")
    });
    let count = |call: &str| ran_out(&place, "ticking", call);
    // A timer that sends a signal is due once for each. A wait that begins late, on a busy host,
    // finds its time over and does not wait.
    assert_eq!(count("setitimer"), Some(4));
    for (call, most) in [("clock_nanosleep", 5), ("timerfd_settime", 3)] {
        let counted = count(call);
        assert!(
            matches!(counted, Some(1..)) && counted <= Some(most),
            "{call}: {counted:?}"
        );
    }
    assert_eq!(count("poll"), None, "nothing waits");
    eventually("its loop runs", || count("epoll_wait") > Some(2));

    let text = place.run(&["stats", "ticking"]).out;
    assert!(
        text.contains("\n  epoll_wait of ticker (thread 1) "),
        "{text}"
    );
    let line =
        "Time limits and timers of the program that ran out: epoll_wait of ticker (thread 1)";
    eventually("why names it", || {
        let said = place.run(&["why", "ticking", "--seconds", "1"]).out;
        said.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains(line)
    });
    place.run(&["stop", "--time", "1", "ticking"]);
    end(child);
}
