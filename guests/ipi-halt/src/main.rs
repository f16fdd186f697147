//! The benchmark of KVM Message Passing 2015: CPU 0 halts;
//! about 100 µs later CPU 1 reads the time stamp counter and sends an interrupt;
//! the first instruction of the handler on CPU 0 reads it again (in ring 3 the first one
//! behind the halt).
//!
//! Prints JSON, a line each: `{"khz":N,"ring":N}`, then `{"wake":[..],"send":[..]}` in
//! batches, in cycles (`send` is what the command took the sender), at last
//! `{"done":true}`. Command line: `samples=N` (1000), `gap_us=N` (100), `pause_ms=N` (a
//! `{"begin":true}` and so long a wait before the first), and
//! `hold`, which keeps the machine for who wants its statistics.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod wake;

#[cfg(target_os = "none")]
tare_libos::entry!(wake::main);

/// Interrupts are the machine's: the host has none to send.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("ipi-halt runs in a machine: tare run ipi-halt --cpus 2");
}
