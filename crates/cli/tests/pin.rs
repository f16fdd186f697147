//! `tare pin` on real targets: machines of three monitors, a runc container, a
//! process that keeps starting threads; undone, timed out, interrupted, killed.
//!
//! Machines need /dev/kvm and their monitor, and SKIP without; containers need
//! root and runc. Two CPUs are needed to tell one placement from another.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use support::guest::{self, Then};
use support::needs::{kvm, skip};
use support::{CommandOutput, TestDir, end, eventually, installed};
use tare_host::child::ends_with_us;
use tare_qemu::{Accelerator, CommandLine, GuestSystem, MachineType, PROGRAM};

/// The CPUs of a process's threads, by thread and its start time.
type Seats = BTreeMap<(i32, u64), Vec<usize>>;

fn allowed(tid: i32) -> Option<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(tid)).ok()?;
    Some(
        (0..CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect(),
    )
}

fn put(tid: i32, cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(Pid::from_raw(tid), &set).unwrap();
}

/// All CPUs, if there are two.
fn cpus() -> Option<Vec<usize>> {
    let cpus = allowed(i32::try_from(std::process::id()).unwrap()).unwrap();
    if cpus.len() < 2 {
        skip("one CPU: placements cannot be told apart");
        return None;
    }
    Some(cpus)
}

fn tids(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    tasks.collect()
}

fn started(pid: u32, tid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_whitespace().nth(19)?.parse().ok()
}

fn seats(pids: &[u32]) -> Seats {
    let all = pids
        .iter()
        .flat_map(|pid| tids(*pid).into_iter().map(|tid| (*pid, tid)));
    all.filter_map(|(pid, tid)| Some(((tid, started(pid, tid)?), allowed(tid)?)))
        .collect()
}

fn comm(pid: u32, tid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
    text.unwrap_or_default().trim().to_owned()
}

/// `tare pin` with a state directory of the test's own.
trait Pin {
    fn pin_command(&self, args: &[&str]) -> Command;
    fn pin(&self, args: &[&str]) -> CommandOutput;
    fn state(&self) -> PathBuf;
    fn journals(&self) -> usize;
}

impl Pin for TestDir {
    fn pin_command(&self, args: &[&str]) -> Command {
        let mut command = self.tare(&["pin"]);
        command.args(args).env("TARE_STATE_DIR", self.state());
        command
    }

    fn pin(&self, args: &[&str]) -> CommandOutput {
        end(self.pin_command(args).spawn().unwrap())
    }

    fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    fn journals(&self) -> usize {
        fs::read_dir(self.state().join("placements")).map_or(0, Iterator::count)
    }
}

/// A process that is ended with the test.
struct Living(Child);

