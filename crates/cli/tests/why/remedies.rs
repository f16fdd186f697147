//! Remedies, executed as they are printed, with what the machine does before and after.

use std::path::Path;
use std::process::Command;
use std::sync::MutexGuard;

use serde_json::Value;

use super::qemu::Qemu;
use super::support::TestDir;
use super::{Hog, RunningMachine, expect_cause, found, pin, ready, ready_with, vcpus_share, why};

/// The shell's lines of a remedy, each after the colon behind its effect.
pub(super) fn lines(found: &Value) -> Vec<String> {
    let remedy = found["remedy"].as_str().unwrap();
    let commands = remedy
        .split("; or ")
        .filter_map(|one| one.split_once(": "))
        .filter(|(effect, _)| *effect != "in the guest");
    commands.map(|(_, command)| command.to_owned()).collect()
}

/// Executes a line in a shell that finds `tare`.
#[track_caller]
pub(super) fn execute(place: &TestDir, line: &str) {
    let programs = Path::new(env!("CARGO_BIN_EXE_tare")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let done = Command::new("sh")
        .args(["-ec", line])
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("TARE_RUN_ROOT", place.run_root())
        .env("TARE_STATE_DIR", place.path().join("state"))
        .output()
        .unwrap();
    assert!(done.status.success(), "{line}: {done:#?}");
}

/// CPUs that a thread may use.
pub(super) fn allowed(machine: &Value) -> Vec<usize> {
    let threads = machine["account"]["threads"].as_array().unwrap().iter();
    let vcpus = threads.filter(|thread| !thread["vcpu"].is_null());
    vcpus
        .map(|thread| thread["allowed_cpus"].as_array().unwrap().len())
        .collect()
}

#[test]
fn the_command_against_steal_lets_a_pinned_vcpu_use_every_cpu() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, "mode=spin", &[]);
    machine.vcpus().into_iter().for_each(|tid| pin(tid, 0));
    let _hog = Hog::new(0);
    let before = expect_cause(&place, &machine.name, "steal");
    assert_eq!(allowed(&before), [1]);
    for line in lines(found(&before, "steal").unwrap()) {
        execute(&place, &line);
    }
    let cpus = before["account"]["host_cpus"].as_u64().unwrap() as usize;
    assert_eq!(allowed(&why(&place, &machine.name)), [cpus]);
}

#[test]
fn the_command_against_vcpus_that_share_a_cpu_parts_them() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, "mode=spin", &["--cpus", "2"]);
    machine.vcpus().into_iter().for_each(|tid| pin(tid, 1));
    let before = why(&place, &machine.name);
    let Some(together) = found(&before, "pinned_together") else {
        tare_vmtest::lacks("a second CPU is needed");
        return;
    };
    lines(together)
        .iter()
        .for_each(|line| execute(&place, line));
    let after = why(&place, &machine.name);
    assert!(found(&after, "pinned_together").is_none(), "{after}");
    execute(&place, &format!("tare pin {} --undo", machine.name));
}

#[test]
fn the_commands_against_halt_polling_end_it() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let words = "mode=sleep us=4000,4000,20000";
    let machine = RunningMachine::start(&place, &image, words, &["--halt", "poll=5000000"]);
    let polls = |told: &Value| vcpus_share(told, |t| &t["vcpu"]["halts"]["polls_attempted"]);
    let told = why(&place, &machine.name);
    let Some(loses) = found(&told, "polling_loses") else {
        tare_vmtest::lacks("this computer is too busy for halt polling");
        return;
    };
    assert!(polls(&told) > 0.0);
    for line in lines(loses) {
        execute(&place, &line);
    }
    // The last of them is `halt=never`.
    let after = why(&place, &machine.name);
    assert_eq!(polls(&after), 0.0, "{after}");
}

/// A CPU quota in a new control group, of the version that this host has.
struct Quota(std::path::PathBuf);

impl Quota {
    fn new(pid: u32) -> Option<Self> {
        let name = format!("tare-why-quota-{pid}");
        let of = |root: &str, limits: &[(&str, &str)]| {
            let folder = Path::new(root).join(&name);
            std::fs::create_dir(&folder).ok()?;
            let quota = Self(folder);
            for (file, value) in limits {
                std::fs::write(quota.0.join(file), value).ok()?;
            }
            std::fs::write(quota.0.join("cgroup.procs"), pid.to_string()).ok()?;
            Some(quota)
        };
        let v1 = [
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "20000"),
        ];
        let v1 = of("/sys/fs/cgroup/cpu", &v1);
        let made = v1.or_else(|| of("/sys/fs/cgroup", &[("cpu.max", "20000 100000")]));
        if made.is_none() {
            tare_vmtest::lacks("no control group for CPU time can be made here");
        }
        made
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let members = std::fs::read_to_string(self.0.join("cgroup.procs"));
        for pid in members.unwrap_or_default().lines() {
            std::fs::write(self.0.join("../cgroup.procs"), pid).ok();
        }
        std::fs::remove_dir(&self.0).ok();
    }
}

