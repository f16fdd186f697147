//! Every way in which a run ends: exit code, message, nothing left behind.

mod support;

use rustix::process::Signal;
use serde_json::json;
use support::{Rig, bare, code, kvm};
use tare_abi::exit::GuestExit;
use tare_abi::ports;
use tare_host::signals::is_ignored;

#[test]
fn an_application_that_succeeds_ends_with_0_and_says_nothing() {
    if !kvm() {
        return;
    }
    let code = code::all(&[&code::print("hello\n"), &code::exit(GuestExit::Status(0))]);
    let ended = Rig::new(&code).run();
    ended.expect(0, "");
    assert_eq!(ended.stdout, "hello\n");
    assert_eq!(ended.stderr, "");
}

#[test]
fn an_application_that_fails_ends_with_1_and_its_status() {
    if !kvm() {
        return;
    }
    let ended = Rig::new(&code::exit(GuestExit::Status(3))).run();
    ended.expect(1, "ended with status 3");
}

#[test]
fn panics_and_faults_have_their_codes() {
    if !kvm() {
        return;
    }
    Rig::new(&code::exit(GuestExit::Panic))
        .run()
        .expect(70, "panicked");
    Rig::new(&code::exit(GuestExit::Fault))
        .run()
        .expect(71, "exception");
}

#[test]
fn resets_end_with_72() {
    if !kvm() {
        return;
    }
    for (port, value) in [
        (ports::I8042, ports::I8042_RESET),
        (ports::RESET, ports::RESET_VALUE),
    ] {
        let code = code::all(&[&code::out(port, value), code::HALT]);
        Rig::new(&code).run().expect(72, "reset");
    }
}

#[test]
fn power_off_ends_with_0() {
    if !kvm() {
        return;
    }
    let off = code::out(ports::SLEEP_CONTROL, ports::SLEEP_S5);
    let ended = Rig::new(&code::all(&[&off, code::HALT])).run();
    ended.expect(0, "");
}

#[test]
fn a_triple_fault_shows_registers_and_code() {
    if !kvm() {
        return;
    }
    let ended = Rig::new(code::TRIPLE_FAULT).run();
    ended.expect(73, "triple fault");
    assert!(ended.stderr.to_lowercase().contains("rip"), "{ended:?}");
    assert!(ended.stderr.contains("<0f> 0b"), "{ended:?}");
}

#[test]
fn an_instruction_that_kvm_lacks_ends_with_74_and_its_bytes() {
    if !kvm() {
        return;
    }
    let code = code::all(&[code::NOT_EMULATED, &code::exit(GuestExit::Status(0))]);
    let ended = Rig::new(&code).run();
    if ended.code == Some(0) {
        tare_vmtest::lacks("this KVM executes the instruction");
        return;
    }
    ended.expect(74, "KVM");
    assert!(ended.stderr.contains("<9b>"), "{ended:?}");
}

#[test]
fn signals_end_a_halted_and_a_spinning_guest() {
    if !kvm() {
        return;
    }
    for guest in [code::HALT, code::SPIN] {
        let signals = [
            (Signal::INT, 130, "interrupted"),
            (Signal::TERM, 143, "terminated"),
            (Signal::HUP, 143, "terminated"),
        ];
        // Under nohup(1) these tests, and so the monitor, ignore SIGHUP.
        let signals = signals.into_iter();
        for (signal, code, message) in signals.filter(|(it, ..)| !is_ignored(it.as_raw())) {
            let code_with_mark = code::all(&[&code::print("up"), guest]);
            let running = Rig::new(&code_with_mark).start();
            running.wait_for("up");
            running.signal(signal);
            running.wait().expect(code, message);
        }
    }
}

#[test]
fn sixteen_vcpus_end_together() {
    if !kvm() {
        return;
    }
    let code = code::all(&[&code::print("up"), code::HALT]);
    let running = Rig::new(&code).set("cpus", 16.into()).start();
    running.wait_for("up");
    assert_eq!(running.client().stats().unwrap().vcpus.len(), 16);
    running.signal(Signal::TERM);
    running.wait().expect(143, "terminated");
}

#[test]
fn a_killed_monitor_leaves_only_what_the_next_run_removes() {
    if !kvm() {
        return;
    }
    let code = code::all(&[&code::print("up"), code::HALT]);
    let running = Rig::new(&code).start();
    running.wait_for("up");
    assert!(running.run_dir.is_alive());
    let (root, name) = (running.root.clone(), running.run_dir.name().to_owned());
    running.signal(Signal::KILL);
    let run_dir = running.run_dir.clone();
    support::eventually("the lock is free", || !run_dir.is_alive());
    assert!(root.create(&name).is_ok());
    drop(running);
}

#[test]
fn invalid_images_have_their_codes() {
    if !kvm() {
        return;
    }
    let good = support::elf::pvh(code::HALT);
    let image = |bytes: &[u8]| Rig::with_image(bytes.to_vec()).run();
    image(b"#!/bin/sh\n").expect(11, "not an ELF file");
    image(&good[..0x1000]).expect(12, "truncated");
    let mut no_note = good.clone();
    // The second program header's type.
    no_note[64 + 56] = 0;
    image(&no_note).expect(13, "PVH note");
}

#[test]
fn sizes_out_of_range_are_refused() {
    if !kvm() {
        return;
    }
    let rig = || Rig::new(code::HALT);
    rig().set("cpus", 0.into()).run().expect(20, "1 to ");
    rig().set("cpus", 17.into()).run().expect(20, "17 vCPUs");
    rig().set("memory_mib", 7.into()).run().expect(21, "8 MiB");
    rig()
        .set("memory_mib", u32::MAX.into())
        .run()
        .expect(21, "cannot give");
    rig()
        .set("cmdline", "a\u{7}b".into())
        .run()
        .expect(22, "printable");
}

#[test]
fn nonsense_instead_of_a_configuration_is_a_usage_error() {
    for arguments in [
        vec![],
        vec!["--config"],
        vec!["--config", "x"],
        vec!["--config", "-1"],
        vec!["--config", "0"],
        vec!["--config", "99"],
        vec!["--help", "me"],
    ] {
        let output = bare(&arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {stderr}");
        assert!(stderr.starts_with("tare-monitor: "), "{stderr}");
    }
    let rig = || Rig::new(code::HALT);
    rig().set("unknown", 1.into()).run_refused("unknown field");
    rig()
        .set("probe", json!({"kind": "hardware"}))
        .run_refused("missing field");
    rig().set("cpus", "two".into()).run_refused("invalid type");
    rig()
        .set("image", 99.into())
        .run()
        .expect(2, "descriptor 99");
    rig().set("image", 1.into()).run().expect(2, "descriptor 1");
    rig()
        .set("name", "../x".into())
        .run()
        .expect(2, "run directory");
}

impl Rig {
    /// For configurations that do not even parse: the run directory is unknown.
    fn run_refused(self, message: &str) {
        let ended = self.run();
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(message), "{ended:?}");
    }
}
