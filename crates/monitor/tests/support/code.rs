//! 32-bit guest code, assembled by hand.

use tare_abi::exit::GuestExit;
use tare_abi::ports;

/// `cli; hlt` forever.
pub(crate) const HALT: &[u8] = &[0xfa, 0xf4, 0xeb, 0xfd];
/// `ud2` without an interrupt table: a triple fault.
pub(crate) const TRIPLE_FAULT: &[u8] = &[0x0f, 0x0b];
/// `fwait`, which KVM's emulator lacks.
pub(crate) const NOT_EMULATED: &[u8] = &[0x9b];
/// `jmp $`.
pub(crate) const SPIN: &[u8] = &[0xeb, 0xfe];

/// Writes `text` to COM1, byte by byte.
pub(crate) fn print(text: &str) -> Vec<u8> {
    let mut code = set_dx(ports::COM1);
    for byte in text.bytes() {
        code.extend_from_slice(&[0xb0, byte, 0xee]);
    }
    code
}

/// Writes the exit port.
pub(crate) fn exit(exit: GuestExit) -> Vec<u8> {
    let mut code = set_dx(ports::EXIT);
    code.push(0xb8);
    code.extend_from_slice(&exit.to_value().to_le_bytes());
    code.push(0xef);
    code.extend_from_slice(HALT);
    code
}

/// Writes a byte to a port.
pub(crate) fn out(port: u16, value: u8) -> Vec<u8> {
    let mut code = set_dx(port);
    code.extend_from_slice(&[0xb0, value, 0xee]);
    code
}

/// Echoes COM1's input, polling its line status, until a `!` came, which it echoes, too.
pub(crate) fn echo() -> Vec<u8> {
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

/// Prints `byte` forever.
pub(crate) fn flood(byte: u8) -> Vec<u8> {
    let mut code = set_dx(ports::COM1);
    code.extend_from_slice(&[0xb0, byte, 0xee, 0xeb, 0xfd]);
    code
}

/// Several pieces in a row.
pub(crate) fn all(pieces: &[&[u8]]) -> Vec<u8> {
    pieces.concat()
}

fn set_dx(port: u16) -> Vec<u8> {
    let [low, high] = port.to_le_bytes();
    vec![0x66, 0xba, low, high]
}

/// `mov byte [address], value`.
pub(crate) fn store8(address: u32, value: u8) -> Vec<u8> {
    store(&[0xc6, 0x05], address, &[value])
}

/// `mov word [address], value`.
pub(crate) fn store16(address: u32, value: u16) -> Vec<u8> {
    store(&[0x66, 0xc7, 0x05], address, &value.to_le_bytes())
}

/// `mov dword [address], value`.
pub(crate) fn store32(address: u32, value: u32) -> Vec<u8> {
    store(&[0xc7, 0x05], address, &value.to_le_bytes())
}

/// Writes a byte of memory to COM1, with `offset` added.
pub(crate) fn print_memory(address: u32, offset: u8) -> Vec<u8> {
    let mut code = set_dx(ports::COM1);
    code.push(0xa0);
    code.extend_from_slice(&address.to_le_bytes());
    code.extend_from_slice(&[0x04, offset, 0xee]);
    code
}

/// `mov esp, top`.
pub(crate) fn set_stack(top: u32) -> Vec<u8> {
    [&[0xbc][..], &top.to_le_bytes()].concat()
}

/// `lidt [address]`.
pub(crate) fn load_idt(address: u32) -> Vec<u8> {
    [&[0x0f, 0x01, 0x1d][..], &address.to_le_bytes()].concat()
}

/// `sti; hlt` forever.
pub(crate) const WAIT: &[u8] = &[0xfb, 0xf4, 0xeb, 0xfc];

/// `code`, and behind it at `offset` from its begin, `handler`.
pub(crate) fn with_handler(mut code: Vec<u8>, offset: usize, handler: &[u8]) -> Vec<u8> {
    assert!(code.len() <= offset, "{} bytes", code.len());
    code.resize(offset, 0xf4);
    code.extend_from_slice(handler);
    code
}

fn store(operation: &[u8], address: u32, value: &[u8]) -> Vec<u8> {
    [operation, &address.to_le_bytes(), value].concat()
}
