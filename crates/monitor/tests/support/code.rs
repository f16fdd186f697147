//! 32-bit guest code, assembled by hand.

use tare_abi::{exit::GuestExit, ports};

/// `cli; hlt` for ever.
pub const HALT: &[u8] = &[0xfa, 0xf4, 0xeb, 0xfd];
/// `ud2` without an interrupt table: a triple fault.
pub const TRIPLE_FAULT: &[u8] = &[0x0f, 0x0b];
/// `fwait`, which KVM's emulator lacks.
pub const NOT_EMULATED: &[u8] = &[0x9b];
/// `jmp $`.
pub const SPIN: &[u8] = &[0xeb, 0xfe];

/// Writes `text` to COM1, byte by byte.
pub fn print(text: &str) -> Vec<u8> {
    let mut code = set_dx(ports::COM1);
    for byte in text.bytes() {
        code.extend_from_slice(&[0xb0, byte, 0xee]);
    }
    code
}

/// Writes the exit port.
pub fn exit(exit: GuestExit) -> Vec<u8> {
    let mut code = set_dx(ports::EXIT);
    code.push(0xb8);
    code.extend_from_slice(&exit.to_value().to_le_bytes());
    code.push(0xef);
    code.extend_from_slice(HALT);
    code
}

/// Writes a byte to a port.
pub fn out(port: u16, value: u8) -> Vec<u8> {
    let mut code = set_dx(port);
    code.extend_from_slice(&[0xb0, value, 0xee]);
    code
}

/// Echoes COM1's input, polling its line status, until a `!` came, which it echoes, too.
pub fn echo() -> Vec<u8> {
    vec![
        0x66, 0xba, 0xfd, 0x03, // poll: mov dx, COM1 + 5
        0xec, // in al, dx
        0xa8, 0x01, // test al, 1
        0x74, 0xf7, // jz poll
        0x66, 0xba, 0xf8, 0x03, // mov dx, COM1
        0xec, // in al, dx
        0xee, // out dx, al
        0x3c, b'!', // cmp al, '!'
        0x75, 0xed, // jne poll
    ]
}

/// Prints `byte` for ever.
pub fn flood(byte: u8) -> Vec<u8> {
    let mut code = set_dx(ports::COM1);
    code.extend_from_slice(&[0xb0, byte, 0xee, 0xeb, 0xfd]);
    code
}

/// Several pieces in a row.
pub fn all(pieces: &[&[u8]]) -> Vec<u8> {
    pieces.concat()
}

fn set_dx(port: u16) -> Vec<u8> {
    let [low, high] = port.to_le_bytes();
    vec![0x66, 0xba, low, high]
}
