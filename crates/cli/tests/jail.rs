//! The jail of machines that root starts, as the kernel shows it.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::needs::{built, kvm, passt, skip};
use support::{TestDir, eventually, installed};

/// A machine in the background, stopped at the end.
struct Running<'a> {
    place: &'a TestDir,
    name: &'a str,
    pid: u64,
}

impl<'a> Running<'a> {
    fn start(place: &'a TestDir, name: &'a str, options: &[&str]) -> Option<Self> {
        let image = built("http")?;
        let site = place.path().join("site");
        fs::create_dir_all(&site).unwrap();
        fs::write(site.join("index.html"), "x").unwrap();
        let mut args = vec!["run", image.to_str().unwrap(), "--name", name, "-d"];
        args.extend(["--net", "none", "--engine", "tare", "--root"]);
        args.push(site.to_str().unwrap());
        args.extend(options);
        place.run(&args).expect(0, "");
        let rows = place.run(&["ps", "--json"]).out;
        let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        Some(Self {
            place,
            name,
            pid: row["pid"].as_u64().unwrap(),
        })
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.pid))
    }

    /// Fields of `/proc/PID/status` after a field's name.
    fn status(&self, field: &str) -> Vec<String> {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let fields = line.unwrap().split_ascii_whitespace();
        fields.map(str::to_owned).collect()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.place.run(&["stop", self.name]);
    }
}

fn is_root() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    skip("only root's machines change their user");
    false
}

#[test]
fn machines_of_root_have_users_and_namespaces_of_their_own() {
    if !kvm() || !is_root() {
        return;
    }
    let place = TestDir::new();
    let (Some(first), Some(second)) = (
        Running::start(&place, "first", &[]),
        Running::start(&place, "second", &[]),
    ) else {
        return;
    };
    let users = [&first, &second].map(|machine| machine.status("Uid:"));
    for user in &users {
        assert!(user.iter().all(|id| *id == user[0]), "{user:?}");
        assert!(user[0].parse::<u32>().unwrap() >= 1_900_000_000);
    }
    assert_ne!(users[0], users[1]);
    assert!(first.status("Groups:").is_empty());
    for namespace in ["pid", "mnt", "net", "ipc", "uts"] {
        let of = |path: PathBuf| fs::read_link(path).unwrap();
        let own = of(PathBuf::from(format!("/proc/self/ns/{namespace}")));
        let [first, second] = [&first, &second].map(|it| of(it.proc(&format!("ns/{namespace}"))));
        assert!(
            first != own && second != own && first != second,
            "{namespace}"
        );
    }
    // The first process there, and all that its /proc shows.
    assert_eq!(
        first.status("NSpid:"),
        [first.pid.to_string(), "1".to_owned()]
    );
    let seen = fs::read_dir(first.proc("root/proc")).unwrap().flatten();
    let numbers = seen.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    assert_eq!(numbers.collect::<Vec<_>>(), [1]);
    let root = fs::read_dir(first.proc("root")).unwrap();
    let mut names: Vec<_> = root.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert!(names == ["proc", "sys"] || names == ["proc"], "{names:?}");
    drop((first, second));
    // The user may not remove root's files; the main thread still can.
    eventually("the run directories are removed", || {
        place.run_directories().is_empty()
    });
}

