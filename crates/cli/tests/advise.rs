//! `tare advise`: for kinds of work, for a known workload, for processes with one activity, and a
//! trial.
#![allow(clippy::unwrap_used)]

mod support;

use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, geteuid};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::Value;
use support::needs::{built, kvm, skip};
use support::{CommandOutput, TestDir, end, process};

/// A shell that runs a command until the test ends.
struct Doing(Child);

impl Doing {
    fn new(script: &str) -> Self {
        let mut command = Command::new("sh");
        Self(
            command
                .args(["-c", script])
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn advise(place: &TestDir, args: &[&str]) -> CommandOutput {
    let mut command = place.tare(&["advise"]);
    command
        .args(args)
        .env("TARE_STATE_DIR", place.path().join("state"))
        .current_dir(place.path());
    end(command.spawn().unwrap())
}

fn facts(place: &TestDir, pid: &str) -> Value {
    let told = advise(place, &[pid, "--seconds", "1", "--json"]);
    told.expect(0, "facts");
    let all: Value = serde_json::from_str(&told.out).unwrap();
    all[0].clone()
}

#[test]
fn each_kind_of_work_and_each_known_workload_is_advised_without_measuring() {
    let place = TestDir::new();
    let kinds = advise(&place, &[]);
    kinds.expect(0, "CPU-bound work");
    kinds.expect(0, "evidence: CPU-Pinning 2020, slide 30");
    assert!(kinds.out.lines().all(|line| line.chars().count() < 80));
    let known = advise(&place, &["ffmpeg"]);
    known.expect(0, "ffmpeg (planned; CPU-Pinning 2020, slide 13)");
    advise(&place, &["no-such-thing"]).expect(53, "no virtual machine, container or process");
    advise(&place, &["ffmpeg", "--try"]).expect(0, "Nothing to try");
}

/// Within far less time than it would take.
#[test]
fn a_signal_ends_the_measuring() {
    let place = TestDir::new();
    let idle = Doing::new("exec sleep 3600");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut command = place.tare(&["advise", &idle.pid(), "--seconds", "3600", "--json"]);
        command.env("TARE_STATE_DIR", place.path().join("state"));
        let measuring = command.spawn().unwrap();
        process::handles(measuring.id(), signal);
        process::signal(&measuring, signal);
        let ended = end(measuring);
        assert_eq!(ended.code, Some(code), "{ended:#?}");
        assert_eq!(ended.out, "");
    }
}

#[test]
fn work_is_classified_by_what_it_spends_its_time_with() {
    if !geteuid().is_root() {
        skip("observing needs root");
        return;
    }
    let place = TestDir::new();
    let busy = Doing::new("while :; do :; done");
    let told = facts(&place, &busy.pid());
    assert_eq!(told["facts"]["class"], "CPU-bound", "{told}");
    assert!(
        told["facts"]["busy_millicpus"].as_u64().unwrap() > 0,
        "{told}"
    );
    let pipes = "cat /dev/zero | dd bs=64 count=1000000000 of=/dev/null 2>/dev/null";
    let idle = Doing::new("sleep 60");
    let told = facts(&place, &idle.pid());
    assert_eq!(told["facts"]["class"], Value::Null, "{pipes}: {told}");
}

/// From the machine's statistics of its disk, with coalescing off although it would help.
#[test]
fn a_machine_whose_disk_is_loaded_is_advised_to_coalesce() {
    let Some(image) = kvm().then(|| built("blk")).flatten() else {
        return;
    };
    let place = TestDir::new();
    let disk = place.file("disk.img", &vec![0; 4 << 20]);
    let disk = format!("{disk},coalesce=off,latency_us=200000");
    let cmdline = "cif=16 read=100 count=1000000 warm_ms=0";
    let machine = ["run", image.to_str().unwrap(), "-d", "--name", "loaded"];
    let rest = ["--net", "none", "--disk", &disk, "--cmdline", cmdline];
    place.run(&[&machine[..], &rest].concat()).expect(0, "");
    // This host may be too slow for the published thresholds.
    let (rate, depth) = (
        "disk0.coalesce.iops_threshold=1",
        "disk0.coalesce.cif_threshold=2",
    );
    place
        .run(&["set", "loaded", rate, depth])
        .expect(0, "disk0.coalesce.iops_threshold");
    let told = facts(&place, "loaded");
    let disk = &told["facts"]["disks"][0];
    assert_eq!(told["facts"]["platform"], "tare-vm", "{told}");
    assert!(disk["interrupts_permille"].as_u64() > Some(0), "{told}");
    assert!(disk["depth_permille"].as_u64() > Some(2000), "{told}");
    let rule = |advice: &Value| advice["rule"] == "coalesce-disk-interrupts";
    let advice = told["advice"].as_array().unwrap().iter().find(|a| rule(a));
    let command = advice.unwrap()["command"].as_str().unwrap();
    assert_eq!(command, "tare set loaded disk0.coalesce=auto");
    // Following the advice removes it.
    let command: Vec<&str> = command.split(' ').skip(1).collect();
    place.run(&command).expect(0, "auto");
    let now = facts(&place, "loaded");
    assert!(!now["advice"].as_array().unwrap().iter().any(rule), "{now}");
    place.run(&["stop", "loaded", "--time", "2"]).expect(0, "");
}

/// Pinning cannot help a process that is alone on its CPU.
#[test]
fn a_trial_that_does_not_help_leaves_nothing() {
    let place = TestDir::new();
    let doing = Doing::new("while :; do sleep 0.01; done");
    let pid = Pid::from_raw(i32::try_from(doing.0.id()).unwrap());
    let cpus = || {
        let set = sched_getaffinity(pid).unwrap();
        (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).count()
    };
    let before = cpus();
    let tried = advise(&place, &[&doing.pid(), "--seconds", "1", "--try"]);
    assert_eq!(tried.code, Some(0), "{tried:#?}");
    let journals =
        std::fs::read_dir(place.path().join("state/placements")).map_or(0, Iterator::count);
    if tried.out.contains("It stays pinned") {
        assert_eq!(journals, 1, "{tried:#?}");
    } else {
        let said = ["It is as it was", "Nothing to try"];
        assert!(
            said.iter().any(|text| tried.out.contains(text)),
            "{tried:#?}"
        );
        assert_eq!((cpus(), journals), (before, 0), "{tried:#?}");
    }
}