/// A QEMU that spins against a quota. Its quota goes first.
struct Throttled {
    quota: Quota,
    qemu: Qemu,
    place: TestDir,
    _alone: MutexGuard<'static, ()>,
}

impl Throttled {
    /// `None` where this cannot be, as a line says.
    fn start() -> Option<Self> {
        let (alone, image) = ready_with("qemu-system-x86_64")?;
        let place = TestDir::new();
        let qemu = Qemu::start(&place, &image, "microvm", "mode=spin", &[]);
        Some(Self {
            quota: Quota::new(qemu.pid())?,
            qemu,
            place,
            _alone: alone,
        })
    }
}

#[test]
fn the_command_against_a_quota_raises_it() {
    let Some(throttled) = Throttled::start() else {
        return;
    };
    let (place, pid) = (&throttled.place, throttled.qemu.pid().to_string());
    let before = expect_cause(place, &pid, "throttled");
    let cause = found(&before, "throttled").unwrap();
    lines(cause).iter().for_each(|line| execute(place, line));
    let after = why(place, &pid);
    assert!(found(&after, "throttled").is_none(), "{after}");
    let cpu = |told: &Value| vcpus_share(told, |thread| &thread["on_cpu"]["total_ns"]);
    println!("throttled {:.3}, then {:.3}", cpu(&before), cpu(&after));
}

/// What `tare advise` says by this rule.
#[track_caller]
fn advice(place: &TestDir, target: &str, rule: &str) -> Value {
    let mut advise = place.tare(&["advise", target, "--seconds", "2", "--json"]);
    advise.env("TARE_STATE_DIR", place.path().join("state"));
    let ended = super::support::end(advise.spawn().unwrap());
    ended.expect(0, "facts");
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    let mut told = document[0]["advice"].as_array().unwrap().iter();
    let found = told.find(|it| it["rule"] == rule);
    found.unwrap_or_else(|| panic!("{document}")).clone()
}

/// The advice for a machine with a quota changes the quota, not only where it runs.
#[test]
fn the_advice_against_a_quota_takes_it_off() {
    let Some(throttled) = Throttled::start() else {
        return;
    };
    let (place, pid) = (&throttled.place, throttled.qemu.pid().to_string());
    let told = advice(place, &pid, "set-instead-of-quota");
    execute(place, told["command"].as_str().unwrap());
    let value = |file: &str| std::fs::read_to_string(throttled.quota.0.join(file)).ok();
    let now = value("cpu.cfs_quota_us").or_else(|| value("cpu.max"));
    assert!(now.is_some_and(|now| now.starts_with("-1") || now.starts_with("max")));
    let after = why(place, &pid);
    assert!(found(&after, "throttled").is_none(), "{after}");
    assert_eq!(allowed(&after), [1]);
    execute(place, &format!("tare pin {pid} --undo"));
}

/// The advice for a process whose group holds another one leaves the group's quota.
#[test]
fn the_advice_against_a_shared_quota_names_the_group() {
    let place = TestDir::new();
    let (first, second) = (Hog::new(0), Hog::new(0));
    let Some(quota) = Quota::new(first.pid()) else {
        return;
    };
    std::fs::write(quota.0.join("cgroup.procs"), second.pid().to_string()).unwrap();
    let pid = first.pid().to_string();
    // A hog is pinned.
    let told = advice(&place, &pid, "no-quota-on-own-cpus");
    let shared = format!("{}, which other processes share", quota.0.display());
    assert!(
        told["because"].as_str().unwrap().ends_with(&shared),
        "{told}"
    );
    assert!(told["command"].is_null(), "{told}");
}

/// QEMU has no command for these: it starts with them, and the timer is gone.
#[test]
fn the_options_that_take_a_timer_away_do_so() {
    let Some((_alone, image)) = ready_with("qemu-system-x86_64") else {
        return;
    };
    for (model, cmdline, cause, missing) in [
        ("pc", "mode=hpet hz=1000", "hpet", "there is no HPET"),
        ("q35", "mode=pit hz=1000", "pit", "there is no PIT"),
    ] {
        let place = TestDir::new();
        let qemu = Qemu::start(&place, &image, model, cmdline, &[]);
        let told = expect_cause(&place, &qemu.pid().to_string(), cause);
        drop(qemu);
        let remedies = found(&told, cause).unwrap()["remedies"].as_array().unwrap();
        let restart = remedies
            .iter()
            .find(|one| one["kind"] == "restart")
            .unwrap();
        let option = restart["with"][0].as_str().unwrap();
        let words: Vec<&str> = option.split(' ').collect();
        let place = TestDir::new();
        let qemu = Qemu::spawn(&place, &image, model, cmdline, &words);
        qemu.until_it_prints(missing);
    }
}
