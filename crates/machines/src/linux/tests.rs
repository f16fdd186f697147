//! The example applications on Debian's kernel, in QEMU's translator.

use std::fs;
use std::path::PathBuf;

use tare_rootfs::Cache;
use tare_vmtest::{linux_or_skip, skip};

use super::catalog;
use super::machine::{self, LinuxMachine};
use super::{LinuxError, files, fuzz, kernels, requests};
use tare_load::interrupt::Interrupt;
use tare_tailor::counter::Plugin;

/// The program that confines QEMU: this test lies one directory below it.
pub(crate) fn tare() -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    let tare = own.parent().unwrap().with_file_name("tare");
    (tare.is_file() || skip("tare is not built")).then_some(tare)
}

/// Whether QEMU is in the jail of a machine, as far as a host grants it to root.
pub(crate) fn is_jailed(pid: u32) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"] {
        assert!(status.lines().any(|it| it == line), "{line}: {status}");
    }
    let is_roots = |line: &str| line.starts_with("Uid:\t0");
    assert!(!status.lines().any(is_roots), "{status}");
}

#[test]
fn debians_kernel_says_how_much_code_it_has() {
    let cache = Cache::open_default().unwrap();
    let Some(kernel) = linux_or_skip(kernels::debian(&cache)) else {
        return;
    };
    let Some(tare) = tare() else { return };
    let found = machine::code_kib(&tare, &kernel, &Interrupt::default());
    let may_lack = matches!(
        found,
        Ok(_) | Err(LinuxError::NoQemu(_) | LinuxError::Guest(_) | LinuxError::Prove(_))
    );
    assert!(may_lack, "{found:?}");
    let Some(kib) = linux_or_skip(found) else {
        return;
    };
    let kib = kib.unwrap();
    // Its cloud kernel's image, compressed, is of 8 MiB.
    assert!((8_000..40_000).contains(&kib), "{kib}");
}

/// Boots an application, checks it, and asks drawn requests twice.
fn serves_and_answers(name: &str) {
    let app = catalog::find(name).unwrap();
    let cache = Cache::open_default().unwrap();
    let Some(kernel) = linux_or_skip(kernels::debian(&cache)) else {
        return;
    };
    let Some(tree) = linux_or_skip(files::tree(&app, &cache)) else {
        return;
    };
    let Some(plugin) = linux_or_skip(Plugin::compile(&cache).map_err(LinuxError::from)) else {
        return;
    };
    let Some(tare) = tare() else { return };
    let started = LinuxMachine::start(&tare, &app, &tree, &kernel, Some(&plugin));
    if let Err(LinuxError::NoQemu(_) | LinuxError::Guest(_)) = &started {
        return drop(linux_or_skip(started));
    }
    let mut machine = started.unwrap();
    is_jailed(machine.pid());
    let booted = machine.serve(&app, &Interrupt::default()).unwrap();
    assert!(booted.count.user > 1_000_000, "{booted:?}");
    assert!(booted.count.kernel > 1_000_000, "{booted:?}");
    assert!(machine.touched_kib().unwrap() > 10_000);
    // Requests that change nothing in between are answered the same twice.
    let before = machine.count().unwrap();
    for request in fuzz::dialogs(app.protocol, 3, 6) {
        let answer = machine.answer(&app, &request).unwrap();
        assert_ne!(
            answer,
            b"(no answer)",
            "{}",
            String::from_utf8_lossy(&request)
        );
    }
    assert!(machine.count().unwrap().total() > before.total());
    // Kept connections and new ones for each visit.
    for phase in &app.phases {
        let counts = requests::count(&machine, phase, 2, &Interrupt::default()).unwrap();
        assert_eq!(counts.len(), 2, "{}", phase.name);
        assert!(counts.iter().all(|it| it.total() > 0), "{counts:?}");
    }
}

#[test]
fn lighttpd_serves_on_debians_kernel_and_is_counted() {
    serves_and_answers("lighttpd");
}

#[test]
fn a_program_of_go_serves_on_debians_kernel_and_is_counted() {
    serves_and_answers("go");
}

#[test]
fn a_program_of_rust_serves_on_debians_kernel_and_is_counted() {
    serves_and_answers("axum");
}

#[test]
fn redis_serves_on_debians_kernel_and_is_counted() {
    serves_and_answers("redis");
}
