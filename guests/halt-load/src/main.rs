//! A CPU that halts and is woken in a rhythm, for weighing how it waits
//! (KVM Message Passing 2015).
//!
//! `load=idle` sleeps; `load=every` and `load=bursts` halt CPU 0 raw, and CPU 1
//! interrupts it each `gap_us`, with a pause of `pause_us` after every
//! `burst`th; `load=sleep` sleeps `gap_us` again and again by the timer. After
//! `warm_ms` the image prints `{"begin":true}`, after `ms` more `{"end":true}`, then
//! `{"wake_ns":[..]}` (from the command, or the deadline, until it runs; `samples=N`
//! of them, evenly spread), `{"done":true}`; with
//! `hold` it then keeps the machine.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod load;

#[cfg(target_os = "none")]
tare_libos::entry!(load::main);

/// Interrupts are the machine's: the host has none to send.
#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("halt-load runs in a machine: tare run halt-load --cpus 2");
}
