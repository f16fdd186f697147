//! An image that exercises the library OS on a real machine and prints one
//! line for each thing: `ok NAME FIGURES` or `FAIL NAME REASON`, at last
//! `selftest done`. `crates/vmtest` runs it.
//!
//! Words on the command line choose another end: `panic`, `overflow`, `null`,
//! `exit=N`, `trespass=page-table|further-table|descriptors|read|jump|text|data|cli|no-stack|return|no-area|gates|wild`
//! (ring 3 only; `gates` takes `seed=N requests=N`, `wild` takes `seed=N`), `idle-for=SECONDS` (prints how the cores idled),
//! `interrupts=N` (raises N, one by one, and counts what arrives). `only=NAME` leaves the
//! other checks out.

#![cfg_attr(target_os = "none", no_std, no_main)]

extern crate alloc;

mod checks;
mod ends;
#[cfg(target_os = "none")]
mod interrupts;
mod quiet;

use tare_libos::{env, println};

fn selftest() -> u8 {
    println!(
        "selftest on {} cores in ring {}: {}",
        tare_libos::thread::cores(),
        ring(),
        env::cmdline()
    );
    if let Some(status) = ends::chosen() {
        return status;
    }
    if let Some(seconds) = env::var("idle-for").and_then(|text| text.parse().ok()) {
        quiet::idle(seconds);
        return 0;
    }
    #[cfg(target_os = "none")]
    if let Some(number) = env::var("interrupts").and_then(|text| text.parse().ok()) {
        return interrupts::raise(number);
    }
    let only = env::var("only");
    let failed = checks::ALL
        .iter()
        .filter(|(name, _)| only.is_none_or(|only| only == *name))
        .filter(|(name, check)| !run(name, *check))
        .count();
    println!("selftest done, {failed} failed");
    u8::from(failed != 0)
}

tare_libos::entry!(selftest);

#[cfg(target_os = "none")]
fn ring() -> u8 {
    tare_libos::hal::ring::current().number()
}

/// A process is in ring 3.
#[cfg(not(target_os = "none"))]
fn ring() -> u8 {
    3
}

/// On the host, over the shim of `tare_libos::thread`.
#[cfg(not(target_os = "none"))]
fn main() -> std::process::ExitCode {
    selftest().into()
}

fn run(name: &str, check: checks::Check) -> bool {
    match check() {
        Ok(figures) => println!("ok {name} {figures}"),
        Err(reason) => {
            println!("FAIL {name} {reason}");
            return false;
        }
    }
    true
}
