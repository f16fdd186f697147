//! Rates against the guest's own counts: a machine that waits until it is watched, and then does
//! each of several things a given number of times.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::qemu::{Qemu, resume};
use super::support::{TestDir, end, eventually, is_listening};
use super::{Hog, crowd, expect_cause, expect_covered, found, ready_with, until_it_watches, why};

/// How often the guest does each.
const TIMES: u64 = 3000;
/// How often it does so until it sleeps.
const TOGETHER: u64 = 10;
/// Part by which a rate may differ from what the guest does, beside chance.
const RATE: f64 = 0.05;
/// Attempts: on a busy host the guest may be resumed before the window begins, and a count of a part
/// of the time may be off by more than its chance, since several sleeps lie in one counted stretch.
const ATTEMPTS: usize = 5;

/// A kind of the account's exits, by some of its fields.
struct Did {
    kind: Value,
    times: u64,
    /// What booting and sleeping add at most.
    beside: u64,
}

fn did(kind: Value, times: u64) -> Did {
    Did {
        kind,
        times,
        beside: 0,
    }
}

impl Did {
    fn beside(self, beside: u64) -> Self {
        Self { beside, ..self }
    }
}

/// All that the image does with these kinds, of which QEMU wrote `printed` bytes to the serial port's
/// file. A latched reading of the PIT is a command and two bytes; one of the clock chip an index and a
/// byte. Each sleep sets the deadline too.
fn acts(printed: u64) -> Vec<Did> {
    let port = |port: u16, access: &str| serde_json::json!({"port": port, "access": access});
    let tsc_deadline = serde_json::json!({"exit": "msr", "index": 0x6e0, "access": "write"});
    vec![
        did(
            serde_json::json!({"device": "hpet", "access": "read"}),
            TIMES,
        ),
        did(port(0x43, "write"), TIMES),
        did(port(0x40, "read"), 2 * TIMES),
        did(port(0x71, "read"), TIMES),
        did(port(0x608, "read"), TIMES),
        did(serde_json::json!({"exit": "cpuid"}), TIMES).beside(200),
        did(tsc_deadline, TIMES).beside(4 * TIMES / TOGETHER + 100),
        did(port(0x3f8, "write"), printed).beside(20),
    ]
}

/// Exits of a kind in the account.
fn counted(account: &Value, kind: &Value) -> u64 {
    let is = |exit: &&Value| {
        let mut fields = kind.as_object().unwrap().iter();
        fields.all(|(name, value)| exit["kind"][name] == *value)
    };
    let threads = account["threads"].as_array().unwrap().iter();
    let exits = threads
        .filter_map(|thread| thread["vcpu"]["exits"].as_array())
        .flatten()
        .filter(is);
    exits.map(|exit| exit["count"].as_u64().unwrap()).sum()
}

/// The account of all that the guest did, and how many bytes it printed.
fn watched(place: &TestDir, image: &std::path::Path, cmdline: &str) -> (Value, u64) {
    let socket = place.path().join("qmp.sock");
    let qmp = format!("unix:{},server=on,wait=off", socket.display());
    let qemu = Qemu::spawn(place, image, "q35", cmdline, &["-S", "-qmp", &qmp]);
    eventually("QEMU listens", || is_listening(&socket));
    let pid = qemu.pid().to_string();
    let why = place
        .tare(&["why", &pid, "--seconds", "120", "--json"])
        .spawn()
        .unwrap();
    until_it_watches(&why);
    resume(&socket);
    qemu.until_it_prints("done\":");
    let asked = Pid::from_raw(why.id().cast_signed()).unwrap();
    kill_process(asked, Signal::INT).unwrap();
    let ended = end(why);
    ended.expect(0, "\"schema\": 1");
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    let printed = qemu.console().len() as u64;
    (document["machines"][0].clone(), printed)
}

#[test]
fn counts_are_what_the_guest_did() {
    let Some((_alone, image)) = ready_with("qemu-system-x86_64") else {
        return;
    };
    let kinds = "hpet,pit,rtc,pm,cpuid,tsc_deadline,print";
    let cmdline = format!("mode=exit kind={kinds} count={TIMES} us=20000");
    let mut off = Vec::new();
    for _ in 0..ATTEMPTS {
        let (machine, printed) = watched(&TestDir::new(), &image, &cmdline);
        let account = &machine["account"];
        expect_covered(&machine);
        // A budget may have counted a part of the time; what is done together is counted
        // together, or not.
        let is_whole = account["counted_share"] == 1.0;
        let chance = crowd::chance(&machine, (TIMES / TOGETHER) as f64);
        let most = if is_whole { 0.0 } else { RATE + chance };
        off.clear();
        for Did {
            kind,
            times,
            beside,
        } in acts(printed)
        {
            let counted = counted(account, &kind);
            let beyond = |truth: u64| counted as f64 / truth as f64 - 1.0;
            let more = beyond(times + beside);
            assert!(
                more <= most || !is_whole,
                "{kind}: {counted} of {times}: {account}"
            );
            if more > most || -beyond(times) > most {
                off.push(format!("{kind}: {counted} of {times}"));
            }
        }
        if off.is_empty() {
            return;
        }
    }
    panic!("{ATTEMPTS} attempts, in the last: {off:?}");
}