/// `ps`, `stats`, `logs`, `set`, `why`, `pin` and `stop` speak of the machine's process by the host's
/// numbers, whichever of its two processes they are given.
#[test]
fn every_verb_finds_a_machine_that_is_the_first_process_of_its_namespace() {
    if !kvm() || !is_root() {
        return;
    }
    let place = TestDir::new();
    let Some(machine) = Running::start(&place, "first", &[]) else {
        return;
    };
    let outside = &machine.status("PPid:")[0];
    eventually("its parent has given up its rights", || {
        let name = fs::read_to_string(format!("/proc/{outside}/comm"));
        name.is_ok_and(|name| name == "tare-outside\n")
    });
    let stats: Value = serde_json::from_str(&place.run(&["stats", "first", "--json"]).out).unwrap();
    assert_eq!(stats["pid"], machine.pid);
    for thread in stats["threads"].as_array().unwrap() {
        let task = machine.proc(&format!("task/{}/comm", thread["tid"]));
        let name = fs::read_to_string(task).unwrap();
        let is_main = thread["name"] == "main";
        assert!(
            is_main || thread["name"] == name.trim_end(),
            "{thread}: {name}"
        );
    }
    place.run(&["logs", "first"]).expect(0, "");
    place.run(&["set", "first"]).expect(0, "");
    for target in ["first", outside.as_str(), &machine.pid.to_string()] {
        let pinned = place.run(&["pin", target, "--dry-run"]);
        pinned.expect(0, "");
        assert!(pinned.out.contains("vcpu0"), "{pinned:?}");
        let told = place.run(&["why", target, "--seconds", "1", "--json"]);
        if told.code == Some(0) {
            let told: Value = serde_json::from_str(&told.out).unwrap();
            assert!(
                told.to_string()
                    .contains(&format!("\"pid\":{}", machine.pid))
            );
        } else {
            skip("this host lets no program of BPF observe");
        }
    }
    // Its end is the machine's, as that of a machine of one process was.
    let pid = rustix::process::Pid::from_raw(outside.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    eventually("the machine has ended and left nothing", || {
        place.run_directories().is_empty()
    });
}

#[test]
fn a_machine_becomes_the_user_that_is_named_or_stays() {
    if !kvm() || !is_root() {
        return;
    }
    let place = TestDir::new();
    let Some(named) = Running::start(&place, "named", &["--user", "65534:65533"]) else {
        return;
    };
    assert_eq!(named.status("Uid:")[0], "65534");
    assert_eq!(named.status("Gid:")[0], "65533");
    let stays = Running::start(&place, "stays", &["--user", "self"]).unwrap();
    assert_eq!(stays.status("Uid:")[0], "0");
    assert_eq!(stays.status("CapEff:"), ["0000000000000000"]);
}

/// The kernel's file with a limit of the machine's group, in either version.
fn limit(pid: u64, controller: &str, file: &str, file_v2: &str) -> Option<String> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let path = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        if controllers == controller {
            Some(format!("/sys/fs/cgroup/{controller}{path}/{file}"))
        } else if controllers.is_empty() {
            Some(format!("/sys/fs/cgroup{path}/{file_v2}"))
        } else {
            None
        }
    };
    let found = groups.lines().filter_map(path);
    let text = found
        .filter_map(|path| fs::read_to_string(path).ok())
        .next()?;
    Some(text.trim().to_owned())
}

#[test]
fn limits_hold_a_machine_and_its_group_goes_after_it() {
    if !kvm() || !is_root() {
        return;
    }
    let controllers = fs::read_to_string("/proc/self/cgroup").unwrap();
    let writable = [
        "/sys/fs/cgroup/cpu/cgroup.procs",
        "/sys/fs/cgroup/cgroup.procs",
    ];
    if controllers.is_empty() || !writable.iter().any(|path| fs::metadata(path).is_ok()) {
        skip("this host shows no cgroups");
        return;
    }
    let place = TestDir::new();
    let options = ["--limit-cpu", "0.5", "--limit-memory", "96M"];
    let Some(limited) = Running::start(&place, "limited", &options) else {
        return;
    };
    let quota = limit(limited.pid, "cpu", "cpu.cfs_quota_us", "cpu.max").unwrap();
    assert!(quota == "50000" || quota == "50000 100000", "{quota}");
    let memory = limit(limited.pid, "memory", "memory.limit_in_bytes", "memory.max");
    assert_eq!(memory.unwrap(), (96_u64 << 20).to_string());
    let group = fs::read_to_string(limited.proc("cgroup"))
        .unwrap()
        .lines()
        .find_map(|line| line.split_once("/tare/"))
        .unwrap()
        .1
        .to_owned();
    let exists = || {
        let parents = ["cpu/", "memory/", ""].map(|it| format!("/sys/fs/cgroup/{it}tare/{group}"));
        parents.iter().any(|path| fs::metadata(path).is_ok())
    };
    assert!(exists());
    // As after a crash: the machine cleans up nothing.
    let pid = i32::try_from(limited.pid).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("the group is gone after the next tare ps", || {
        place.run(&["ps"]).expect(0, "");
        !exists()
    });
    place.run(&["rm", "limited"]);
}

/// The whole disk that `directory` is on, as cgroups name it.
fn device_of(directory: &Path) -> Option<String> {
    let device = fs::metadata(directory).unwrap().dev();
    let number = |device| {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        format!("{major}:{minor}")
    };
    let device = fs::canonicalize(format!("/sys/dev/block/{}", number(device))).ok()?;
    let whole = if device.join("partition").exists() {
        device.parent()?.to_owned()
    } else {
        device
    };
    Some(
        fs::read_to_string(whole.join("dev"))
            .ok()?
            .trim()
            .to_owned(),
    )
}

