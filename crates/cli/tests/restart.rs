//! `tare run --restart`: machines of a few bytes that fail, in Tare's monitor and in QEMU.
//!
//! They need /dev/kvm and `tare-monitor` beside `tare`, or QEMU, and SKIP without; with
//! TARE_REQUIRE_KVM=1 a skip fails.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Child;

use serde_json::Value;
use support::guest::{self, Then};
use support::needs::{kvm, qemu};
use support::process::{self, is_gone};
use support::{TestDir, end, eventually, output, tiny};

const LINE: &str = "hello from ring 0";
/// What a guest that panics writes to its exit port.
const PANIC: u32 = 0x20;
/// What one that ends with the status 3 writes.
const STATUS_3: u32 = 0x310;
const TARE: &[&str] = &["--net", "none"];
const QEMU: &[&str] = &["--net", "none", "--engine", "qemu"];

/// A machine called `web` whose guest does this.
fn start(place: &TestDir, then: Then, args: &[&str]) -> Child {
    let image = place.file("tiny", &guest::image(LINE, then));
    let all = [&["run", &image, "--name", "web"], args].concat();
    place.tare(&all).spawn().unwrap()
}

/// The machine as `tare ps -a` lists it.
fn listed(place: &TestDir) -> Option<Value> {
    let json = place.run(&["ps", "-a", "--json"]).out;
    let rows: Value = serde_json::from_str(&json).ok()?;
    rows.as_array()?.first().cloned()
}

/// Waits until the machine has been started again, and has failed as before.
fn fails_again(place: &TestDir) {
    let before = restarts(place);
    eventually("it is started again, and fails as before", || {
        let row = listed(place).unwrap();
        let again = row["restarts"].as_u64().unwrap() > before + 1;
        again && row["state"] == "restarting" && row["exit_code"] == 70
    });
}

fn restarts(place: &TestDir) -> u64 {
    listed(place).map_or(0, |row| row["restarts"].as_u64().unwrap())
}

/// The process `field` of the machine's record.
fn process(place: &TestDir, field: &str) -> u32 {
    let row = listed(place).unwrap();
    let pid = match field {
        "pid" => row["pid"].as_u64(),
        _ => row[field]["pid"].as_u64(),
    };
    u32::try_from(pid.unwrap()).unwrap()
}

fn is_started_again_and_given_up(args: &[&str], ends: &[(u32, i32)]) {
    for (exit, code) in ends.iter().copied() {
        let place = TestDir::new();
        let args = [args, &["--restart", "on-failure:2"]].concat();
        let ended = end(start(&place, Then::Exit(exit), &args));
        ended.expect(code, "no further one");
        assert_eq!(ended.out.matches(LINE).count(), 3, "{ended:#?}");
        for said in ["restart 1 follows in 0.1 s", "restart 2 follows in 0.2 s"] {
            assert!(ended.err.contains(said), "{ended:#?}");
        }
        assert!(place.run_directories().is_empty());
    }
}

#[test]
fn a_machine_that_fails_is_started_again_until_it_is_given_up() {
    if kvm() {
        is_started_again_and_given_up(TARE, &[(PANIC, 70), (STATUS_3, 1)]);
    }
}

#[test]
fn a_machine_that_fails_in_qemu_is_started_again_until_it_is_given_up() {
    if qemu() {
        is_started_again_and_given_up(QEMU, &[(PANIC, 70)]);
    }
}

#[test]
fn a_machine_that_ends_well_or_cannot_start_is_not_started_again() {
    if !kvm() {
        return;
    }
    let args = [TARE, &["--restart", "on-failure"]].concat();
    for then in [Then::Exit(0x10), Then::PowerOff] {
        let place = TestDir::new();
        let ended = end(start(&place, then, &args));
        ended.expect(0, LINE);
        assert_eq!(ended.out.matches(LINE).count(), 1, "{ended:#?}");
        assert!(place.run_directories().is_empty());
    }
    for detached in [&[][..], &["-d"]] {
        let place = TestDir::new();
        let image = place.file("bad", &guest::truncated());
        let ended = place.run(&[&["run", &image], &args[..], detached].concat());
        ended.expect(12, "truncated");
        assert_eq!(ended.err.lines().count(), 1, "{ended:#?}");
        assert!(place.run_directories().is_empty());
    }
    let place = TestDir::new();
    place
        .run(&["run", "tiny", "--restart", "always"])
        .expect(2, "on-failure:N");
}

