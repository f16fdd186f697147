//! `tare why` and `tare top` on real machines that burn CPU time in one way: the
//! `storm` image in Tare's monitor and in QEMU with KVM.
//!
//! They need /dev/kvm, BPF, `tare-monitor` beside `tare` and the image (`cargo
//! xtask guests`), and SKIP without; with TARE_REQUIRE_KVM=1 a skip fails. Each
//! takes the whole computer for itself: they run one after the other.
#![allow(clippy::unwrap_used)]

#[path = "why/contention.rs"]
mod contention;
#[path = "why/counts.rs"]
mod counts;
#[path = "why/crowd.rs"]
mod crowd;
#[path = "why/elsewhere.rs"]
mod elsewhere;
#[path = "why/helpers.rs"]
mod helpers;
#[path = "why/host.rs"]
mod host;
#[path = "why/matrix.rs"]
mod matrix;
#[path = "why/qemu.rs"]
mod qemu;
#[path = "why/quota.rs"]
mod quota;
#[path = "why/remedies.rs"]
mod remedies;
mod support;
#[path = "why/taps.rs"]
mod taps;
#[path = "why/top.rs"]
mod top;
#[path = "why/unified.rs"]
mod unified;

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use qemu::Qemu;
use rustix::process::{Pid, geteuid};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;
use support::needs::{built, kvm, skip};
use support::{CommandOutput, TestDir, eventually, free_port, installed};

/// How long a machine is watched.
const SECONDS: &str = "1.5";

/// Attempts to observe a machine whose CPU others may want.
const ATTEMPTS: usize = 5;
/// Part of the breakdown, as a share of a core, by which findings may be too low or too high.
const UNEXPLAINED: f64 = 0.01;

/// One at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all of these need: one at a time, the image.
fn ready() -> Option<(MutexGuard<'static, ()>, PathBuf)> {
    let alone = alone();
    if !geteuid().is_root() {
        skip("observing machines needs root");
        return None;
    }
    let image = kvm().then(|| built("storm")).flatten()?;
    Some((alone, image))
}

/// The same where this program is installed.
fn ready_with(program: &str) -> Option<(MutexGuard<'static, ()>, PathBuf)> {
    if !installed(program) {
        skip(format!("{program} is not installed"));
        return None;
    }
    ready()
}

/// A machine of Tare's in the background, stopped when dropped.
struct RunningMachine<'a> {
    place: &'a TestDir,
    name: String,
}

impl<'a> RunningMachine<'a> {
    /// Starts the image with this command line, and waits until it does what it should.
    fn start(place: &'a TestDir, image: &Path, cmdline: &str, more: &[&str]) -> Self {
        let name = format!("storm-{}", place.run_directories().len());
        let mut args = vec!["run", image.to_str().unwrap(), "-d", "--name", &name];
        args.extend(["--cmdline", cmdline]);
        args.extend(more);
        if !more.contains(&"--net") && !more.contains(&"-p") {
            args.extend(["--net", "none"]);
        }
        place.run(&args).expect(0, &name);
        let machine = Self { place, name };
        eventually("the guest begins", || {
            place.run(&["logs", &machine.name]).out.contains("storm\":")
        });
        machine
    }

    fn pid(&self) -> u32 {
        let listed: Value = serde_json::from_str(&self.place.run(&["ps", "--json"]).out).unwrap();
        let rows = listed.as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == *self.name).unwrap();
        u32::try_from(row["pid"].as_u64().unwrap()).unwrap()
    }

    /// Thread IDs of its vCPUs.
    fn vcpus(&self) -> Vec<i32> {
        threads(self.pid(), "vcpu")
    }
}

impl Drop for RunningMachine<'_> {
    fn drop(&mut self) {
        self.place.run(&["stop", &self.name, "--time", "2"]);
    }
}

/// Threads of a process whose names begin so.
fn threads(pid: u32, name: &str) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .map(|task| task.unwrap().path())
        .filter(|task| {
            let comm = std::fs::read_to_string(task.join("comm"));
            comm.is_ok_and(|comm| comm.starts_with(name))
        })
        .map(|task| task.file_name().unwrap().to_str().unwrap().parse().unwrap())
        .collect()
}

fn pin(tid: i32, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(Pid::from_raw(tid), &set).unwrap();
}

/// Does something in a thread until dropped.
struct Meanwhile(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Meanwhile {
    fn new(mut act: impl FnMut() + Send + 'static) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                act();
            }
        });
        Self(ended, Some(thread))
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().map(std::thread::JoinHandle::join);
    }
}

/// A process that uses as much of a CPU as it gets, until it is dropped. It has a separate session:
/// the scheduler divides a CPU between sessions first (`CONFIG_SCHED_AUTOGROUP`), and three threads
/// of one would get no more than the machine.
struct Hog(Child);

