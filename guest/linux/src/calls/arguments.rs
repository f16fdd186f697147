//! What a system call gets.

use crate::thread::Registers;

/// A call's arguments, in order: RDI, RSI, RDX, R10, R8, R9.
pub(super) type Arguments = [u64; 6];

/// The arguments of the call in the registers.
pub(super) fn of(registers: &Registers) -> Arguments {
    let r = registers;
    [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]
}
