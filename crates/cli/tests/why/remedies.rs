//! Remedies, executed as they are printed, with what the machine does before and after.

use std::path::Path;
use std::process::Command;

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
    let cmdline = "mode=sleep us=4000,4000,20000";
    let machine = RunningMachine::start(&place, &image, cmdline, &["--halt", "poll=5000000"]);
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
        let args: Vec<&str> = option.split(' ').collect();
        let place = TestDir::new();
        let qemu = Qemu::spawn(&place, &image, model, cmdline, &args);
        qemu.until_it_prints(missing);
    }
}

/// SeaBIOS starts the USB controller for a mouse, and QEMU's main loop times its frames.
#[test]
fn the_options_that_take_usb_away_let_the_main_loop_rest() {
    let Some((_alone, image)) = ready_with("qemu-system-x86_64") else {
        return;
    };
    let place = TestDir::new();
    let seabios = ["-bios", "bios-256k.bin"];
    let usb = ["-device", "piix3-usb-uhci", "-device", "usb-mouse"];
    let all = [seabios, [usb[0], usb[1]], [usb[2], usb[3]]].concat();
    let qemu = Qemu::start(&place, &image, "pc", "mode=quiet", &all);
    let before = expect_cause(&place, &qemu.pid().to_string(), "emulator_thread");
    drop(qemu);
    let remedies = &found(&before, "emulator_thread").unwrap()["remedies"];
    let mut remedies = remedies.as_array().unwrap().iter();
    let restart = remedies.find(|one| one["kind"] == "restart").unwrap();
    let without: Vec<&str> = restart["without"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|option| option.as_str().unwrap().split(' '))
        .collect();
    assert_eq!(without, usb);
    let place = TestDir::new();
    let qemu = Qemu::start(&place, &image, "pc", "mode=quiet", &seabios);
    let after = why(&place, &qemu.pid().to_string());
    let part = |told: &Value| told["breakdown"]["emulator_threads"].as_f64().unwrap();
    let (before, after) = (part(&before), part(&after));
    println!("CPU of the main loop before {before:.4}, after {after:.4}");
    assert!(after < before / 4.0, "{after} of {before}");
}
