//! The first instructions: from the loader's state to Rust in long mode.
//!
//! - `tare_start32`, the PVH entry (Xen `docs/misc/pvh.pandoc`; the note names
//!   it): 32-bit protected mode, paging off, EBX = `hvm_start_info`.
//! - `tare_start64`, the ELF entry (Linux `Documentation/arch/x86/boot.rst`, 64-bit
//!   protocol): long mode on the loader's page tables, RSI = `boot_params`.
//!
//! Both continue in `tare_boot(information, protocol)` on the boot stack, with
//! the first GiB identity mapped, nothing executable but the image and the
//! page where further CPUs start. Those tables are constants of
//! the image, so that making them costs no instruction.

#![allow(unsafe_code)]

use core::arch::global_asm;

use crate::gates::CODE_SELECTOR;

/// Where further CPUs begin in real mode.
const TRAMPOLINE: u64 = tare_abi::layout::AP_TRAMPOLINE;

/// Selector of the data segment in every GDT.
const DATA_SELECTOR: u16 = 0x10;

global_asm!(
    r#"
    .section .note.Xen, "a", @note
    .balign 4
    .long 4, 4, 18              // XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long tare_start32

    .section .bss.ring0, "aw", @nobits
    .balign 4096
tare_pml4:
    .skip 4096
    .global tare_pml4
tare_pdpt:
    .skip 4096
    .global tare_pdpt

    .section .bss.boot, "aw", @nobits
    .balign 4096
    .skip 32768
tare_boot_stack:
    .global tare_boot_stack

    .section .data.ring0, "aw", @progbits
    .balign 4096
    // 2 MiB pages of the first GiB: present, writable, user, accessed, dirty, large, not
    // executable; the first one by 4 KiB pages. The image's, from 1 MiB to 6 MiB, are executable
    // until `memory::paging` has protected its sections.
tare_pd0:
    .global tare_pd0
    .quad tare_pt0 + 0x27
    .quad (1 << 21) | 0xe7
    .quad (2 << 21) | 0xe7
    .set page, 3
    .rept 509
    .quad (page << 21) | 0x80000000000000e7
    .set page, page + 1
    .endr
tare_pt0:
    .set page, 0
    .rept {image} >> 12
    .if page == {trampoline} >> 12
    .quad (page << 12) | 0x67
    .else
    .quad (page << 12) | 0x8000000000000067
    .endif
    .set page, page + 1
    .endr
    .rept 512 - ({image} >> 12)
    .quad (page << 12) | 0x67
    .set page, page + 1
    .endr

    .section .rodata.boot, "a", @progbits
    .balign 8
tare_boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff    // 64-bit code
    .quad 0x00cf93000000ffff    // data
tare_boot_gdtr:
    .word 23
    .quad tare_boot_gdt

    .section .text.boot, "ax", @progbits
    .code32
    .global tare_start32
tare_start32:
    cli
    cld
    mov esp, offset tare_boot_stack
    mov edi, ebx
    mov dword ptr [tare_pml4], offset tare_pdpt + 0x27
    mov dword ptr [tare_pdpt], offset tare_pd0 + 0x27
    mov eax, cr4
    or eax, 0xa0                // PAE, PGE
    mov cr4, eax
    mov ecx, 0xc0000080         // EFER: long mode, no-execute
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, offset tare_pml4
    mov cr3, eax
    mov eax, cr0
    or eax, 0x80010001          // paging, write protection, protected mode
    and eax, 0x9fffffff         // caches on
    mov cr0, eax
    lgdt [tare_boot_gdtr]
    push {code}
    .byte 0x68                  // push, 32-bit operand
    .long tare_long_mode
    retf
    .code64
tare_long_mode:
    mov edi, edi
    xor esi, esi
    jmp 3f

    .global tare_start64
tare_start64:
    cli
    cld
    mov rsp, offset tare_boot_stack
    mov rdi, rsi
    mov qword ptr [tare_pml4], offset tare_pdpt + 0x27
    mov qword ptr [tare_pdpt], offset tare_pd0 + 0x27
    mov rax, cr4
    or rax, 0xa0
    mov cr4, rax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900
    wrmsr
    mov rax, offset tare_pml4
    mov cr3, rax
    mov rax, cr0
    or rax, 0x10000
    mov cr0, rax
    lgdt [tare_boot_gdtr]
    push {code}
    mov rax, offset tare_own_segments
    push rax
    retfq
tare_own_segments:
    mov esi, 1
3:
    mov eax, {data}
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    xor ebp, ebp
    call tare_boot
    ud2
    "#,
    trampoline = const TRAMPOLINE,
    image = const tare_abi::layout::HIGH_RAM,
    code = const CODE_SELECTOR,
    data = const DATA_SELECTOR,
);

global_asm!(
    r#"
    // Copied to the trampoline page; real mode, CS = page. Straight from real
    // to long mode (AMD64 APM vol. 2, 14.6.1), on the tables of the first CPU.
    .section .rodata.trampoline, "a", @progbits
    .global tare_trampoline
    .global tare_trampoline_end
    .code16
tare_trampoline:
    cli
    mov ax, cs
    mov ds, ax
    .byte 0x66, 0x0f, 0x01, 0x16 // lgdt with a 32-bit base, at this offset
    .word tare_trampoline_gdtr - tare_trampoline
    mov eax, cr4
    or eax, 0xa0
    mov cr4, eax
    mov eax, offset tare_pml4
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x900
    wrmsr
    mov eax, 0x80010011         // paging, write protection, ET, protected mode
    mov cr0, eax
    .byte 0x66, 0xea            // far jump to 64-bit code
    .long tare_start_ap
    .word {code}
    .balign 4
tare_trampoline_gdtr:
    .word 23
    .long tare_boot_gdt
tare_trampoline_end:

    .section .text.boot, "ax", @progbits
    .code64
    .global tare_start_ap
tare_start_ap:
    mov eax, {data}
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov eax, 1
    cpuid
    shr ebx, 24                 // initial APIC ID
    mov rax, [tare_ap_areas + rbx * 8]
    test rax, rax
    jz 5f
    mov rsp, [rax + {stack_top}]
    mov rdi, rax
    xor ebp, ebp
    call tare_boot_ap
5:
    cli
    hlt
    jmp 5b
    "#,
    code = const CODE_SELECTOR,
    data = const DATA_SELECTOR,
    stack_top = const crate::percpu::STACK_TOP_OFFSET,
);