#[test]
fn reads_and_writes_are_limited_on_the_disks_device_and_frames_by_the_monitor() {
    if !kvm() || !is_root() || !passt() {
        return;
    }
    let place = TestDir::new();
    let (Some(image), Some(device)) = (built("http"), device_of(place.path())) else {
        skip("the tests' directory is on no block device");
        return;
    };
    if fs::metadata("/sys/fs/cgroup/blkio/cgroup.procs").is_err() {
        skip("this host has no cgroup for blkio of version 1");
        return;
    }
    let disk = place.path().join("disk.img");
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let disk = disk.to_str().unwrap();
    let options = ["--limit-io", "iops=500", "--limit-net", "frames_per_s=9000"];
    let mut args = vec!["run", image.to_str().unwrap(), "--name", "limited", "-d"];
    args.extend(["--engine", "tare", "--disk", disk]);
    args.extend(options);
    place.run(&args).expect(0, "");
    let rows: Value = serde_json::from_str(&place.run(&["ps", "--json"]).out).unwrap();
    let pid = rows[0]["pid"].as_u64().unwrap();
    for file in ["read", "write"].map(|it| format!("blkio.throttle.{it}_iops_device")) {
        let limit = limit(pid, "blkio", &file, "io.max");
        assert_eq!(limit, Some(format!("{device} 500")), "{file}");
    }
    let set = place.run(&["set", "limited"]);
    assert!(set.out.contains("net.frames_per_s"), "{set:?}");
    assert!(set.out.contains(" 9000\n"), "{set:?}");
    let lifted = place.run(&["set", "limited", "net.frames_per_s=0"]);
    lifted.expect(0, "");
    place.run(&["stop", "limited"]).expect(0, "");
    // Useless, and so refused before anything is created.
    let refused = |options: &[&str], why| {
        let args = ["run", image.to_str().unwrap(), "--engine", "tare"];
        place.run(&[&args, options].concat()).expect(2, why);
    };
    refused(
        &["--net", "none", "--limit-net", "bytes_per_s=1"],
        "--limit-net needs a network",
    );
    refused(&["--limit-io", "iops=1"], "--limit-io needs a disk");
}

/// A user without privileges who may open /dev/kvm starts a machine, which confines itself.
#[test]
fn an_ordinary_user_starts_a_machine() {
    if !kvm() || !is_root() {
        return;
    }
    let Some(image) = built("hostile") else {
        return;
    };
    if !(installed("setpriv") && installed("unshare")) {
        skip("setpriv or unshare is not installed");
        return;
    }
    let place = TestDir::new();
    let tare = Path::new(env!("CARGO_BIN_EXE_tare"));
    let directory = place.path();
    for program in [tare, &tare.with_file_name("tare-monitor"), &image] {
        let name = program.file_name().unwrap();
        fs::copy(program, directory.join(name)).unwrap();
    }
    // /dev/kvm that all may use exists in a mount namespace of the test's only.
    let script = "set -e; cd \"$1\"; chmod 755 . tare tare-monitor; mkdir dev run; \
                  chmod 700 run; chown 65534:65534 run; mount -t tmpfs none dev; \
                  mknod dev/kvm c 10 232; chmod 666 dev/kvm; mount --bind dev/kvm /dev/kvm; \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups env \
                  TARE_RUN_ROOT=\"$1/run\" ./tare run ./hostile --engine tare --net none";
    let started = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&started.stdout);
    let errors = String::from_utf8_lossy(&started.stderr);
    assert!(started.status.success(), "{text}{errors}");
    assert!(text.contains("hostile done"), "{text}{errors}");
    let left = fs::read_dir(directory.join("run")).unwrap().flatten();
    let machines = left.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    assert_eq!(machines.count(), 0);
}

/// After a machine that was killed, `--clean` leaves its run root as it was; what Tare did not
/// make stays.
#[test]
fn doctor_removes_what_a_killed_machine_left() {
    if !kvm() || !is_root() {
        return;
    }
    let place = TestDir::new();
    let Some(killed) = Running::start(&place, "killed", &[]) else {
        return;
    };
    fs::create_dir(place.run_root().join("mine")).unwrap();
    let pid = i32::try_from(killed.pid).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let directory = place.run_root().join("killed");
    assert!(directory.exists());
    eventually("its run directory is gone", || {
        place.run(&["doctor", "--clean"]).expect(0, "");
        !directory.exists()
    });
    assert!(place.run_root().join("mine").exists());
    // Cgroups and users' locks of other tests are on the same host.
    let again = place.run(&["doctor", "--clean"]);
    again.expect(0, "");
    assert!(!again.out.contains("run directory"), "{}", again.out);
}
