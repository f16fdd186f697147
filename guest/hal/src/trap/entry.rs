//! Entry code of exceptions, and of interrupts for an image in ring 0. An interrupt
//! handler runs on the stack that it interrupts and saves only what a called function
//! may change. While the software flag is off, the vector is only noted as pending.

#![allow(unsafe_code)]

use core::arch::global_asm;

use super::vector::{GATES, STAMP, WITH_ERROR_CODE};
use crate::percpu::{
    INTERRUPTS_ON_OFFSET, MERGED_OFFSET, PENDING_OFFSET, RESUME_OFFSET, USER_CONTEXT_OFFSET,
    USER_FAULT_OFFSET, USER_SCRATCH_OFFSET,
};
use crate::trap::registers::{restore_registers, save_registers};

/// Bytes of a stub.
pub(super) const STUB: u64 = 16;
const PAGE_FAULT: usize = 14;

unsafe extern "C" {
    static tare_stubs: u8;
}

/// Address of the entry code of `vector`.
pub(super) fn stub(vector: usize) -> u64 {
    (&raw const tare_stubs).addr() as u64 + vector as u64 * STUB
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
    .if vector == {page_fault}
    jmp tare_page_fault_entry
    .elseif vector < 32
    // Exceptions that push an error code themselves.
    .if ({with_error_code} >> vector) & 1
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
    push vector
    jmp tare_interrupt_entry
    .endif
    .set vector, vector + 1
    .endr

    .section .ring0_text, "ax", @progbits
    .balign 16
    // The flag was off: only noted, and counted if it was noted before.
2:
    push rax
    mov rax, [rsp + 8]
    sub eax, 32
    bts qword ptr gs:[{pending}], rax
    adc qword ptr gs:[{merged}], 0
    pop rax
    add rsp, 8
    iretq

    .global tare_interrupt_entry
tare_interrupt_entry:
    btr qword ptr gs:[{on}], 0
    jnc 2b
    push rbp
    mov rbp, rsp
    "#,
    save_registers!(),
    r#"
    cld
    mov rdi, [rsp + 80]
    call tare_interrupt
    "#,
    restore_registers!(),
    r#"
    pop rbp
    add rsp, 8
    iretq

    // The most frequent exception, a program's use of a page that is not there, in few
    // instructions. While a program runs, its context is set.
tare_page_fault_entry:
    test byte ptr [rsp + 16], 3
    jz 7f
    cmp qword ptr gs:[{context}], 0
    je 7f
    pop qword ptr gs:[{fault} + 8]
    pop qword ptr gs:[{resume}]
    mov gs:[{scratch}], rax
    mov rax, cr2
    mov gs:[{fault} + 16], rax
    mov rax, gs:[{scratch}]
    mov qword ptr gs:[{fault}], {page_fault}
    mov qword ptr gs:[{on}], 0
    .byte 0x68                  // push, sign-extended
    .long tare_user_fault
    and dword ptr [rsp + 16], ~0x100
    iretq
7:
    push {page_fault}

    // A program's fault goes to ring 3, one of an access to its memory to the end of
    // the access. Not these: NMI, double fault, machine check.
    .global tare_exception_entry
tare_exception_entry:
    push rax
    mov rax, [rsp + 8]
    bt qword ptr [rip + tare_programs_own], rax
    jnc 3f
    mov rax, [rsp + 24]
    cmp rax, offset tare_user_access_end
    jae 4f
    cmp rax, offset tare_user_access
    jae 5f
4:
    test byte ptr [rsp + 32], 3
    jz 3f
    cmp qword ptr gs:[{context}], 0
    jne 6f
3:
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

5:
    lea rax, [rip + tare_user_access_end]
    mov [rsp + 24], rax
    pop rax
    add rsp, 16
    iretq

6:
    mov rax, [rsp + 8]
    mov gs:[{fault}], rax
    mov rax, [rsp + 16]
    mov gs:[{fault} + 8], rax
    mov rax, cr2
    mov gs:[{fault} + 16], rax
    mov rax, [rsp + 24]
    mov gs:[{resume}], rax
    lea rax, [rip + tare_user_fault]
    mov [rsp + 24], rax
    and dword ptr [rsp + 40], ~0x100
    mov qword ptr gs:[{on}], 0
    pop rax
    add rsp, 16
    iretq

    .section .rodata.tare_programs_own, "a", @progbits
    .balign 8
    .global tare_programs_own
tare_programs_own:
    .quad 0xffffffff & ~(1 << 2 | 1 << 8 | 1 << 18)
    "#,
    gates = const GATES,
    with_error_code = const WITH_ERROR_CODE,
    stub = const STUB,
    on = const INTERRUPTS_ON_OFFSET,
    pending = const PENDING_OFFSET,
    merged = const MERGED_OFFSET,
    stamp = const STAMP,
    context = const USER_CONTEXT_OFFSET,
    fault = const USER_FAULT_OFFSET,
    resume = const RESUME_OFFSET,
    scratch = const USER_SCRATCH_OFFSET,
    page_fault = const PAGE_FAULT,
);
