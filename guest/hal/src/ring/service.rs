//! The service gate: what an image in ring 3 asks of ring 0 (`super::serve`).

#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::{clock, ring};

/// Lets hardware interrupts in; the entry code does it.
pub(crate) const OPEN: u64 = 0;
/// Writes a register of KVM's: number, value.
pub(crate) const WRITE_MSR: u64 = 1;
/// Reads a register of KVM's: number.
pub(crate) const READ_MSR: u64 = 2;
/// Maps pages of stacks: address, frame, count.
pub(crate) const MAP_PAGES: u64 = 3;
/// Maps a GiB at its own address: address, whether it is RAM.
pub(crate) const MAP_GIB: u64 = 4;
/// Drops this CPU's cached translations.
pub(crate) const FLUSH: u64 = 5;
/// Sends an interrupt to several CPUs by KVM's call: set, first APIC ID.
pub(crate) const SEND_IPI: u64 = 6;
/// Writes entries of programs' pages, all in one table: address, first entry, count.
pub(crate) const SET_PAGES: u64 = 7;
/// Writes FS.base: address.
pub(crate) const WRITE_FS: u64 = 8;
/// The same as [`SET_PAGES`] where none of them was mapped.
pub(crate) const SET_NEW_PAGES: u64 = 9;
/// Takes entries of programs' pages away, all in one table: address, 0, count.
pub(crate) const CLEAR_PAGES: u64 = 10;
/// Maps 2 MiB of programs by one entry, where no table is: address, entry.
pub(crate) const SET_LARGE_PAGE: u64 = 11;
/// Asks the monitor for a huge page: the address of 2 MiB of RAM.
pub(crate) const ASK_FOR_HUGE_PAGE: u64 = 12;
/// The last number.
pub(crate) const LAST: u64 = ASK_FOR_HUGE_PAGE;

unsafe extern "C" {
    /// What the gate calls, too (`super::serve`).
    fn tare_service(number: u64, first: u64, second: u64, third: u64) -> u64;
}

/// Asks ring 0 for a service.
pub(crate) fn call(number: u64, arguments: [u64; 3]) -> u64 {
    if ring::isolates() {
        return call_here(number, arguments);
    }
    let result;
    // SAFETY: 1. In ring 3 vector 4 is the service gate (`trap::descriptors`); the callers know the
    //    ring. 2. The gate follows the C calling convention, whose registers are outputs here, on a
    //    stack in ring 0. 3. Ring 0 checks what it does for any arguments (`ring::serve`).
    unsafe {
        asm!(
            "int 4",
            inout("rdi") number => _,
            inout("rsi") arguments[0] => _,
            inout("rdx") arguments[1] => _,
            inout("rcx") arguments[2] => _,
            out("rax") result,
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
        );
    }
    result
}

/// The same in ring 0, with hardware interrupts off, as behind the gate.
fn call_here(number: u64, arguments: [u64; 3]) -> u64 {
    let flags: u64;
    // SAFETY: 1. In ring 0 (`isolates`). 2. The flags go through the stack, which the compiler
    //    knows to be used.
    unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
    let [first, second, third] = arguments;
    // SAFETY: 1. `serve` defines the function, with this type. 2. It checks what it does for
    //    any arguments.
    let result = unsafe { tare_service(number, first, second, third) };
    // SAFETY: 1. In ring 0, as above. 2. The flags are those from before.
    unsafe { asm!("push {}", "popfq", in(reg) flags) };
    result
}

/// Whether ring 0 is so slow that KVM must be emulating it: a visit takes tens of thousands of
/// cycles there, some thousands in QEMU's translator, and some hundreds on hardware. Measured
/// once, since that takes up to 0.3 ms. From ring 3 only: an image in ring 0 makes no visits.
pub fn is_ring_0_slow() -> bool {
    const YES: u8 = 1;
    const NO: u8 = 2;
    static FOUND: AtomicU8 = AtomicU8::new(0);
    if ring::isolates() {
        return false;
    }
    match FOUND.load(Ordering::Relaxed) {
        YES => true,
        NO => false,
        _ => {
            let is_slow = measure();
            FOUND.store(if is_slow { YES } else { NO }, Ordering::Relaxed);
            is_slow
        }
    }
}

fn measure() -> bool {
    const SLOW_CYCLES: u64 = 10_000;
    const TRIES: usize = 4;
    const NOTHING: u64 = u64::MAX;
    (0..TRIES).all(|_| {
        let begin = clock::ticks();
        call(NOTHING, [0; 3]);
        clock::ticks().wrapping_sub(begin) > SLOW_CYCLES
    })
}
