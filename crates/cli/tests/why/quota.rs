//! CPU quotas of cgroups, of the version whose hierarchy has the `cpu` controller here: the
//! finding, the advice, and the remedy executed as printed.

use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use serde_json::Value;

use super::qemu::Qemu;
use super::remedies::{allowed, execute, lines};
use super::support::TestDir;
use super::{Hog, expect_cause, expect_found, found, ready_with, vcpus_share, why};

/// What the groups of these tests are called, before the process.
const PREFIX: &str = "tare-why-quota-";

/// A version of cgroups: where its root is, and how it writes quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// The `cpu` controller has its own hierarchy.
    V1,
    /// It is in the unified one.
    V2,
}

impl Hierarchy {
    /// The one that has the `cpu` controller; `None` without.
    fn of_cpu() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut found = mounts.lines().filter_map(Self::of_mount);
        found.find(|it| match it.version {
            Version::V1 => true,
            Version::V2 => has_word(&it.root.join("cgroup.controllers"), "cpu"),
        })
    }

    /// Of a line of `mountinfo`: those that can have the controller.
    fn of_mount(line: &str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let root = PathBuf::from(mount.split(' ').nth(4)?);
        let mut fields = file_system.split(' ');
        let version = match fields.next()? {
            "cgroup2" => Version::V2,
            "cgroup" if fields.nth(1)?.split(',').any(|it| it == "cpu") => Version::V1,
            _ => return None,
        };
        Some(Self { root, version })
    }

    /// The files that say a quota of 0.05 CPUs, and the one of them that holds it. A host with
    /// others to serve still gives a machine more than that, so that the quota stops it.
    fn limits(&self) -> (&'static [(&'static str, &'static str)], &'static str) {
        match self.version {
            Version::V1 => (
                &[
                    ("cpu.cfs_period_us", "100000"),
                    ("cpu.cfs_quota_us", "5000"),
                ],
                "cpu.cfs_quota_us",
            ),
            Version::V2 => (&[("cpu.max", "5000 100000")], "cpu.max"),
        }
    }
}

fn has_word(file: &Path, word: &str) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace().any(|it| it == word)
}

/// A CPU quota in a new control group.
struct Quota {
    group: PathBuf,
    hierarchy: Hierarchy,
    /// The root hands the controller down since this test.
    is_handed_down: bool,
}

impl Quota {
    /// For this process; `None` where no group can be made, as a line says.
    fn new(pid: u32) -> Option<Self> {
        let made = Hierarchy::of_cpu().and_then(|hierarchy| Self::made(hierarchy, pid));
        if made.is_none() {
            tare_vmtest::lacks("no control group for CPU time can be made here");
        }
        made
    }

    fn made(hierarchy: Hierarchy, pid: u32) -> Option<Self> {
        let handing = hierarchy.root.join("cgroup.subtree_control");
        let hands_down = hierarchy.version == Version::V2 && !has_word(&handing, "cpu");
        if hands_down {
            std::fs::write(&handing, "+cpu").ok()?;
        }
        let quota = Self {
            group: hierarchy.root.join(format!("{PREFIX}{pid}")),
            hierarchy,
            is_handed_down: hands_down,
        };
        std::fs::create_dir(&quota.group).ok()?;
        let (limits, _) = quota.hierarchy.limits();
        for (file, value) in limits {
            std::fs::write(quota.group.join(file), value).ok()?;
        }
        quota.add(pid).ok()?;
        println!("{:?} at {}", quota.hierarchy.version, quota.group.display());
        Some(quota)
    }

    fn add(&self, pid: u32) -> std::io::Result<()> {
        std::fs::write(self.group.join("cgroup.procs"), pid.to_string())
    }

