//! How halted vCPUs wait, on real machines.
#![allow(clippy::unwrap_used)]

mod support;

use std::thread;
use std::time::Duration;

use support::{Rig, Running, code, kvm};
use tare_control::halt::HaltPolicy;
use tare_control::settings::SettingsChange;
use tare_control::stats::HaltStats;

fn halted(policy: &str) -> Running {
    let guest = code::all(&[&code::print("up"), code::HALT]);
    let running = Rig::new(&guest).set("halt", policy.into()).start();
    running.wait_for("up");
    running
}

fn halt(running: &Running) -> HaltStats {
    running.client().stats().unwrap().halt.unwrap()
}

#[test]
fn a_machine_that_halts_for_good_is_not_looked_at_again() {
    if !kvm() {
        return;
    }
    let running = halted("budget=5");
    thread::sleep(Duration::from_millis(100));
    let before = halt(&running);
    assert_eq!(before.policy.to_string(), "budget=5");
    assert_eq!(before.unavailable, None);
    thread::sleep(Duration::from_secs(1));
    let after = halt(&running);
    // Answering requests takes the monitor some CPU time, though not this much.
    assert!(after.looks <= before.looks + 1, "{before:?} {after:?}");
    assert_eq!((after.window_ns, after.polled_ns), (Some(0), 0));
}

#[test]
fn a_machine_that_runs_is_looked_at_after_cpu_time() {
    if !kvm() {
        return;
    }
    let guest = code::all(&[&code::print("up"), code::SPIN]);
    let running = Rig::new(&guest).set("halt", "budget=1".into()).start();
    running.wait_for("up");
    support::eventually("the budget is reconsidered", || halt(&running).looks > 3);
}

#[test]
fn the_way_to_wait_changes_while_the_machine_runs() {
    if !kvm() {
        return;
    }
    let running = halted("never");
    let mut client = running.client();
    for (word, window_ns) in [
        ("halt=poll=50000", Some(50_000)),
        ("halt=budget=2", Some(0)),
        ("halt=never", Some(0)),
    ] {
        let mut change = SettingsChange::default();
        change.set(word).unwrap();
        let settings = client.set(&change).unwrap();
        assert_eq!(format!("halt={}", settings.halt.unwrap()), word);
        assert_eq!(halt(&running).window_ns, window_ns, "{word}");
    }
    let mut change = SettingsChange::default();
    change.set("halt=kernel").unwrap();
    client.set(&change).unwrap();
    assert_eq!(halt(&running).policy, HaltPolicy::Kernel);
    change.set("halt=dedicated").unwrap();
    assert!(client.set(&change).is_err());
}

#[test]
fn dedicated_vcpus_without_cpus_of_their_own_are_refused() {
    if !kvm() {
        return;
    }
    let ended = Rig::new(code::HALT).set("halt", "dedicated".into()).run();
    ended.expect(2, "differ in number");
}
