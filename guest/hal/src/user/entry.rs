//! Entry code of programs: into one, and back by SYSCALL, an interrupt or a fault.
//!
//! It stands here twice. Where the library OS is in ring 3, beside the program
//! (`tare_user_*`), going in and out is a jump. Where it is in ring 0 (`tare_isolated_*`),
//! they are changes of ring: GS is the program's while it runs, and hardware interrupts are
//! off until the program's registers are saved.
//!
//! In ring 3, while the software flag is off, no upcall comes, so that the scratch words of the
//! CPU's area are this code's. [`tare_user_enter`](enter) turns the flag on before
//! its last instructions: an upcall that finds the program there (between
//! `tare_user_begin` and `tare_user_end`) takes RIP and RCX from the area instead.

#![allow(unsafe_code)]

use core::arch::global_asm;
use core::mem::offset_of;

use x86_64::registers::model_specific::Msr;

use super::area::Area;
use super::registers::Registers;
use super::vectors;
use crate::percpu::{INTERRUPTS_ON_OFFSET, PENDING_OFFSET, RESUME_OFFSET, USER_OFFSET};
use crate::ring::{Ring, gate};
use crate::trap::vector::{GATES, WITH_ERROR_CODE};

/// Bytes of a stub.
pub(crate) const STUB: u64 = 16;

/// Results of [`enter`].
pub(super) const SYSTEM_CALL: u64 = 0;
pub(super) const INTERRUPT: u64 = 1;
pub(super) const FAULT: u64 = 2;
pub(super) const JUMP: u64 = 3;
/// Flags after a system call by a jump: those that are always set. A C compiler takes them as
/// changed by any assembly.
const FLAGS_OF_JUMP: u32 = 0x202;

const IA32_STAR: u32 = 0xc000_0081;
const IA32_LSTAR: u32 = 0xc000_0082;
const IA32_FMASK: u32 = 0xc000_0084;
const IA32_EFER: u32 = 0xc000_0080;
const SYSCALL_ENABLE: u64 = 1;
/// SYSCALL loads CS 0x08 and SS 0x10; SYSRET CS 0x23 and SS 0x1b. The privilege level is in the
/// base, as in Linux (`syscall_init`): an AMD processor takes SS as it comes (APM volume 3, SYSRET),
/// and at level 0 the next IRETQ to ring 3 would fault.
const SELECTORS: u64 = (USER_BASE as u64) << 48 | 0x08 << 32;
const USER_BASE: u16 = 0x10 | 3;
const _: () = assert!(USER_BASE + 8 == gate::USER_DATA && USER_BASE + 16 == gate::USER_CODE);
/// Flags that SYSCALL clears: TF, DF, NT, AC. Not IF: where KVM leaves the program in
/// ring 3, nothing would set it again. So interrupts may find the entry code in ring 0,
/// on the program's stack; they have their own stack and are noted as pending.
const CLEARED: u64 = 0x100 | 0x400 | 0x4000 | 0x4_0000;
/// IF, which SYSCALL clears too where the library OS is in ring 0: its interrupts have no own stack.
const INTERRUPT_FLAG: u64 = 0x200;