impl Hog {
    fn new(cpu: usize) -> Self {
        let child = Command::new("setsid")
            .args(["sh", "-c", "while :; do :; done"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        pin(child.id().cast_signed(), cpu);
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Number of `clock_nanosleep` on x86-64.
const CLOCK_NANOSLEEP: u32 = 230;

/// Returns when the window of this `tare why` has begun: its programs are attached, and it sleeps,
/// which it does only then.
fn until_it_watches(watching: &Child) {
    let descriptors = format!("/proc/{}/fd", watching.id());
    eventually("its programs are attached", || {
        let all = std::fs::read_dir(&descriptors).into_iter().flatten();
        let mut links = all.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        links.any(|link| link.to_string_lossy().contains("bpf_link"))
    });
    let call = format!("/proc/{}/syscall", watching.id());
    let sleep = format!("{CLOCK_NANOSLEEP} ");
    eventually("its window has begun", || {
        std::fs::read_to_string(&call).is_ok_and(|call| call.starts_with(&sleep))
    });
}

/// The report of `tare why` about a machine.
fn why(place: &TestDir, target: &str) -> Value {
    let ended = place.run(&["why", target, "--seconds", SECONDS, "--json"]);
    ended.expect(0, "\"schema\": 1");
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    document["machines"][0].clone()
}

/// The finding of this cause, if there is one.
fn found<'a>(machine: &'a Value, cause: &str) -> Option<&'a Value> {
    let findings = machine["findings"].as_array().unwrap();
    findings.iter().find(|found| found["cause"] == cause)
}

/// Observes again, a few times, where a machine got too little of a CPU to show its activity.
#[track_caller]
fn expect_cause(place: &TestDir, target: &str, cause: &str) -> Value {
    let mut told = why(place, target);
    for _ in 1..ATTEMPTS {
        if found(&told, cause).is_some() {
            break;
        }
        told = why(place, target);
    }
    expect_found(&told, cause);
    told
}

/// Checks that the finding has a remedy, and that its share is within the account. Whether it is
/// the largest depends on the host's load: recorded accounts check the order.
#[track_caller]
fn expect_found(machine: &Value, cause: &str) {
    let told = serde_json::to_string_pretty(&machine["findings"]).unwrap();
    let found = found(machine, cause).unwrap_or_else(|| panic!("no {cause}: {told}"));
    assert!(!found["remedy"].as_str().unwrap().is_empty(), "{told}");
    expect_covered(machine);
    let cost = machine["observer_share"].as_f64().unwrap();
    println!("{cause}: {} watching {:.4}", found["what"], cost);
    record(machine, cause);
}

/// The findings explain each part of the breakdown, and nothing beyond it.
#[track_caller]
fn expect_covered(machine: &Value) {
    let breakdown = machine["breakdown"].as_object().unwrap();
    for (part, share) in breakdown.iter().filter(|(part, _)| *part != "total") {
        let findings = machine["findings"].as_array().unwrap().iter();
        let parts = findings.map(|found| found["parts"][part].as_f64().unwrap());
        let (share, explained) = (share.as_f64().unwrap(), parts.sum::<f64>());
        assert!(
            (share - explained).abs() <= UNEXPLAINED,
            "{part}: {share}, {explained}: {}",
            machine["findings"]
        );
    }
}

/// A sum over the vCPUs of a time in the account, share of a core.
fn vcpus_share(machine: &Value, of: impl Fn(&Value) -> &Value) -> f64 {
    let account = &machine["account"];
    let threads = account["threads"].as_array().unwrap().iter();
    let vcpus = threads.filter(|thread| !thread["vcpu"].is_null());
    let times = vcpus.map(|thread| of(thread).as_f64().unwrap());
    times.sum::<f64>() / account["window_ns"].as_f64().unwrap()
}

#[track_caller]
fn expect_share(found: &Value, share: f64) {
    let told = found["share"].as_f64().unwrap();
    assert!((told - share).abs() < 1e-6, "{share}: {found}");
}

/// With TARE_RECORD=1 the account becomes one that `crates/why` is tested on.
#[track_caller]
fn record(machine: &Value, cause: &str) {
    if std::env::var_os("TARE_RECORD").is_none() {
        return;
    }
    let causes = machine["findings"].as_array().unwrap().iter();
    let first = causes
        .map(|found| found["cause"].as_str().unwrap())
        .find(|first| *first == cause || *first != "steal");
    assert_eq!(first, Some(cause), "record it on a computer with free CPUs");
    let accounts = concat!(env!("CARGO_MANIFEST_DIR"), "/../why/tests/accounts");
    let monitor = machine["monitor"].as_str().unwrap();
    let path = Path::new(accounts).join(format!("{cause}-{monitor}.json"));
    std::fs::create_dir_all(accounts).unwrap();
    let mut account = machine["account"].clone();
    // Paths of this computer stay private.
    account["vm"]["command"] = Value::Array(Vec::new());
    std::fs::write(path, serde_json::to_vec(&account).unwrap()).unwrap();
}

/// A case under Tare.
fn tare_case(cmdline: &str, more: &[&str], cause: &str) {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, cmdline, more);
    expect_cause(&place, &machine.name, cause);
}

/// A case in QEMU.
fn qemu_case(model: &str, cmdline: &str, cause: &str) {
    let Some((_alone, image)) = ready_with("qemu-system-x86_64") else {
        return;
    };
    let place = TestDir::new();
    let qemu = Qemu::start(&place, &image, model, cmdline, &[]);
    let machine = expect_cause(&place, &qemu.pid().to_string(), cause);
    assert_eq!(machine["monitor"], "qemu");
}

#[test]
fn why_names_the_hpet_of_qemu() {
    qemu_case("pc", "mode=hpet hz=1000", "hpet");
}

#[test]
fn why_speaks_of_libvirts_machines_in_its_language() {
    let Some((_alone, image)) = ready_with("qemu-system-x86_64") else {
        return;
    };
    let place = TestDir::new();
    // What libvirt gives every QEMU.
    let socket = format!(
        "socket,id=charmonitor,path={},server=on,wait=off",
        place.file("monitor.sock", b"")
    );
    let monitor = ["-chardev", &socket, "-mon"];
    let monitor = [
        &monitor[..],
        &["chardev=charmonitor,id=monitor,mode=control"],
    ]
    .concat();
    let qemu = Qemu::start(&place, &image, "pc", "mode=hpet hz=1000", &monitor);
    let machine = expect_cause(&place, &qemu.pid().to_string(), "hpet");
    assert_eq!(machine["monitor"], "libvirt");
    let told = machine["findings"].to_string();
    assert!(told.contains("<timer name='hpet' present='no'/>"), "{told}");
}

#[test]
fn why_names_the_pit_of_qemu() {
    qemu_case("pc", "mode=pit hz=1000", "pit");
}

#[test]
fn why_names_the_rtc_of_qemu() {
    qemu_case("q35", "mode=rtc hz=1024", "rtc");
}

#[test]
fn why_names_a_periodic_guest_tick_in_both_monitors() {
    tare_case("mode=tick hz=250", &["--halt", "never"], "periodic_tick");
    qemu_case("q35", "mode=tick hz=1000", "periodic_tick");
}

#[test]
fn why_names_a_guest_that_spins() {
    tare_case("mode=spin", &[], "guest_spins");
}

#[test]
fn why_names_a_storm_of_interrupts_between_vcpus() {
    tare_case("mode=ipi", &["--cpus", "2"], "ipi_storm");
}

#[test]
fn why_names_the_port_that_a_guest_hammers() {
    tare_case("mode=exit kind=pio_in_user", &[], "exits");
}

#[test]
fn why_names_halt_polling_that_loses() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    // Two waits within the window make it grow, one beyond it wastes it.
    let cmdline = "mode=sleep us=4000,4000,20000";
    let machine = RunningMachine::start(&place, &image, cmdline, &["--halt", "poll=5000000"]);
    // KVM does not poll while another task wants the CPU.
    for _ in 0..ATTEMPTS {
        let told = why(&place, &machine.name);
        let halts = |ns: &'static str| vcpus_share(&told, move |t| &t["vcpu"]["halts"][ns]);
        let (lost, won) = (halts("poll_wasted_ns"), halts("poll_success_ns"));
        if lost <= won || lost + won < UNEXPLAINED {
            continue;
        }
        expect_found(&told, "polling_loses");
        let found = found(&told, "polling_loses").unwrap();
        assert!(found["remedy"].as_str().unwrap().contains("halt=never"));
        return expect_share(found, lost + won);
    }
    tare_vmtest::lacks("this computer is too busy for halt polling");
}

