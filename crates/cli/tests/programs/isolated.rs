//! Programs in ring 3 below a library OS in ring 0, as on KVM with hardware virtualisation. In
//! QEMU's translator, which executes both rings on any host.

use tare_hv::{Kvm, KvmKind, Probe};

use crate::support::TestDir;
use crate::support::compile::c;
use crate::support::needs::{built, kvm, qemu};
use crate::{answers_as_here, run};

const RINGS: &[&str] = &["--engine", "qemu", "--ring", "0"];

fn can_run() -> bool {
    qemu() && built("linux").is_some()
}

fn answers_as_here_on(cpus: &str, source: &str, link: &str, args: &[&str]) {
    let place = TestDir::new();
    if let Some(program) = c(&place, source, &[link]) {
        let options = [RINGS, &["--cpus", cpus]].concat();
        answers_as_here(&place, &program, &options, args);
    }
}

#[test]
fn what_only_a_kernel_may_do_ends_as_on_linux() {
    if !can_run() {
        return;
    }
    for cpus in ["1", "2"] {
        answers_as_here_on(cpus, "attacks.c", "-static-pie", &[]);
    }
}

#[test]
fn system_calls_to_ring_0_answer_as_linux_does() {
    if !can_run() {
        return;
    }
    answers_as_here_on("1", "calls.c", "-static", &[]);
    answers_as_here_on("2", "clocks.c", "-static", &[]);
    answers_as_here_on("2", "pointers.c", "-static", &[]);
}

#[test]
fn threads_signals_and_timers_work_across_rings() {
    if !can_run() {
        return;
    }
    for source in ["jumps.c", "takers.c", "edges.c"] {
        answers_as_here_on("2", source, "-static", &[]);
    }
}

/// KVM's emulator lacks what switches vector registers.
#[test]
fn ring_0_is_refused_where_kvm_emulates_it() {
    if !kvm() || built("linux").is_none() {
        return;
    }
    let probe = Probe::run(&Kvm::open().unwrap()).unwrap();
    let (code, words) = match probe.kind {
        KvmKind::Hardware => (7, "hello /hello"),
        KvmKind::Emulated => (2, "leave out --ring 0"),
    };
    let place = TestDir::new();
    let Some(program) = c(&place, "hello.c", &["-static"]) else {
        return;
    };
    let ended = run(&place, &program, &["--ring", "0"]);
    ended.expect(code, words);
    assert!(place.run_directories().is_empty(), "{ended:#?}");
}

/// QEMU's exit port carries no status; 7 is the program's, 134 is 128 and SIGABRT.
#[test]
fn a_programs_status_is_the_exit_code_in_qemu_too() {
    if !can_run() {
        return;
    }
    let place = TestDir::new();
    for (source, args, code) in [
        ("hello.c", &["a", "b"][..], 7),
        ("limits.c", &["raise", "6"], 134),
    ] {
        if let Some(program) = c(&place, source, &["-static"]) {
            let all = [RINGS, &["--"], args].concat();
            run(&place, &program, &all).expect(code, "");
        }
    }
}