impl Living {
    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sleeper() -> Living {
    let mut command = Command::new("sleep");
    Living(command.arg("120").stdout(Stdio::null()).spawn().unwrap())
}

/// Pins by machine `target`, checks each role, undoes, and checks that everything is as before.
fn there_and_back(place: &TestDir, target: &str, pid: u32, is_vcpu: impl Fn(&str) -> bool) {
    // An unusual placement that the user made must be restored.
    put(i32::try_from(pid).unwrap(), &[0]);
    let before = seats(&[pid]);
    let planned = place.pin(&[target, "--cpus", "0,1", "--dry-run"]);
    planned.expect(0, "vcpu0");
    assert_eq!(seats(&[pid]), before, "a dry run changes nothing");
    let pinned = place.pin(&[target, "--cpus", "0,1"]);
    pinned.expect(0, "vcpu0");
    // The load decides which of the two CPUs the vCPU gets.
    let (vcpus, helpers): (Vec<i32>, Vec<i32>) = tids(pid)
        .into_iter()
        .partition(|tid| is_vcpu(&comm(pid, *tid)));
    assert_eq!(vcpus.len(), 1, "{}", pinned.out);
    let own = allowed(vcpus[0]).unwrap();
    assert!(own == [0] || own == [1], "{}", pinned.out);
    let other = vec![1 - own[0]];
    for tid in helpers {
        assert_eq!(allowed(tid), Some(other.clone()), "{}", pinned.out);
    }
    place.pin(&[target, "--undo"]).expect(0, "threads restored");
    assert_eq!(seats(&[pid]), before);
    assert_eq!(place.journals(), 0);
    killed_and_recovered(place, target, &[pid], &before);
}

/// Pins for a long time, is killed, and the next start puts everything back.
fn killed_and_recovered(place: &TestDir, target: &str, pids: &[u32], before: &Seats) {
    let mut holder = place
        .pin_command(&[target, "--cpus", "1", "--for", "100"])
        .spawn()
        .unwrap();
    eventually("all threads are pinned", || {
        seats(pids).values().all(|cpus| *cpus == [1])
    });
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(seats(pids).values().all(|cpus| *cpus == [1]));
    assert_eq!(place.journals(), 1);
    let other = sleeper();
    let next = place.pin(&[&other.pid().to_string(), "--dry-run"]);
    next.expect(0, "put back what an earlier tare, which was killed");
    assert_eq!(seats(pids), *before);
    assert_eq!(place.journals(), 0);
}

#[test]
fn a_machine_of_tare_is_pinned_by_role_and_put_back() {
    if cpus().is_none() || !kvm() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("image", &guest::image("up", Then::Halt));
    let args = ["run", &image, "-d", "--name", "pinned", "--net", "none"];
    place.run(&args).expect(0, "pinned");
    let listed: serde_json::Value =
        serde_json::from_str(&place.run(&["ps", "--json"]).out).unwrap();
    let pid = u32::try_from(listed[0]["pid"].as_u64().unwrap()).unwrap();
    eventually("its threads are there", || {
        place.run(&["logs", "pinned"]).out.contains("up")
    });
    there_and_back(&place, "pinned", pid, |name| name.starts_with("vcpu"));
    place.run(&["stop", "pinned", "--time", "2"]).expect(0, "");
}

/// Without debug-threads: what a thread executes tells whether it is a vCPU.
/// A machine of one vCPU.
fn qemu_line(machine_type: MachineType, accelerator: Accelerator) -> CommandLine {
    let mut line = CommandLine::new(machine_type, accelerator, GuestSystem::LibraryOs, 1);
    line.memory_mib(64);
    line
}

#[test]
fn a_machine_of_qemu_is_pinned_by_role_and_put_back() {
    if cpus().is_none() || !kvm() || !qemu() {
        return;
    }
    if !geteuid().is_root() {
        skip("telling QEMU's threads apart needs root");
        return;
    }
    for (name, debug) in [("pin-named", "on"), ("pin-plain", "off")] {
        let place = TestDir::new();
        let image = place.file("image", &guest::image("up", Then::Halt));
        let log = place.file("console", b"");
        let mut line = qemu_line(MachineType::Microvm, Accelerator::Kvm);
        line.option("-name", format!("{name},debug-threads={debug}"))
            .kernel(Path::new(&image))
            .serial(&format!("file:{log}"));
        let mut command = Command::new(PROGRAM);
        line.apply(&mut command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let qemu = Living(ends_with_us(&mut command, Signal::KILL).spawn().unwrap());
        eventually("the guest prints", || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("up"))
        });
        if debug == "on" {
            let vcpu = |name: &str| name.starts_with("CPU ");
            there_and_back(&place, name, qemu.pid(), vcpu);
            continue;
        }
        let before = seats(&[qemu.pid()]);
        let pinned = place.pin(&[name, "--cpus", "0,1"]);
        pinned.expect(0, "vcpu0");
        let placed = seats(&[qemu.pid()]);
        let with = |cpu: usize| placed.values().filter(|cpus| **cpus == [cpu]).count();
        assert_eq!(with(0) + with(1), placed.len(), "{}", pinned.out);
        assert_eq!(with(0).min(with(1)), 1, "one vCPU: {}", pinned.out);
        place.pin(&[name, "--undo"]).expect(0, "restored");
        assert_eq!(seats(&[qemu.pid()]), before);
    }
}

/// It holds nothing of KVM: its threads' names tell.
#[test]
fn a_machine_of_the_translator_is_pinned_by_role_and_put_back() {
    if cpus().is_none() || !qemu() {
        return;
    }
    let place = TestDir::new();
    let mut line = qemu_line(MachineType::Q35, Accelerator::Tcg);
    line.option("-name", "pin-tcg,debug-threads=on").flag("-S");
    let mut command = Command::new(PROGRAM);
    line.apply(&mut command)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let qemu = Living(ends_with_us(&mut command, Signal::KILL).spawn().unwrap());
    let is_vcpu = |name: &str| name.starts_with("CPU ");
    eventually("its vCPU has a thread", || {
        let tids = tids(qemu.pid()).into_iter();
        tids.filter(|tid| is_vcpu(&comm(qemu.pid(), *tid))).count() == 1
    });
    there_and_back(&place, "pin-tcg", qemu.pid(), is_vcpu);
    for target in ["pin-tcg".to_owned(), qemu.pid().to_string()] {
        place
            .run(&["why", &target])
            .expect(51, "runs in QEMU without KVM (TCG)");
    }
}