#[test]
fn why_names_interrupts_of_a_device() {
    let Some((_alone, image)) = ready_with("passt") else {
        return;
    };
    let place = TestDir::new();
    let port = free_port();
    let forward = format!("{port}:9/udp");
    let machine = RunningMachine::start(&place, &image, "mode=net", &["-p", &forward]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let _packets = Meanwhile::new(move || {
        socket.send_to(&[0; 32], ("127.0.0.1", port)).ok();
        std::thread::sleep(Duration::from_millis(5));
    });
    let told = expect_cause(&place, &machine.name, "device_interrupts");
    // The process that forwards the packets works for this machine.
    let threads = told["account"]["threads"].as_array().unwrap().iter();
    let mut helpers = threads.filter(|thread| thread["role"] == "helper");
    assert!(helpers.any(|thread| thread["name"].as_str().unwrap().starts_with("passt")));
}

#[test]
fn why_names_a_busy_thread_of_the_monitor() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, "mode=quiet", &[]);
    let socket = place.run_root().join(&machine.name).join("control.sock");
    let mut client = tare_control::client::Client::new(socket);
    let _asking = Meanwhile::new(move || {
        client.stats().ok();
    });
    expect_cause(&place, &machine.name, "emulator_thread");
}

#[test]
fn why_names_a_vcpu_that_waits_for_a_cpu() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, "mode=spin", &[]);
    machine.vcpus().into_iter().for_each(|tid| pin(tid, 0));
    let _hogs = [Hog::new(0), Hog::new(0), Hog::new(0)];
    let told = why(&place, &machine.name);
    expect_found(&told, "steal");
    let waited = vcpus_share(&told, |thread| &thread["off_cpu"]["run_delay_ns"]);
    expect_share(found(&told, "steal").unwrap(), waited);
}

