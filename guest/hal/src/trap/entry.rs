//! Entry code of exceptions, and of interrupts for an image in ring 0. An interrupt
//! handler runs on the stack that it interrupts and saves only what a called function
//! may change. While the software flag is off, the vector is only noted as pending.

#![allow(unsafe_code)]

use core::arch::global_asm;

use super::descriptors::GATES;
use super::irq::STAMP;
use crate::percpu::{INTERRUPTS_ON_OFFSET, PENDING_OFFSET};

/// Bytes of a stub.
const STUB: usize = 64;

unsafe extern "C" {
    static tare_stubs: u8;
}

/// Address of the entry code of `vector`.
pub(super) fn stub(vector: usize) -> u64 {
    (&raw const tare_stubs).addr() as u64 + (vector * STUB) as u64
}

global_asm!(
    r#"
    .section .text.tare_stubs, "ax", @progbits
    .balign {stub}
    .global tare_stubs
tare_stubs:
    .set vector, 0
    .rept {gates}
    .balign {stub}
    .if vector < 32
    // Exceptions that push an error code themselves.
    .if (0x60227d00 >> vector) & 1
    .else
    push 0
    .endif
    push vector
    jmp tare_exception_entry
    .elseif vector == {stamp}
    // Taken only where nothing is in these registers.
    rdtsc
    mov [rip + tare_stamp], eax
    mov [rip + tare_stamp + 4], edx
    iretq
    .else
    btr qword ptr gs:[{on}], 0
    jnc 2f
    push vector
    jmp tare_interrupt_entry
2:
    bts qword ptr gs:[{pending}], vector - 32
    iretq
    .endif
    .set vector, vector + 1
    .endr

tare_interrupt_entry:
    push rbp
    mov rbp, rsp
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    cld
    mov rdi, [rsp + 80]
    call tare_interrupt
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    pop rbp
    add rsp, 8
    iretq

tare_exception_entry:
    push rax
    push rbx
    push rcx
    push rdx
    push rsi
    push rdi
    push rbp
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    cld
    mov rdi, rsp
    and rsp, -16
    call tare_exception
    ud2
    "#,
    gates = const GATES,
    stub = const STUB,
    on = const INTERRUPTS_ON_OFFSET,
    pending = const PENDING_OFFSET,
    stamp = const STAMP,
);