unsafe extern "C" {
    static tare_syscall_entry: u8;
    static tare_user_jump: u8;
    static tare_isolated_syscall: u8;
    static tare_isolated_stubs: u8;

    /// Loads `registers` and continues the program; gives why it came back. The
    /// software flag must be off; it is off after a system call and a fault, on
    /// after an interrupt.
    #[link_name = "tare_user_enter"]
    pub(super) fn enter(registers: *mut Registers) -> u64;
    /// The same from ring 0. RIP must be below 2^47, and RFLAGS a program's: IRETQ and SYSRET
    /// fault in ring 0 otherwise, with the program's GS.
    #[link_name = "tare_isolated_enter"]
    pub(super) fn enter_from_ring_0(registers: *mut Registers) -> u64;
    /// Copies bytes; 1 if an address was not accessible.
    #[link_name = "tare_user_copy"]
    pub(super) fn copy(to: *mut u8, from: *const u8, count: usize) -> u64;
    /// Reads an aligned word; 1 if the address was not accessible.
    #[link_name = "tare_user_load"]
    pub(super) fn load(from: *const u32, to: &mut u32) -> u64;
    /// Writes an aligned word at once; 1 if the address was not accessible.
    #[link_name = "tare_user_store"]
    pub(super) fn store(to: *mut u64, value: u64) -> u64;
    /// Writes `new` to an aligned word if it holds `expected`, at once, and says what it held; 1 if the
    /// address was not accessible.
    #[link_name = "tare_user_exchange"]
    pub(super) fn exchange(at: *mut u32, expected: u32, new: u32, held: &mut u32) -> u64;
}

/// Where a program's code may jump instead of SYSCALL: RCX holds the address to go on at, the
/// other registers are as for SYSCALL. In ring 3, where the library OS is.
pub fn jump_target() -> u64 {
    (&raw const tare_user_jump).addr() as u64
}

/// Address of the entry code of `vector` where the library OS is in ring 0 and runs programs.
pub(crate) fn isolated_stub(vector: usize) -> u64 {
    (&raw const tare_isolated_stubs).addr() as u64 + vector as u64 * STUB
}

/// Points SYSCALL at the entry code and switches the vector registers on. In ring 0,
/// on each CPU of an image that runs programs, or goes on in `ring` 3 and might.
pub(crate) fn init(ring: Ring) {
    let mut efer = Msr::new(IA32_EFER);
    // SAFETY: 1. In ring 0: `tare_boot` and `tare_boot_ap` call this before they enter ring 3. 2.
    //    Every 64-bit processor has the register.
    let value = unsafe { efer.read() };
    // SAFETY: 1. In ring 0, as above. 2. SYSCALL is added to what the register holds; its target is
    //    written below, before any program runs.
    unsafe { efer.write(value | SYSCALL_ENABLE) };
    let (entry, cleared) = match ring {
        Ring::Zero => (
            (&raw const tare_isolated_syscall).addr() as u64,
            CLEARED | INTERRUPT_FLAG,
        ),
        Ring::Three => ((&raw const tare_syscall_entry).addr() as u64, CLEARED),
    };
    for (register, value) in [
        (IA32_STAR, SELECTORS),
        (IA32_LSTAR, entry),
        (IA32_FMASK, cleared),
    ] {
        // SAFETY: 1. Every 64-bit processor has these registers. 2. The selectors are those of
        //    the GDT (`trap::descriptors`), the address is the entry code's.
        unsafe { Msr::new(register).write(value) };
    }
    vectors::init();
}