/// `tare ps` shows the process that waits for QEMU.
#[test]
fn a_machine_in_qemu_is_found_by_the_process_that_tare_ps_shows() {
    if cpus().is_none() || !qemu() {
        return;
    }
    let place = TestDir::new();
    let image = place.file("image", &guest::image("up", Then::Halt));
    let args: Vec<&str> = ["run", &image, "-d", "--name", "inner", "--net", "none"]
        .into_iter()
        .chain(["--engine", "qemu"])
        .collect();
    place.run(&args).expect(0, "inner");
    let listed: serde_json::Value =
        serde_json::from_str(&place.run(&["ps", "--json"]).out).unwrap();
    let pid = u32::try_from(listed[0]["pid"].as_u64().unwrap()).unwrap();
    let (shown, before) = (pid.to_string(), seats(&[pid]));
    let planned = place.pin(&[&shown, "--cpus", "0,1", "--dry-run"]);
    planned.expect(0, "vcpu0");
    place.pin(&[&shown, "--cpus", "1"]).expect(0, "vcpu0");
    // By either name: it is one machine.
    place
        .pin(&["inner", "--undo"])
        .expect(0, "threads restored");
    assert_eq!(seats(&[pid]), before, "who waits for QEMU was not moved");
    place.run(&["stop", "inner", "--time", "2"]).expect(0, "");
}

fn qemu() -> bool {
    let is_there = installed(PROGRAM);
    if !is_there {
        skip("qemu-system-x86_64 is not installed");
    }
    is_there
}

