//! What the kernel reports about each thread of a running monitor.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::process::Command;

use support::{Rig, code, kvm};
use tare_daemon::confine::{Files, Role, confine};

/// The value of a field of `/proc/PID/task/TID/status`.
fn field<'a>(status: &'a str, name: &str) -> &'a str {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim_start_matches(':').trim()
}

#[test]
fn every_thread_of_a_running_machine_is_confined_and_has_no_capability() {
    if !kvm() {
        return;
    }
    let guest = code::all(&[&code::print("up"), code::HALT]);
    let running = Rig::new(&guest).set("cpus", 2.into()).start();
    running.wait_for("up");
    let mut client = running.client();
    // The answer comes from a confined main thread.
    client.machine().unwrap();
    let tasks = format!("/proc/{}/task", running.pid().as_raw_nonzero());
    let mut names = Vec::new();
    for task in fs::read_dir(tasks).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let name = field(&status, "Name").to_owned();
        // Helper threads of io_uring and KVM never leave the kernel.
        if name.starts_with("iou-") || name.starts_with("kvm-") {
            continue;
        }
        assert_eq!(field(&status, "NoNewPrivs"), "1", "{name}");
        assert_eq!(field(&status, "Seccomp"), "2", "{name}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(field(&status, set), "0000000000000000", "{name} {set}");
        }
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["io", "tare-monitor", "vcpu0", "vcpu1"]);
    // Another machine could be made of the one, the other is the author's.
    let descriptors = format!("/proc/{}/fd", running.pid().as_raw_nonzero());
    for link in fs::read_dir(descriptors).unwrap().flatten() {
        let Ok(file) = fs::read_link(link.path()) else {
            continue;
        };
        let name = file.to_string_lossy();
        assert!(
            !name.ends_with("/kvm") && !name.contains("memfd:test"),
            "{name}"
        );
    }
}

/// Says that this is the process of [`a_confined_thread_frees_much_memory`], for this role.
const FREES: &str = "TARE_TEST_FREES";

/// A thread's own heap would shrink by this, for which the C library opens a file, and that ends the
/// process. Another process, since this one has threads with heaps.
#[test]
fn a_confined_thread_frees_much_memory() {
    // The monitor's I/O thread, and one of `tare blk`.
    let roles = [("io", Role::Io), ("frontend", Role::Frontend)];
    let Some(role) = std::env::var_os(FREES) else {
        for (name, _) in roles {
            let mut this = Command::new(std::env::current_exe().unwrap());
            this.args(["--exact", "a_confined_thread_frees_much_memory"]);
            let ended = this.arg("--test-threads=1").env(FREES, name).output();
            let ended = ended.unwrap();
            assert!(ended.status.success(), "{name}: {ended:?}");
        }
        return;
    };
    let (_, role) = roles.into_iter().find(|(name, _)| role == *name).unwrap();
    tare_daemon::heap::share();
    let frees = std::thread::spawn(move || {
        let files = Files::none().unwrap();
        confine(role, files).unwrap();
        for _ in 0..3 {
            let blocks: Vec<Vec<u8>> = (0..200).map(|n| vec![n; 100 << 10]).collect();
            drop(blocks);
        }
    });
    frees.join().unwrap();
}
