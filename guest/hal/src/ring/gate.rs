//! Entry code of interrupts and gates for an image in ring 3.
//!
//! An interrupt arrives in ring 0. Its stub clears the software flag; if the flag
//! was set, it saves the interrupted address and returns to the upcall in ring 3,
//! which runs the handler on the interrupted stack. Otherwise it notes the vector
//! as pending. Emulated instructions are expensive, so stubs have seven at most.
//!
//! Vector 3 (`int3`) is the halt gate, vector 4 (`int 4`) the service gate.
//! (Intel SDM vol. 3A, chapter 6; the image has no red zone.)

#![allow(unsafe_code)]

use core::arch::global_asm;

use crate::percpu::{
    INTERRUPTS_ON_OFFSET, MERGED_OFFSET, PENDING_OFFSET, RESUME_OFFSET, USER_CONTEXT_OFFSET,
    USER_SCRATCH_OFFSET, USER_VECTOR_OFFSET,
};
use crate::trap::registers::{restore_registers, save_registers};
use crate::trap::vector::GATES;

/// Selector of ring 3's data segment.
pub(crate) const USER_DATA: u16 = 3 << 3 | 3;
/// Selector of ring 3's code segment.
pub(crate) const USER_CODE: u16 = 4 << 3 | 3;

/// Vector of the halt gate.
pub(crate) const HALT: usize = 3;
/// Vector of the service gate.
pub(crate) const SERVICE: usize = 4;

/// Bytes of a stub.
pub(crate) const STUB: u64 = 64;

unsafe extern "C" {
    static tare_user_stubs: u8;
    static tare_halt_gate: u8;
    static tare_service_gate: u8;
}

/// Address of the entry code of interrupt `vector`, 32 or more.
pub(crate) fn stub(vector: usize) -> u64 {
    (&raw const tare_user_stubs).addr() as u64 + (vector as u64 - 32) * STUB
}

/// Address of the halt gate.
pub(crate) fn halt() -> u64 {
    (&raw const tare_halt_gate).addr() as u64
}

/// Address of the service gate.
pub(crate) fn service() -> u64 {
    (&raw const tare_service_gate).addr() as u64
}

global_asm!(
    r#"
    .section .ring0_text, "ax", @progbits
    .balign 16
tare_user_stubs:
    .global tare_user_stubs
    .set vector, 32
    .rept {gates} - 32
    .org tare_user_stubs + (vector - 32) * {stub}
    btr qword ptr gs:[{on}], 0
    jnc 2f
    test byte ptr [rsp + 8], 3  // only ring 3 has upcalls
    jz 2f
    pop qword ptr gs:[{resume}]
    .byte 0x68                  // push, sign-extended
    .long tare_upcalls + (vector - 32) * 16
    iretq
2:
    bts qword ptr gs:[{pending}], vector - 32
    adc qword ptr gs:[{merged}], 0
    iretq
    .set vector, vector + 1
    .endr

    .balign 16
    .global tare_halt_gate
tare_halt_gate:
    cmp qword ptr gs:[{pending}], 0
    jne 3f
    sti
    hlt
3:
    iretq

    .balign 16
    .global tare_service_gate
tare_service_gate:
    cld
    test edi, edi
    jz 4f
    sub rsp, 8
    call tare_service
    add rsp, 8
    iretq
4:
    or qword ptr [rsp + 16], 0x200
    iretq

    .section .text.tare_upcalls, "ax", @progbits
    .balign 16
tare_upcalls:
    .global tare_upcalls
    .set vector, 32
    .rept {gates} - 32
    .balign 16
    mov gs:[{scratch}], rcx
    mov cl, vector
    .byte 0xe9                  // jmp with 32 bits: 16 bytes each
    .long tare_upcall - . - 4
    .set vector, vector + 1
    .endr

    // Flags are the interrupted code's, so nothing here changes them.
tare_upcall:
    movzx ecx, cl
    mov gs:[{vector}], rcx
    mov rcx, gs:[{context}]
    jrcxz 5f
    jmp tare_user_upcall        // it interrupted a program
5:
    mov rcx, gs:[{scratch}]
    push qword ptr gs:[{resume}]
    push rbp
    push qword ptr gs:[{vector}]
    lea rbp, [rsp + 8]          // a frame for backtraces
    pushfq
    "#,
    save_registers!(),
    r#"
    cld
    mov rdi, [rbp - 8]
    and rsp, -16
    call tare_interrupt
    lea rsp, [rbp - 88]
    "#,
    restore_registers!(),
    r#"
    popfq
    lea rsp, [rsp + 8]          // the vector
    pop rbp
    ret
    "#,
    gates = const GATES,
    stub = const STUB,
    on = const INTERRUPTS_ON_OFFSET,
    pending = const PENDING_OFFSET,
    merged = const MERGED_OFFSET,
    resume = const RESUME_OFFSET,
    scratch = const USER_SCRATCH_OFFSET,
    vector = const USER_VECTOR_OFFSET,
    context = const USER_CONTEXT_OFFSET,
);
