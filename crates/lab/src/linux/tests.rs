//! The example applications on Debian's kernel, in QEMU's translator.

#![allow(clippy::unwrap_used)]

use tare_rootfs::Cache;

use super::catalog::{self, Connection};
use super::counter::Plugin;
use super::machine::LinuxMachine;
use super::{LinuxError, files, fuzz, kernels};
use crate::interrupt::Interrupt;

/// What a test needs; without it the test says why it does nothing.
fn needed<T>(found: Result<T, LinuxError>) -> Option<T> {
    found
        .map_err(|error| {
            let why = error.to_string();
            assert!(std::env::var_os("TARE_REQUIRE_LINUX").is_none(), "{why}");
            eprintln!("SKIP: {why}");
        })
        .ok()
}

/// Boots an application, checks it, and asks drawn requests twice.
fn serves_and_answers(name: &str) {
    let app = catalog::find(name).unwrap();
    let cache = Cache::open_default().unwrap();
    let Some(kernel) = needed(kernels::debian(&cache)) else {
        return;
    };
    let Some(tree) = needed(files::tree(&app, &cache)) else {
        return;
    };
    let Some(plugin) = needed(Plugin::compile(&cache)) else {
        return;
    };
    let started = LinuxMachine::start(&app, &tree, &kernel, Some(&plugin));
    if let Err(LinuxError::NoQemu(_) | LinuxError::Guest(_)) = &started {
        return drop(needed(started));
    }
    let mut machine = started.unwrap();
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
    let kept = app
        .phases
        .iter()
        .find(|phase| phase.connection == Connection::Kept);
    let request = kept.unwrap().requests[0].as_bytes();
    assert!(
        machine
            .learn(request)
            .is_ok_and(|answer| !answer.is_empty())
    );
}

#[test]
fn lighttpd_serves_on_debians_kernel_and_is_counted() {
    serves_and_answers("lighttpd");
}

#[test]
fn redis_serves_on_debians_kernel_and_is_counted() {
    serves_and_answers("redis");
}