fn ends_when_it_is_asked_to(args: &[&str]) {
    let args = [args, &["--restart", "on-failure"]].concat();
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let place = TestDir::new();
        let child = start(&place, Then::Halt, &args);
        tiny::has_spoken(&place);
        output("kill", &[signal, &child.id().to_string()]);
        let ended = end(child);
        ended.expect(code, LINE);
        assert_eq!(ended.out.matches(LINE).count(), 1, "{ended:#?}");
        assert!(place.run_directories().is_empty());
    }
    let place = TestDir::new();
    let child = start(&place, Then::Halt, &args);
    tiny::has_spoken(&place);
    place.run(&["stop", "web"]).expect(0, "");
    let ended = end(child);
    assert_eq!(ended.out.matches(LINE).count(), 1, "{ended:#?}");
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_kept_machine_ends_when_it_is_asked_to() {
    if kvm() {
        ends_when_it_is_asked_to(TARE);
    }
}

#[test]
fn a_kept_machine_in_qemu_ends_when_it_is_asked_to() {
    if qemu() {
        ends_when_it_is_asked_to(QEMU);
    }
}

/// It fails again and again, and is stopped while it waits for its next start.
#[test]
fn a_machine_in_the_background_counts_its_restarts_and_is_stopped_between_two() {
    if !kvm() {
        return;
    }
    let place = TestDir::new();
    let args = [TARE, &["--restart", "on-failure", "-d"]].concat();
    // One that ran for ten seconds, as many writes take on a busy host, would wait for 0.1 s again.
    let started = end(start(&place, Then::Exit(PANIC), &args));
    assert_eq!(
        (started.code, started.out.as_str()),
        (Some(0), "web\n"),
        "{started:#?}"
    );
    let keeper = process(&place, "keeper");
    // By then it waits for seconds.
    let mut restarts = 0;
    eventually("it waits for its sixth restart or a later one", || {
        let Some(row) = listed(&place) else {
            return false;
        };
        restarts = row["restarts"].as_u64().unwrap() as usize;
        row["state"] == "restarting" && row["exit_code"] == 70 && restarts >= 6
    });
    let shown = place.run(&["ps"]).out;
    let count = format!("({restarts} restarts)");
    assert!(
        shown.contains("after 70") && shown.contains(&count),
        "{shown}"
    );
    let log = place.run(&["logs", "web"]).out;
    assert_eq!(log.matches(LINE).count(), restarts, "{log}");
    assert!(
        log.contains("exit code 70: restart 3 follows in 0.4 s"),
        "{log}"
    );
    place.run(&["stop", "web"]).expect(0, "");
    is_gone(keeper);
    assert!(place.run_directories().is_empty());
}

/// A guest may write the first bytes of another format into its disk.
#[test]
fn a_machine_is_started_again_whatever_its_guest_wrote_to_its_disk() {
    if !kvm() {
        return;
    }
    let place = TestDir::new();
    let disk = place.file("d.img", &[0; 1 << 16]);
    let args = [TARE, &["--restart", "on-failure", "-d", "--disk", &disk]].concat();
    let started = end(start(&place, Then::ExitAfter(PANIC, 100_000), &args));
    assert_eq!(started.code, Some(0), "{started:#?}");
    let file = fs::File::options().write(true).open(&disk).unwrap();
    file.write_all_at(b"QFI\xfb", 0).unwrap();
    fails_again(&place);
    place.run(&["stop", "web"]).expect(0, "");
    let image = place.file("tiny", &guest::image(LINE, Then::Halt));
    let anew = place.run(&["run", &image, "--net", "none", "--disk", &disk]);
    anew.expect(35, "is a qcow2 image");
    anew.expect(35, "format=raw");
}

