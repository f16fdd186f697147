//! Clocks that a program reads by a call instead of a system call, as from Linux's vDSO
//! (`vdso(7)`): functions of the library OS on the program's stack, in ring 3.
//!
//! A pointer to what is not there is a fault of the program, at the function's address. One to
//! memory of the library OS overwrites it, as the program can by itself (see `user`).

#![allow(unsafe_code)]

use core::arch::asm;

use super::clock_code::ClockCode;
use crate::{clock, ring};

/// Clocks by their numbers (kernel `include/uapi/linux/time.h`).
const REALTIME: u32 = 0;
const MONOTONIC: u32 = 1;
const MONOTONIC_RAW: u32 = 4;
const REALTIME_COARSE: u32 = 5;
const MONOTONIC_COARSE: u32 = 6;
const BOOTTIME: u32 = 7;
/// The system call for the clocks that are not read here.
pub(super) const CLOCK_GETTIME: u64 = 228;
/// The functions' names in a vDSO.
pub(super) const NAMES: [&str; 3] = ["__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time"];

pub(super) const GIGA: u64 = 1_000_000_000;

/// `timespec`, and `timeval` with microseconds.
#[repr(C)]
struct Pair {
    seconds: u64,
    rest: u64,
}

/// What a program's vDSO has.
#[derive(Clone, Debug)]
pub enum ClockCalls {
    /// Functions of the library OS, in the program's ring, by name and address.
    Shared([(&'static str, u64); 3]),
    /// Code for the program's own memory: the library OS's is in ring 0.
    Own(ClockCode),
}

/// The functions that read clocks.
pub fn clock_calls() -> ClockCalls {
    if ring::isolates() {
        return ClockCalls::Own(ClockCode::new());
    }
    // The first looks ask ring 0 and the hypervisor, which is not for a program's stack.
    ring::is_ring_0_slow();
    clock::wall_ns();
    let addresses = [
        (clock_gettime as *const ()).addr() as u64,
        (gettimeofday as *const ()).addr() as u64,
        (time as *const ()).addr() as u64,
    ];
    ClockCalls::Shared(core::array::from_fn(|index| {
        (NAMES[index], addresses[index])
    }))
}

/// Lets no later read of the counter come before an earlier load, as Linux's vDSO (`rdtsc_ordered`): a
/// time that another CPU has published must not be later than one that is read behind it.
fn order() {
    // SAFETY: 1. This runs in ring 3, which the processor executes, and every 64-bit processor has
    //    the instruction. 2. It changes no register.
    unsafe { asm!("lfence", options(nostack, preserves_flags)) };
}

extern "C" fn clock_gettime(clock: u32, to: *mut Pair) -> i32 {
    order();
    let ns = match clock {
        REALTIME | REALTIME_COARSE => clock::wall_ns(),
        MONOTONIC | MONOTONIC_RAW | MONOTONIC_COARSE | BOOTTIME => clock::now_ns(),
        // As Linux's does: C libraries take an error of this function for the call's.
        _ => return ask(clock, to),
    };
    let now = Pair {
        seconds: ns / GIGA,
        rest: ns % GIGA,
    };
    // SAFETY: 1. The pointer is the program's, which calls this on its thread: what it points to is
    //    the program's matter, as where it writes by itself. 2. An address that is not mapped
    //    faults in the program's name (see the module). 3. No reference of the library OS to
    //    programs' memory exists.
    unsafe { to.write_unaligned(now) };
    0
}

/// Makes the system call `clock_gettime`, by a jump where that is faster.
fn ask(clock: u32, to: *mut Pair) -> i32 {
    let result: i64;
    if ring::is_ring_0_slow() {
        // SAFETY: 1. This runs in ring 3 as the program, whose system call this is: it changes RAX,
        //    RCX and the flags, and the program's memory at `to` as in `clock_gettime`. 2. The
        //    target takes the address to go on at in RCX.
        unsafe {
            asm!(
                "lea rcx, [rip + 2f]",
                "jmp {target}",
                "2:",
                target = in(reg) super::jump_target(),
                inlateout("rax") CLOCK_GETTIME => result,
                in("rdi") u64::from(clock),
                in("rsi") to,
                out("rcx") _,
                lateout("r11") _,
            );
        }
    } else {
        // SAFETY: 1. As above, by the instruction.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") CLOCK_GETTIME => result,
                in("rdi") u64::from(clock),
                in("rsi") to,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
    }
    result as i32
}

extern "C" fn gettimeofday(to: *mut Pair, zone: *mut u64) -> i32 {
    order();
    if !zone.is_null() {
        // SAFETY: 1. The pointer is the program's, as for `clock_gettime`: it may write there by
        //    itself, or it faults.
        unsafe { zone.write_unaligned(0) };
    }
    if !to.is_null() {
        let ns = clock::wall_ns();
        let now = Pair {
            seconds: ns / GIGA,
            rest: ns % GIGA / 1000,
        };
        // SAFETY: 1. The pointer is the program's, as for `clock_gettime`: it may write there by
        //    itself, or it faults.
        unsafe { to.write_unaligned(now) };
    }
    0
}

extern "C" fn time(to: *mut u64) -> u64 {
    let seconds = clock::wall_ns() / GIGA;
    if !to.is_null() {
        // SAFETY: 1. The pointer is the program's, as for `clock_gettime`: it may write there by
        //    itself, or it faults.
        unsafe { to.write_unaligned(seconds) };
    }
    seconds
}