fn firecracker() -> Option<PathBuf> {
    let peers = std::env::var_os("TARE_PEERS")
        .map(PathBuf::from)
        .unwrap_or_else(|| std::env::temp_dir().join("peers/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path)
        .chain([peers])
        .map(|folder| folder.join("firecracker"));
    found.find(|program| program.is_file())
}

#[test]
fn a_machine_of_firecracker_is_pinned_by_role_and_put_back() {
    if cpus().is_none() || !kvm() {
        return;
    }
    let Some(program) = firecracker() else {
        tare_vmtest::lacks("firecracker is not installed");
        return;
    };
    let place = TestDir::new();
    let image = place.file("image", &guest::image("up", Then::Halt));
    let config = format!(
        "{{\"boot-source\":{{\"kernel_image_path\":{image:?}}},\"drives\":[],\
         \"machine-config\":{{\"vcpu_count\":1,\"mem_size_mib\":64}}}}"
    );
    let config = place.file("config", config.as_bytes());
    let child = Command::new(program)
        .args(["--no-api", "--id", "pin-fc", "--config-file", &config])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let machine = Living(child.unwrap());
    eventually("its vCPU runs", || {
        tids(machine.pid())
            .iter()
            .any(|tid| comm(machine.pid(), *tid).starts_with("fc_vcpu"))
    });
    std::thread::sleep(Duration::from_millis(200));
    there_and_back(&place, "pin-fc", machine.pid(), |name| {
        name.starts_with("fc_vcpu")
    });
}

/// A container of runc with the host's own files, ended when dropped.
struct Runc {
    name: String,
    child: Child,
}

impl Runc {
    fn start(place: &TestDir, name: &str) -> Self {
        let bundle = place.path().join("bundle");
        fs::create_dir_all(bundle.join("rootfs")).unwrap();
        let spec = Command::new("runc")
            .arg("spec")
            .current_dir(&bundle)
            .status()
            .unwrap();
        assert!(spec.success());
        let path = bundle.join("config.json");
        let text = fs::read_to_string(&path).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
        config["process"]["terminal"] = false.into();
        config["process"]["args"] =
            serde_json::json!(["/bin/sh", "-c", "sleep 120 & sleep 121 & wait"]);
        config["linux"]["namespaces"] = serde_json::json!([{"type": "pid"}, {"type": "mount"}]);
        config["linux"]["cgroupsPath"] = format!("/{name}").into();
        config["linux"]["maskedPaths"] = serde_json::json!([]);
        config["linux"]["readonlyPaths"] = serde_json::json!([]);
        let own = ["/bin", "/lib", "/lib64", "/usr"]
            .iter()
            .filter(|folder| Path::new(folder).is_dir());
        let mut mounts: Vec<_> = own
            .map(|folder| {
                let options = ["rbind", "ro"];
                serde_json::json!({
                    "destination": folder, "type": "bind", "source": folder, "options": options
                })
            })
            .collect();
        mounts.push(serde_json::json!({"destination": "/proc", "type": "proc", "source": "proc"}));
        config["mounts"] = mounts.into();
        config["root"]["readonly"] = false.into();
        config.as_object_mut().unwrap().remove("hostname");
        fs::write(&path, config.to_string()).unwrap();
        let log = fs::File::create(place.path().join("runc.log")).unwrap();
        let child = Command::new("runc")
            .args(["run", "--bundle", bundle.to_str().unwrap(), name])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let runc = Self {
            name: name.to_owned(),
            child,
        };
        let log = place.path().join("runc.log");
        eventually("the container runs", || {
            let text = fs::read_to_string(&log).unwrap();
            assert!(text.is_empty(), "{text}");
            // While it starts there are three too, runc's own.
            let of = |pid: &u32| comm(*pid, i32::try_from(*pid).unwrap());
            let mut names: Vec<_> = runc.pids().iter().map(of).collect();
            names.sort();
            names == ["sh", "sleep", "sleep"]
        });
        runc
    }

    fn cpuset(&self) -> PathBuf {
        Path::new("/sys/fs/cgroup/cpuset").join(&self.name)
    }

    fn pids(&self) -> Vec<u32> {
        let folders = [self.cpuset(), Path::new("/sys/fs/cgroup").join(&self.name)];
        let text = folders
            .iter()
            .find_map(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok())
            .unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl Drop for Runc {
    fn drop(&mut self) {
        let _ = Command::new("runc")
            .args(["delete", "--force", &self.name])
            .status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_container_is_pinned_by_its_cpuset_and_put_back() {
    if cpus().is_none() {
        return;
    }
    if !geteuid().is_root() || !installed("runc") {
        skip("containers need root and runc");
        return;
    }
    let place = TestDir::new();
    let name = format!("tare-pin-{}", std::process::id());
    let runc = Runc::start(&place, &name);
    let pids = runc.pids();
    put(i32::try_from(pids[1]).unwrap(), &[0]);
    let before = seats(&pids);
    let bounds = || fs::read_to_string(runc.cpuset().join("cpuset.cpus")).ok();
    let bounds_before = bounds();
    let pinned = place.pin(&[&name, "--cpus", "1"]);
    pinned.expect(0, "1");
    assert!(
        seats(&pids).values().all(|cpus| *cpus == [1]),
        "{}",
        pinned.out
    );
    if bounds_before.is_some() {
        assert_eq!(bounds().as_deref(), Some("1\n"));
        assert!(pinned.out.contains("The cgroup"), "{}", pinned.out);
    }
    place.pin(&[&name, "--undo"]).expect(0, "restored");
    assert_eq!(seats(&pids), before);
    assert_eq!(bounds(), bounds_before);
    killed_and_recovered(&place, &name, &pids, &before);
    assert_eq!(bounds(), bounds_before);
    let folder = runc.cpuset();
    if folder.is_dir() {
        let by_path = place.pin(&[folder.to_str().unwrap(), "--dry-run"]);
        by_path.expect(0, "TID");
    }
}

#[test]
fn a_placement_ends_with_its_time_with_a_signal_and_when_asked() {
    if cpus().is_none() {
        return;
    }
    let place = TestDir::new();
    let living = sleeper();
    let pid = living.pid().to_string();
    let before = seats(&[living.pid()]);
    let timed = place.pin(&[&pid, "--cpus", "1", "--for", "0.3"]);
    timed.expect(0, "placement of 1 thread restored");
    assert_eq!(seats(&[living.pid()]), before);
    let hold = || {
        let holder = place
            .pin_command(&[&pid, "--cpus", "1", "--for", "100"])
            .spawn()
            .unwrap();
        eventually("it is pinned", || {
            seats(&[living.pid()]).values().all(|cpus| *cpus == [1])
        });
        holder
    };
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let holder = hold();
        let holder_pid = Pid::from_raw(i32::try_from(holder.id()).unwrap()).unwrap();
        kill_process(holder_pid, signal).unwrap();
        end(holder).expect(code, "restored");
        assert_eq!(seats(&[living.pid()]), before);
    }
    let holder = hold();
    // It would put back what the holder has made.
    place
        .pin(&[&pid, "--cpus", "0"])
        .expect(67, "holds a placement");
    place.pin(&[&pid, "--undo"]).expect(0, "");
    end(holder).expect(143, "restored");
    assert_eq!(seats(&[living.pid()]), before);
    assert_eq!(place.journals(), 0);
}

/// Set for the copy of this program that keeps starting threads.
const RESTLESS: &str = "TARE_TEST_RESTLESS";

/// The copy: threads that live for a second, a new one every few milliseconds.
#[test]
#[ignore = "a helper of the next test"]
fn keeps_starting_threads() {
    while std::env::var_os(RESTLESS).is_some() {
        std::thread::spawn(|| std::thread::sleep(Duration::from_secs(1)));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// That copy, when it has started some.
fn restless() -> Living {
    let restless = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "keeps_starting_threads"])
        .env(RESTLESS, "1")
        .stdout(Stdio::null())
        .spawn();
    let restless = Living(restless.unwrap());
    eventually("it starts threads", || tids(restless.pid()).len() > 20);
    restless
}

/// New threads delay the end of its first placement, so that most signals arrive before it waits.
#[test]
fn a_signal_while_threads_are_placed_has_its_own_code() {
    let Some(all) = cpus() else { return };
    let place = TestDir::new();
    let restless = restless();
    let pid = restless.pid();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)].repeat(4) {
        let holder = place
            .pin_command(&[&pid.to_string(), "--cpus", "1", "--for", "100"])
            .spawn()
            .unwrap();
        eventually("the first threads are placed", || {
            seats(&[pid]).values().any(|cpus| *cpus == [1])
        });
        let holder_pid = Pid::from_raw(i32::try_from(holder.id()).unwrap()).unwrap();
        kill_process(holder_pid, signal).unwrap();
        end(holder).expect(code, "restored");
        assert!(seats(&[pid]).values().all(|cpus| *cpus == all));
    }
    assert_eq!(place.journals(), 0);
}

#[test]
fn threads_that_begin_while_it_works_are_caught_and_freed() {
    let Some(all) = cpus() else { return };
    let place = TestDir::new();
    let restless = restless();
    let pid = restless.pid();
    let holder = place
        .pin_command(&[&pid.to_string(), "--cpus", "1", "--for", "4"])
        .spawn()
        .unwrap();
    let mut known = std::collections::BTreeSet::new();
    eventually("two generations are on one CPU", || {
        let seats = seats(&[pid]);
        let pinned = seats.values().all(|cpus| *cpus == [1]);
        if pinned {
            known.extend(seats.keys().copied());
        }
        pinned && known.len() > 2 * seats.len()
    });
    end(holder).expect(0, "new threads were pinned too");
    assert!(seats(&[pid]).values().all(|cpus| *cpus == all));
    assert_eq!(place.journals(), 0);
}

#[test]
fn cpus_and_targets_that_are_not_there_are_refused() {
    let place = TestDir::new();
    let living = sleeper();
    let pid = living.pid().to_string();
    let before = seats(&[living.pid()]);
    place
        .pin(&[&pid, "--cpus", "1000"])
        .expect(23, "this host has no CPU 1000");
    for (list, message) in [
        ("3-1", "is reversed"),
        ("", "the list of CPUs is empty"),
        ("0,x", "is not a list of CPUs"),
        ("0-99999", "is beyond"),
    ] {
        place.pin(&[&pid, "--cpus", list]).expect(2, message);
    }
    place
        .pin(&["no-such-thing"])
        .expect(53, "no virtual machine, container or process");
    place.pin(&["1073741824"]).expect(53, "1073741824");
    place
        .pin(&[&pid, "--undo"])
        .expect(53, "nothing is pinned for");
    place
        .pin(&[&pid, "--undo", "--for", "1"])
        .expect(2, "cannot be used with");
    let file = place.file("state", b"in the way");
    let blocked = place.pin(&[&pid, "--cpus", "0"]);
    blocked.expect(68, &file);
    assert_eq!(seats(&[living.pid()]), before);
}

/// A journal of an earlier boot, or of a process whose ID another one has now, changes no
/// process.
#[test]
fn a_recycled_number_is_left_alone() {
    if cpus().is_none() {
        return;
    }
    let place = TestDir::new();
    let living = sleeper();
    let (pid, before) = (living.pid(), seats(&[living.pid()]));
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let folder = place.state().join("placements");
    for boot in [boot.trim(), "another"] {
        fs::create_dir_all(&folder).unwrap();
        let begin = format!(
            "{{\"begin\":{{\"boot\":\"{boot}\",\"asked\":\"x\",\"key\":\"process {pid} 5\",\"holder\":1}}}}"
        );
        let thread = format!(
            "{{\"thread\":{{\"pid\":{pid},\"tid\":{pid},\"started_ticks\":5,\"before\":\"0\",\"wanted\":\"0-1\"}}}}"
        );
        fs::write(
            folder.join("1-1.jsonl"),
            format!("{begin}\n{thread}\n{{\"thr"),
        )
        .unwrap();
        place
            .pin(&[&pid.to_string(), "--dry-run"])
            .expect(0, "sleep");
        assert_eq!(seats(&[pid]), before);
        assert_eq!(place.journals(), 0);
    }
}
