//! Clocks that a program reads by code in its memory, where it cannot execute the library OS's: a
//! piece of position-independent code, and behind it what the clock is computed from, which never
//! changes (`crate::clock`).

#![allow(unsafe_code)]

use alloc::vec::Vec;
use core::arch::global_asm;

use super::clock_calls::{CLOCK_GETTIME, GIGA, NAMES};
use crate::clock::{self, Rate};

unsafe extern "C" {
    static tare_clock_code: u8;
    static tare_clock_gettimeofday: u8;
    static tare_clock_time: u8;
    static tare_clock_rate: u8;
    static tare_clock_code_end: u8;
}

/// Code for a page that programs can read and execute.
#[derive(Clone, Debug)]
pub struct ClockCode {
    /// The bytes; they may lie at any multiple of 16.
    pub bytes: Vec<u8>,
    /// The functions' names in a vDSO, and their places in the bytes.
    pub functions: [(&'static str, u64); 3],
}

impl ClockCode {
    /// For this machine's clock.
    pub(super) fn new() -> Self {
        let place = |symbol: *const u8| symbol.addr() - (&raw const tare_clock_code).addr();
        let length = place(&raw const tare_clock_code_end);
        // SAFETY: 1. The bytes from the first symbol to the last are the section below, in the
        //    image's code, which the library OS reads. 2. Nothing writes to it.
        let code = unsafe { core::slice::from_raw_parts(&raw const tare_clock_code, length) };
        let mut bytes = Vec::from(code);
        let Rate {
            base,
            factor,
            epoch_ns,
        } = clock::rate();
        let words = bytes[place(&raw const tare_clock_rate)..].chunks_exact_mut(8);
        for (word, value) in words.zip([base, factor, epoch_ns]) {
            word.copy_from_slice(&value.to_le_bytes());
        }
        let places = [
            0,
            place(&raw const tare_clock_gettimeofday) as u64,
            place(&raw const tare_clock_time) as u64,
        ];
        Self {
            bytes,
            functions: core::array::from_fn(|index| (NAMES[index], places[index])),
        }
    }
}

global_asm!(
    r#"
    .macro TARE_CLOCK_NS        // RAX: nanoseconds since the image began; changes RDX
    lfence                      // as Linux's rdtsc_ordered
    rdtsc
    shl rdx, 32
    or rax, rdx
    sub rax, [rip + tare_clock_rate]
    mul qword ptr [rip + tare_clock_rate + 8]
    shrd rax, rdx, 32
    .endm

    .macro TARE_CLOCK_SPLIT     // RAX: seconds of RAX nanoseconds, RDX: the rest; changes RCX
    xor edx, edx
    mov ecx, {giga}
    div rcx
    .endm

    .section .text.tare_clock, "ax", @progbits
    .balign 16
    .global tare_clock_code
    .global tare_clock_gettimeofday
    .global tare_clock_time
    .global tare_clock_rate
    .global tare_clock_code_end
tare_clock_code:                // clock_gettime(EDI, RSI)
    cmp edi, 7
    ja 3f
    mov ecx, 0xf3               // REALTIME, MONOTONIC, _RAW, both _COARSE, BOOTTIME
    bt ecx, edi
    jnc 3f
    TARE_CLOCK_NS
    mov ecx, 0x21               // REALTIME and REALTIME_COARSE
    bt ecx, edi
    jnc 2f
    add rax, [rip + tare_clock_rate + 16]
2:
    TARE_CLOCK_SPLIT
    mov [rsi], rax
    mov [rsi + 8], rdx
    xor eax, eax
    ret
3:
    mov eax, {clock_gettime}
    syscall
    ret

    .balign 16
tare_clock_gettimeofday:        // RDI: timeval, RSI: timezone
    test rsi, rsi
    jz 4f
    mov qword ptr [rsi], 0
4:
    test rdi, rdi
    jz 5f
    TARE_CLOCK_NS
    add rax, [rip + tare_clock_rate + 16]
    TARE_CLOCK_SPLIT
    mov [rdi], rax
    mov eax, edx
    xor edx, edx
    mov ecx, 1000
    div ecx
    mov [rdi + 8], rax
5:
    xor eax, eax
    ret

    .balign 16
tare_clock_time:                // RDI: time_t, or 0
    TARE_CLOCK_NS
    add rax, [rip + tare_clock_rate + 16]
    TARE_CLOCK_SPLIT
    test rdi, rdi
    jz 6f
    mov [rdi], rax
6:
    ret

    .balign 8
tare_clock_rate:                // base, factor, wall clock at 0
    .quad 0, 0, 0
tare_clock_code_end:
    "#,
    giga = const GIGA as u32,
    clock_gettime = const CLOCK_GETTIME as u32,
);