/// Where the local APIC is memory, an IPI is two writes, of which one sends it.
#[test]
fn ipis_in_xapic_mode_are_counted_once() {
    let Some((_alone, image)) = ready_with("qemu-system-x86_64") else {
        return;
    };
    let place = TestDir::new();
    let xapic = "host,-arch-capabilities,-cx16,-x2apic";
    let more = ["-smp", "2", "-cpu", xapic];
    let qemu = Qemu::start(&place, &image, "q35", "mode=ipi", &more);
    let told = expect_cause(&place, &qemu.pid().to_string(), "ipi_storm");
    let command = serde_json::json!({"exit": "apic", "register": 0x300, "access": "write"});
    let sent = counted(&told["account"], &command) as f64;
    let rate = &found(&told, "ipi_storm").unwrap()["rate"]["per_second"];
    let taken = rate.as_f64().unwrap() * told["seconds"].as_f64().unwrap();
    println!("{taken} of {sent}");
    let chance = crowd::chance(&told, sent);
    assert!(
        sent > 100.0 && (taken / sent - 1.0).abs() <= RATE + chance,
        "{taken} of {sent}: {told}"
    );
}

/// What `tare why` reports of a timer of QEMU's while others want all CPUs.
fn beside_hogs(model: &str, cmdline: &str) -> Option<Value> {
    let (_alone, image) = ready_with("qemu-system-x86_64")?;
    let place = TestDir::new();
    let qemu = Qemu::start(&place, &image, model, cmdline, &[]);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let _hogs: Vec<Hog> = (0..cpus).map(Hog::new).collect();
    let told = why(&place, &qemu.pid().to_string());
    expect_covered(&told);
    Some(told)
}

/// How often a line was raised.
fn raised(told: &Value, gsi: u32) -> f64 {
    let lines = told["account"]["lines"].as_array().unwrap().iter();
    let line = lines.filter(|line| line["line"] == serde_json::json!({"gsi": gsi}));
    line.map(|line| line["count"].as_f64().unwrap()).sum()
}

/// A line was raised as often as this came of it.
#[track_caller]
fn expect_raised(told: &Value, gsi: u32, truth: f64) {
    let ticks = raised(told, gsi);
    println!("line {gsi}: {ticks} of {truth}");
    let chance = crowd::chance(told, truth);
    assert!(
        (ticks / truth - 1.0).abs() <= RATE + chance + 2.0 / truth,
        "{ticks} of {truth}: {told}"
    );
}

/// KVM's PIT catches up with ticks that it could not deliver: some follow each other within
/// a few microseconds where others want the CPU. Now and then it raises its line again before the
/// guest has ended the tick before, and both are one interrupt: by the kernel's own events 3,079
/// times for 3,013 ends in 3 s beside two busy loops, and more often beside more. It has as many
/// ticks as it was asked for.
#[test]
fn ticks_through_the_8259_are_counted_as_often_as_the_guest_ends_them() {
    const HZ: f64 = 1000.0;
    // Ticks that come before the 8259 is initialised must not stop those after it.
    let Some(told) = beside_hogs("pc", &format!("mode=late-pic hz={HZ}")) else {
        return;
    };
    found(&told, "pit").unwrap_or_else(|| panic!("{told}"));
    let end = serde_json::json!({"port": 0x20, "access": "write"});
    let ends = counted(&told["account"], &end) as f64;
    let due = HZ * told["seconds"].as_f64().unwrap();
    expect_raised(&told, 0, raised(&told, 0).min(due).max(ends));
}

/// QEMU raises the clock chip's line again while the guest has not yet read why, and each time
/// at two interrupt controllers, between which it may wait for a CPU.
#[test]
fn ticks_of_the_rtc_are_counted_as_often_as_the_guest_answers_them() {
    let Some(told) = beside_hogs("q35", "mode=rtc hz=1024") else {
        return;
    };
    let answer = serde_json::json!({"port": 0x71, "access": "read"});
    expect_raised(&told, 8, counted(&told["account"], &answer) as f64);
}

/// Each pulse of the HPET is one interrupt of a local APIC.
#[test]
fn ticks_of_the_hpet_are_counted_as_often_as_they_are_delivered() {
    let Some(told) = beside_hogs("pc", "mode=hpet hz=1000") else {
        return;
    };
    let interrupts = told["account"]["interrupts"].as_array().unwrap().iter();
    let by_threads = interrupts.filter(|it| !it["injector"]["thread"].is_null());
    let delivered: f64 = by_threads.map(|it| it["count"].as_f64().unwrap()).sum();
    expect_raised(&told, 0, delivered);
}
