//! The cost of one kind of exit: the instruction in a loop whose iterations
//! double until they take long enough, as kvm-unit-tests does it.
//!
//! Prints JSON, a line each: `{"khz":N,"ring":N}`, `{"begin":true}` (and waits 100 ms),
//! `{"kind":..,"iterations":N,"cycles":[..]}` with the cycles of each sample of N
//! iterations, `{"total":N}` iterations of all, at last `{"done":true}`; or
//! `{"unavailable":REASON}` before it. Command line: `kind=NAME[,NAME]`,
//! `target_us=N` (20000), `samples=N` (5), and `hold`, which keeps the machine for
//! who wants its statistics. An instruction that the machine lacks ends it: where
//! that may be, each kind has its own machine.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod doubling;

#[cfg(target_os = "none")]
tare_libos::entry!(doubling::main);

/// Exits are the machine's: the host has none.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("vmexit runs in a machine: tare run vmexit --cmdline kind=cpuid");
}
