//! The registers that an interrupt handler may change (System V ABI, 3.2.1), for
//! entry code in assembly: nine, 72 bytes.

/// Pushes them.
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

pub(crate) use {restore_registers, save_registers};