    /// Changes it to the kernel's shortest, 1 ms, of the longest period. A timer tick takes more, and
    /// the group is stopped until that is paid: for 4 s with a tick of 4 ms.
    fn stop_for_periods(&self) {
        let files: &[_] = match self.hierarchy.version {
            Version::V1 => &[
                ("cpu.cfs_period_us", "1000000"),
                ("cpu.cfs_quota_us", "1000"),
            ],
            Version::V2 => &[("cpu.max", "1000 1000000")],
        };
        for (file, value) in files {
            std::fs::write(self.group.join(file), value).unwrap();
        }
    }

    /// Whether it has been taken off.
    fn is_off(&self) -> bool {
        let (_, file) = self.hierarchy.limits();
        let now = std::fs::read_to_string(self.group.join(file)).unwrap();
        now.starts_with("-1") || now.starts_with("max")
    }

    /// Whether a test beside this one has a group here.
    fn has_others(&self) -> bool {
        let entries = std::fs::read_dir(&self.hierarchy.root).unwrap();
        let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.any(|name| name.starts_with(PREFIX))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let members = std::fs::read_to_string(self.group.join("cgroup.procs"));
        for pid in members.unwrap_or_default().lines() {
            std::fs::write(self.hierarchy.root.join("cgroup.procs"), pid).ok();
        }
        std::fs::remove_dir(&self.group).ok();
        if self.is_handed_down && !self.has_others() {
            std::fs::write(self.hierarchy.root.join("cgroup.subtree_control"), "-cpu").ok();
        }
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

/// Windows in which a vCPU must once have more CPU time.
const LOOKS: usize = 5;

#[test]
fn the_command_against_a_quota_raises_it() {
    let Some(throttled) = Throttled::start() else {
        return;
    };
    let (place, pid) = (&throttled.place, throttled.qemu.pid().to_string());
    let before = expect_cause(place, &pid, "throttled");
    let cause = found(&before, "throttled").unwrap();
    lines(cause).iter().for_each(|line| execute(place, line));
    let cpu = |told: &Value| vcpus_share(told, |thread| &thread["on_cpu"]["total_ns"]);
    let before = cpu(&before);
    // Other tests may have the CPU in a window.
    let has_more = (0..LOOKS).any(|_| {
        let after = why(place, &pid);
        assert!(found(&after, "throttled").is_none(), "{after}");
        let after = cpu(&after);
        println!("CPU of its vCPU before {before:.3}, after {after:.3}");
        after > before
    });
    assert!(has_more);
}

/// The time in `cpu.stat` rises when a stop ends: a window may lie within one.
#[test]
fn a_stop_longer_than_the_window_is_named() {
    let Some(throttled) = Throttled::start() else {
        return;
    };
    throttled.quota.stop_for_periods();
    for _ in 0..4 {
        let told = why(&throttled.place, &throttled.qemu.pid().to_string());
        expect_found(&told, "throttled");
        println!("{}", found(&told, "throttled").unwrap()["evidence"]);
    }
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
    assert!(throttled.quota.is_off());
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
    quota.add(second.pid()).unwrap();
    let pid = first.pid().to_string();
    // A hog is pinned.
    let told = advice(&place, &pid, "no-quota-on-own-cpus");
    let shared = format!("{}, which other processes share", quota.group.display());
    assert!(
        told["because"].as_str().unwrap().ends_with(&shared),
        "{told}"
    );
    assert!(told["command"].is_null(), "{told}");
}

#[test]
fn the_hierarchy_of_a_quota_is_that_of_the_cpu_controller() {
    let of = |line: &str| {
        let found = Hierarchy::of_mount(line)?;
        Some((found.version, found.root.display().to_string()))
    };
    let v1 = "33 23 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct";
    let root = "/sys/fs/cgroup/cpu,cpuacct".to_owned();
    assert_eq!(of(v1), Some((Version::V1, root)));
    let v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
    assert_eq!(of(v2), Some((Version::V2, "/sys/fs/cgroup".to_owned())));
    let another = "34 23 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset";
    assert_eq!((of(another), of("cut")), (None, None));
}