global_asm!(
    r#"
    // What a function keeps; `tare_user_leave` takes it from there.
    .macro TARE_USER_KEEP
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    sub rsp, 8
    mov gs:[{stack}], rsp
    .endm

    // From the registers at RDI all but RAX, RCX, RSP, RDI and R11.
    .macro TARE_USER_LOAD_COMMON
    mov rbx, [rdi + {rbx}]
    mov rdx, [rdi + {rdx}]
    mov rsi, [rdi + {rsi}]
    mov rbp, [rdi + {rbp}]
    mov r8, [rdi + {r8}]
    mov r9, [rdi + {r9}]
    mov r10, [rdi + {r10}]
    mov r12, [rdi + {r12}]
    mov r13, [rdi + {r13}]
    mov r14, [rdi + {r14}]
    mov r15, [rdi + {r15}]
    .endm

    .macro TARE_USER_SAVE_COMMON
    mov [rcx + {rsp}], rsp
    mov rsp, gs:[{stack}]
    mov [rcx + {rax}], rax
    mov [rcx + {rbx}], rbx
    mov [rcx + {rdx}], rdx
    mov [rcx + {rsi}], rsi
    mov [rcx + {rdi}], rdi
    mov [rcx + {rbp}], rbp
    mov [rcx + {r8}], r8
    mov [rcx + {r9}], r9
    mov [rcx + {r10}], r10
    mov [rcx + {r11}], r11
    mov [rcx + {r12}], r12
    mov [rcx + {r13}], r13
    mov [rcx + {r14}], r14
    mov [rcx + {r15}], r15
    .endm

    .macro TARE_USER_SAVE_CALL
    TARE_USER_SAVE_COMMON
    mov rdx, gs:[{flags}]
    mov rax, gs:[{resume}]
    mov [rcx + {r11}], rdx
    mov [rcx + {rflags}], rdx
    mov [rcx + {rcx}], rax
    mov [rcx + {rip}], rax
    cld
    mov qword ptr gs:[{context}], 0
    .endm

    .section .text.tare_user, "ax", @progbits
    .balign 16
    .global tare_user_enter
tare_user_enter:
    TARE_USER_KEEP
    mov rax, [rdi + {rip}]
    mov gs:[{target}], rax
    mov rax, [rdi + {rcx}]
    mov gs:[{target_rcx}], rax
    push qword ptr [rdi + {rflags}]
    popfq
    mov gs:[{context}], rdi
    TARE_USER_LOAD_COMMON
    mov rsp, [rdi + {rsp}]
    mov rax, [rdi + {rax}]
    mov r11, [rdi + {r11}]
    mov rdi, [rdi + {rdi}]
    mov qword ptr gs:[{on}], 1
tare_user_begin:
    mov rcx, gs:[{pending}]
    jrcxz 2f
    mov qword ptr gs:[{on}], 0
    jmp tare_user_not_entered
2:
    mov rcx, gs:[{target_rcx}]
    jmp qword ptr gs:[{target}]
tare_user_end:

    // One came before the flag was on: the context still holds all registers.
tare_user_not_entered:
    mov rsp, gs:[{stack}]
    mov qword ptr gs:[{context}], 0
    cld
    mov qword ptr gs:[{on}], 1
    call tare_handle_pending
    mov eax, {interrupt}
tare_user_leave:
    add rsp, 8
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret

    // A fault, with the flag off. RCX is the program's.
    .balign 16
    .global tare_user_fault
tare_user_fault:
    mov gs:[{scratch}], rcx
    mov qword ptr gs:[{vector}], 0
    mov rcx, gs:[{context}]
    // An interrupt or fault, with the flag off: RCX is the context.
    .global tare_user_upcall
tare_user_upcall:
    TARE_USER_SAVE_COMMON
    pushfq
    pop qword ptr [rcx + {rflags}]
    mov rdx, gs:[{scratch}]
    mov rax, gs:[{resume}]
    cmp rax, offset tare_user_begin
    jb 3f
    cmp rax, offset tare_user_end
    jae 3f
    mov rdx, gs:[{target_rcx}]
    mov rax, gs:[{target}]
3:
    mov [rcx + {rcx}], rdx
    mov [rcx + {rip}], rax
    // With the flag off and the program's registers saved.
tare_user_saved:
    cld
    mov qword ptr gs:[{context}], 0
    xor ebp, ebp
    mov rdi, gs:[{vector}]
    test edi, edi
    mov eax, {fault_exit}
    jz tare_user_leave
    call tare_interrupt
    mov eax, {interrupt}
    jmp tare_user_leave

    // SYSCALL in ring 3 that stays there, as where KVM emulates ring 0, comes to the
    // first instruction in ring 3; elsewhere in ring 0.
    .section .text.tare_syscall, "ax", @progbits
    .balign 16
    .global tare_syscall_entry
tare_syscall_entry:
    mov qword ptr gs:[{on}], 0
    mov gs:[{resume}], rcx
    mov gs:[{flags}], r11
    mov ecx, cs
    test cl, 3
    lea rcx, [rip + tare_syscall_here]
    jnz tare_syscall_here
    sysretq
tare_syscall_here:
    mov rcx, gs:[{context}]
    jrcxz 4f
    jmp 5f
4:
    ud2                         // the library OS made a system call
5:
    TARE_USER_SAVE_CALL
    mov eax, {system_call}
    jmp tare_user_leave

    // The same by a jump, RCX as SYSCALL would have left it. In its own section, which
    // images without programs leave out.
    .section .text.tare_user_jump, "ax", @progbits
    .balign 16
    .global tare_user_jump
tare_user_jump:
    mov qword ptr gs:[{on}], 0
    mov gs:[{resume}], rcx
    mov r11d, {flags_of_jump}
    mov gs:[{flags}], r11
    mov rcx, gs:[{context}]
    jrcxz 6f
    jmp 7f
6:
    ud2                         // the library OS jumped here
7:
    TARE_USER_SAVE_CALL
    mov eax, {jump}
    jmp tare_user_leave

    // All that follows is for a library OS in ring 0. In its own section, which images
    // without programs leave out.
    .section .text.tare_isolated, "ax", @progbits
    .balign {stub}
    .global tare_isolated_stubs
tare_isolated_stubs:
    .set vector, 0
    .rept {gates}
    .balign {stub}
    .if vector < 32
    // Exceptions that push an error code themselves.
    .if ({with_error_code} >> vector) & 1
    .else
    push 0
    .endif
    push vector
    jmp tare_isolated_exception
    .else
    push vector
    jmp tare_isolated_interrupt
    .endif
    .set vector, vector + 1
    .endr

    .balign 16
    .global tare_isolated_enter
tare_isolated_enter:
    TARE_USER_KEEP
    mov gs:[{context}], rdi
    cli
    cmp qword ptr gs:[{pending}], 0
    jne 2f
    mov qword ptr gs:[{on}], 1
    TARE_USER_LOAD_COMMON
    // After a system call RCX and R11 hold what SYSRET takes from there.
    mov rcx, [rdi + {rip}]
    mov r11, [rdi + {rflags}]
    cmp rcx, [rdi + {rcx}]
    jne 3f
    cmp r11, [rdi + {r11}]
    jne 3f
    mov rax, [rdi + {rax}]
    mov rsp, [rdi + {rsp}]
    mov rdi, [rdi + {rdi}]
    swapgs
    sysretq
3:
    push {user_data}
    push qword ptr [rdi + {rsp}]
    push r11
    push {user_code}
    push rcx
    mov rax, [rdi + {rax}]
    mov rcx, [rdi + {rcx}]
    mov r11, [rdi + {r11}]
    mov rdi, [rdi + {rdi}]
    swapgs
    iretq
2:
    sti
    jmp tare_user_not_entered

    .balign 16
    .global tare_isolated_syscall
tare_isolated_syscall:
    swapgs
4:
    mov qword ptr gs:[{on}], 0
    mov gs:[{resume}], rcx
    mov gs:[{flags}], r11
    mov rcx, gs:[{context}]
    TARE_USER_SAVE_CALL
    sti
    mov eax, {system_call}
    jmp tare_user_leave

    // The vector is on the stack, and the processor's frame above it.
tare_isolated_interrupt:
    test byte ptr [rsp + 16], 3
    jz tare_interrupt_entry     // it interrupted the library OS
    swapgs
    mov qword ptr gs:[{on}], 0
    mov gs:[{scratch}], rcx
    pop qword ptr gs:[{vector}]
    jmp 5f

    // The vector and an error code are on the stack, and the frame above them.
tare_isolated_exception:
    test byte ptr [rsp + 24], 3
    jz tare_exception_entry
    // Where KVM leaves SYSCALL in ring 3, its target faults: it is not a program's.
    cmp qword ptr [rsp + 16], offset tare_isolated_syscall
    je 6f
    push rcx
    mov rcx, [rsp + 8]
    bt qword ptr [rip + tare_programs_own], rcx
    jnc 7f
    swapgs
    mov qword ptr gs:[{on}], 0
    pop qword ptr gs:[{scratch}]
    pop qword ptr gs:[{fault}]
    pop qword ptr gs:[{fault} + 8]
    mov rcx, cr2
    mov gs:[{fault} + 16], rcx
    mov qword ptr gs:[{vector}], 0
5:
    pop qword ptr gs:[{resume}]
    add rsp, 8                  // CS
    pop qword ptr gs:[{flags}]
    mov rsp, [rsp]
    mov rcx, gs:[{context}]
    TARE_USER_SAVE_COMMON
    mov rdx, gs:[{flags}]
    mov [rcx + {rflags}], rdx
    mov rdx, gs:[{scratch}]
    mov [rcx + {rcx}], rdx
    mov rdx, gs:[{resume}]
    mov [rcx + {rip}], rdx
    sti
    jmp tare_user_saved
6:
    swapgs
    mov rsp, [rsp + 40]
    jmp 4b
7:
    pop rcx
    swapgs
    jmp tare_exception_entry

    // Accesses to a program's memory: a fault here makes them give 1.
    .section .text.tare_user_access, "ax", @progbits
    .balign 16
    .global tare_user_copy
    .global tare_user_load
    .global tare_user_store
    .global tare_user_exchange
    .global tare_user_access
    .global tare_user_access_end
tare_user_copy:
    mov rcx, rdx
tare_user_access:
    rep movsb
    xor eax, eax
    ret
tare_user_load:
    mov ecx, [rdi]
    mov [rsi], ecx
    xor eax, eax
    ret
tare_user_store:
    mov [rdi], rsi
    xor eax, eax
    ret
tare_user_exchange:
    mov eax, esi
    lock cmpxchg [rdi], edx
    mov [rcx], eax
    xor eax, eax
    ret
tare_user_access_end:
    mov eax, 1
    ret
    "#,
    rax = const offset_of!(Registers, rax),
    rbx = const offset_of!(Registers, rbx),
    rcx = const offset_of!(Registers, rcx),
    rdx = const offset_of!(Registers, rdx),
    rsi = const offset_of!(Registers, rsi),
    rdi = const offset_of!(Registers, rdi),
    rbp = const offset_of!(Registers, rbp),
    rsp = const offset_of!(Registers, rsp),
    r8 = const offset_of!(Registers, r8),
    r9 = const offset_of!(Registers, r9),
    r10 = const offset_of!(Registers, r10),
    r11 = const offset_of!(Registers, r11),
    r12 = const offset_of!(Registers, r12),
    r13 = const offset_of!(Registers, r13),
    r14 = const offset_of!(Registers, r14),
    r15 = const offset_of!(Registers, r15),
    rip = const offset_of!(Registers, rip),
    rflags = const offset_of!(Registers, rflags),
    context = const USER_OFFSET + offset_of!(Area, context),
    stack = const USER_OFFSET + offset_of!(Area, stack),
    target = const USER_OFFSET + offset_of!(Area, target),
    target_rcx = const USER_OFFSET + offset_of!(Area, target_rcx),
    scratch = const USER_OFFSET + offset_of!(Area, scratch),
    vector = const USER_OFFSET + offset_of!(Area, vector),
    flags = const USER_OFFSET + offset_of!(Area, flags),
    on = const INTERRUPTS_ON_OFFSET,
    pending = const PENDING_OFFSET,
    resume = const RESUME_OFFSET,
    system_call = const SYSTEM_CALL,
    jump = const JUMP,
    flags_of_jump = const FLAGS_OF_JUMP,
    interrupt = const INTERRUPT,
    fault_exit = const FAULT,
    fault = const USER_OFFSET + offset_of!(Area, fault),
    user_data = const gate::USER_DATA,
    user_code = const gate::USER_CODE,
    stub = const STUB,
    gates = const GATES,
    with_error_code = const WITH_ERROR_CODE,
);
