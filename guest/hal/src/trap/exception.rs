//! Exceptions: none is expected, so each is printed with the registers and a
//! backtrace, and ends the image.

#![allow(unsafe_code)]

use core::fmt::{self, Write};

use crate::memory::layout::is_in_stacks;
use crate::memory::supervisor;
use crate::{fiber, panic, percpu, power, serial};

const PAGE_FAULT: u64 = 14;
const DOUBLE_FAULT: u64 = 8;

/// What the entry code and the CPU pushed.
#[repr(C)]
struct Frame {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    r11: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rbp: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    rcx: u64,
    rbx: u64,
    rax: u64,
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

#[unsafe(no_mangle)]
extern "C" fn tare_exception(frame: &Frame) -> ! {
    if !percpu::find_area() {
        serial::write_str_raw("\nGS does not point to the area of a CPU\n");
    }
    if percpu::current().dying.replace(true) {
        serial::write_str_raw("\nfault while reporting a fault\n");
    } else {
        let mut console = serial::Raw;
        report(&mut console, frame).ok();
    }
    power::exit(tare_abi::exit::GuestExit::Fault)
}

fn report(out: &mut serial::Raw, frame: &Frame) -> fmt::Result {
    write!(out, "\nfault: {}", name(frame.vector))?;
    let address = x86_64::registers::control::Cr2::read_raw();
    if frame.vector == PAGE_FAULT {
        write!(out, " {} {address:#x}", access(frame.error))?;
    }
    write!(
        out,
        ", error {:#x}, on core {}",
        frame.error,
        percpu::index()
    )?;
    panic::describe_thread(out);
    writeln!(out)?;
    if frame.vector == PAGE_FAULT
        && let Some(part) = supervisor::part_at(address)
    {
        writeln!(out, "{address:#x} holds {part}")?;
    }
    if is_overflow(frame, address) {
        write!(out, "stack overflow: the guard page was hit")?;
        panic::describe_thread(out);
        writeln!(out)?;
    }
    registers(out, frame)?;
    panic::backtrace(out, frame.rip, frame.rbp);
    Ok(())
}

/// Whether the running thread ran into the guard page below its stack.
fn is_overflow(frame: &Frame, address: u64) -> bool {
    let faults = frame.vector == PAGE_FAULT || frame.vector == DOUBLE_FAULT;
    let guard = fiber::current_guard();
    faults
        && guard.is_some_and(|guard| {
            guard.contains(&address) || (is_in_stacks(frame.rsp) && guard.contains(&frame.rsp))
        })
}

fn registers(out: &mut serial::Raw, f: &Frame) -> fmt::Result {
    writeln!(
        out,
        "rip {:016x} cs {:x} rflags {:08x} rsp {:016x} ss {:x}",
        f.rip, f.cs, f.rflags, f.rsp, f.ss
    )?;
    writeln!(
        out,
        "rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x}",
        f.rax, f.rbx, f.rcx, f.rdx
    )?;
    writeln!(
        out,
        "rsi {:016x} rdi {:016x} rbp {:016x} r8  {:016x}",
        f.rsi, f.rdi, f.rbp, f.r8
    )?;
    writeln!(
        out,
        "r9  {:016x} r10 {:016x} r11 {:016x} r12 {:016x}",
        f.r9, f.r10, f.r11, f.r12
    )?;
    writeln!(
        out,
        "r13 {:016x} r14 {:016x} r15 {:016x}",
        f.r13, f.r14, f.r15
    )
}

fn access(error: u64) -> &'static str {
    if error & 0x10 != 0 {
        "executing"
    } else if error & 2 != 0 {
        "writing"
    } else {
        "reading"
    }
}

fn name(vector: u64) -> &'static str {
    match vector {
        0 => "divide error",
        1 => "debug",
        2 => "non-maskable interrupt",
        3 => "breakpoint",
        4 => "overflow",
        5 => "bound range",
        6 => "invalid instruction",
        7 => "no floating point unit",
        DOUBLE_FAULT => "double fault",
        10 => "invalid task state",
        11 => "segment not present",
        12 => "stack segment",
        13 => "general protection",
        PAGE_FAULT => "page fault",
        16 => "floating point",
        17 => "alignment",
        18 => "machine check",
        19 => "vector floating point",
        21 => "control protection",
        _ => "unknown exception",
    }
}