#[test]
fn a_machine_that_is_given_up_in_the_background_leaves_log_and_exit_code() {
    if !kvm() {
        return;
    }
    let place = TestDir::new();
    let args = [TARE, &["--restart", "on-failure:1", "-d"]].concat();
    let started = end(start(&place, Then::ExitAfter(PANIC, 100_000), &args));
    assert_eq!(started.code, Some(0), "{started:#?}");
    eventually("it is given up", || {
        place.run(&["ps", "-a"]).out.contains("exit 70")
    });
    assert_eq!(restarts(&place), 1);
    let log = place.run(&["logs", "web"]).out;
    assert_eq!(log.matches(LINE).count(), 2, "{log}");
    place.run(&["rm", "web"]).expect(0, "");
    assert!(place.run_directories().is_empty());
}

#[test]
fn a_machine_that_is_killed_is_started_again_and_stopped() {
    if !kvm() {
        return;
    }
    let place = TestDir::new();
    let args = [TARE, &["--restart", "on-failure", "-d"]].concat();
    let started = end(start(&place, Then::Halt, &args));
    assert_eq!(started.code, Some(0), "{started:#?}");
    let (first, keeper) = (process(&place, "pid"), process(&place, "keeper"));
    assert_ne!(first, keeper);
    output("kill", &["-KILL", &first.to_string()]);
    eventually("another process runs it", || {
        let row = listed(&place).unwrap();
        row["state"] == "running" && row["restarts"] == 1 && row["pid"] != row["keeper"]["pid"]
    });
    tiny::has_spoken(&place);
    place.run(&["stop", "web"]).expect(0, "");
    is_gone(keeper);
    is_gone(first);
    assert!(place.run_directories().is_empty());
}

/// As a package manager does it: a new file takes the name of the old one.
#[test]
fn a_machine_is_started_again_after_an_upgrade_of_tare() {
    if !kvm() {
        return;
    }
    let place = TestDir::new();
    let installed = place.path().join("bin");
    fs::create_dir(&installed).unwrap();
    let install = || {
        for name in ["tare", "tare-monitor"] {
            let built = Path::new(env!("CARGO_BIN_EXE_tare")).with_file_name(name);
            let new = installed.join(format!("{name}.new"));
            // Another process: a file that this one had open for writing could not be executed while
            // a test beside this one starts a program.
            output("cp", &[built.to_str().unwrap(), new.to_str().unwrap()]);
            fs::rename(new, installed.join(name)).unwrap();
        }
    };
    install();
    let image = place.file("tiny", &guest::image(LINE, Then::ExitAfter(PANIC, 100_000)));
    let args = [
        "run",
        &image,
        "--name",
        "web",
        "--restart",
        "on-failure",
        "-d",
    ];
    let tare = place.tare(&[&args[..], TARE].concat());
    let started = end(process::of(&installed.join("tare"), &tare).spawn().unwrap());
    assert_eq!(started.code, Some(0), "{started:#?}");
    install();
    fails_again(&place);
    place.run(&["stop", "web"]).expect(0, "");
}

/// SIGKILL of the keeper, which no process can handle.
fn ends_with_its_keeper(args: &[&str]) {
    for detached in [&[][..], &["-d"]] {
        let place = TestDir::new();
        let args = [args, &["--restart", "on-failure"], detached].concat();
        let child = start(&place, Then::Halt, &args);
        tiny::has_spoken(&place);
        let mut foreground = Some(child);
        if !detached.is_empty() {
            let started = foreground.take().map(end).unwrap();
            assert_eq!(started.code, Some(0), "{started:#?}");
        }
        let (machine, keeper) = (process(&place, "pid"), process(&place, "keeper"));
        assert_ne!(machine, keeper);
        output("kill", &["-KILL", &keeper.to_string()]);
        is_gone(keeper);
        is_gone(machine);
        drop(foreground.map(end));
        // QEMU, and whatever else has the lock, ends as well.
        eventually("the machine is not listed as one that runs", || {
            place.run(&["ps", "--json"]).out == "[]\n"
        });
        assert!(place.run(&["logs", "web"]).out.contains(LINE));
        // Its name is free again.
        let again = start(&place, Then::Exit(0x10), &["--net", "none"]);
        end(again).expect(0, LINE);
    }
}

#[test]
fn a_machine_ends_with_a_keeper_that_is_killed() {
    if kvm() {
        ends_with_its_keeper(TARE);
    }
}

#[test]
fn a_machine_in_qemu_ends_with_a_keeper_that_is_killed() {
    if qemu() {
        ends_with_its_keeper(QEMU);
    }
}
