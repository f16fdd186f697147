//! Registers in assembly: those that an interrupt handler may change (System V ABI, 3.2.1), nine,
//! 72 bytes, for entry code; and all general ones, for tests of gates.

/// Pushes those of a handler.
macro_rules! save_registers {
    () => {
        "
        push rax
        push rcx
        push rdx
        push rsi
        push rdi
        push r8
        push r9
        push r10
        push r11
        "
    };
}

/// Pops what [`save_registers`] pushed.
macro_rules! restore_registers {
    () => {
        "
        pop r11
        pop r10
        pop r9
        pop r8
        pop rdi
        pop rsi
        pop rdx
        pop rcx
        pop rax
        "
    };
}

/// Loads all general registers but RSP from words at RDI: RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8 to
/// R15. Keeps the flags.
macro_rules! load_registers {
    () => {
        "
        mov rax, [rdi]
        mov rbx, [rdi + 8]
        mov rcx, [rdi + 16]
        mov rdx, [rdi + 24]
        mov rsi, [rdi + 32]
        mov rbp, [rdi + 48]
        mov r8, [rdi + 56]
        mov r9, [rdi + 64]
        mov r10, [rdi + 72]
        mov r11, [rdi + 80]
        mov r12, [rdi + 88]
        mov r13, [rdi + 96]
        mov r14, [rdi + 104]
        mov r15, [rdi + 112]
        mov rdi, [rdi + 40]
        "
    };
}

pub(crate) use {load_registers, restore_registers, save_registers};