#[test]
fn why_names_vcpus_pinned_on_top_of_each_other() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    if std::thread::available_parallelism().unwrap().get() < 2 {
        skip("a second CPU is needed");
        return;
    }
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, "mode=spin", &["--cpus", "3"]);
    machine.vcpus().into_iter().for_each(|tid| pin(tid, 1));
    expect_cause(&place, &machine.name, "pinned_together");
}

#[test]
fn an_unknown_machine_is_an_error() {
    let Some((_alone, _)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let own = std::process::id().to_string();
    place
        .run(&["why", &own])
        .expect(51, "runs no KVM virtual machine");
    place
        .run(&["why", "4194304"])
        .expect(51, "no process has the ID");
    place.run(&["why", "no-machine"]).expect(51, "no-machine");
    for seconds in ["0", "inf", "many", "86401"] {
        place
            .run(&["why", "--seconds", seconds])
            .expect(2, "--seconds");
    }
}

#[test]
fn prices_are_from_a_run_of_vmexit_and_said_to_be() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, "mode=exit kind=pio_in_user", &[]);
    let summary = |experiment: &str| {
        let figure = |name: &str, ns: f64| {
            serde_json::json!({"name": format!("exit_ns.{name}"), "unit": "ns",
                               "value": ns, "low": ns, "high": ns, "n": 1})
        };
        let document = serde_json::json!({
            "experiment": experiment, "started": "2026-01-02T03:04:05Z", "revision": "v0",
            "machine": {"cpu": "another", "cores": 1, "kernel": "6.1", "memory_mib": 1,
                        "kvm": why(&place, &machine.name)["execution"], "halt_poll_ns": null,
                        "load_average": null, "governor": null},
            "figures": [figure("control", 1_000.0), figure("pio_in_user", 8_777.0)],
        });
        place.file(experiment, document.to_string().as_bytes())
    };
    let tell = |prices: &str| {
        let args = [
            "why",
            &machine.name,
            "--seconds",
            SECONDS,
            "--prices",
            prices,
        ];
        place.run(&args)
    };
    let told = tell(&summary("vmexit"));
    told.expect(0, "7,777 ns each, as tare weigh vmexit measured");
    let text = told.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("on another host (another, Linux 6.1), 2026-01-02"),
        "{text}"
    );
    tell(&summary("kv")).expect(2, "is a run of kv, not of vmexit");
    tell("/nowhere").expect(2, "cannot read /nowhere");
    // Without one, the newest that was measured on such a computer, if there is any.
    let args = ["why", &machine.name, "--seconds", SECONDS];
    let document = place.run(&[&args[..], &["--json"]].concat());
    let document: Value = serde_json::from_str(&document.out).unwrap();
    let from = match document["prices"]["origin"].as_str().unwrap() {
        "built_in" => "ns each, by a built-in estimate",
        _ => "ns each, as tare weigh vmexit measured it",
    };
    // On a busy host the exits may be too few for a sentence in one window.
    let said = |_| place.run(&args).out.contains(from);
    assert!((0..5).any(said), "{from}");
}

#[test]
fn a_machine_that_ends_meanwhile_is_reported_until_then() {
    let Some((_alone, image)) = ready() else {
        return;
    };
    let place = TestDir::new();
    let machine = RunningMachine::start(&place, &image, "mode=spin", &[]);
    let watching = place.tare(&["why", &machine.name, "--seconds", "30"]);
    let watching = { watching }.spawn().unwrap();
    until_it_watches(&watching);
    // The report of what ends is as new as the last reading of its times.
    std::thread::sleep(Duration::from_millis(500));
    drop(machine);
    let ended: CommandOutput = support::end(watching);
    ended.expect(0, "then it ended");
    ended.expect(0, "Where the CPU time went: ");
}
