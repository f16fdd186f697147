//! Guests of a few bytes: an ELF file with a PVH note whose 32-bit code prints
//! a line on the serial port and then does one thing.

const LOAD: u64 = 0x10_0000;
const HEADERS: usize = 64 + 2 * 56;
const NOTE: usize = 20;
const CODE: usize = HEADERS + NOTE;

/// What a guest does after its line.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// Writes a value to the exit port.
    Exit(u32),
    /// Writes to the POST port as often as the second number says, then the first to
    /// the exit port.
    ExitAfter(u32, u32),
    /// Halts with interrupts off, forever.
    Halt,
    /// Shuts the processor down by a fault without a handler.
    TripleFault,
    /// Asks the keyboard controller for a reset.
    Reset,
    /// Powers off through the ACPI sleep register.
    PowerOff,
}

/// An image that prints `line` and a newline.
pub(crate) fn image(line: &str, then: Then) -> Vec<u8> {
    image_that_sends(&[], line, then)
}

/// One that first sends bytes by its second serial port, if there are any.
pub(crate) fn image_that_sends(bytes: &[u8], line: &str, then: Then) -> Vec<u8> {
    let mut code = Vec::new();
    let line = [line.as_bytes(), b"\r\n"].concat();
    for (port, bytes) in [([0xf8, 0x02], bytes), ([0xf8, 0x03], &line)] {
        code.extend([0x66, 0xba]); // mov dx, port
        code.extend(port);
        for byte in bytes {
            code.extend([0xb0, *byte, 0xee]); // mov al, byte; out dx, al
        }
    }
    match then {
        Then::Exit(value) => {
            code.extend([0xba, 0xf4, 0, 0, 0, 0xb8]); // mov edx, 0xf4; mov eax, value
            code.extend(value.to_le_bytes());
            code.push(0xef); // out dx, eax
        }
        Then::ExitAfter(value, writes) => {
            code.push(0xb9); // mov ecx, writes
            code.extend(writes.to_le_bytes());
            code.extend([0xe6, 0x80, 0xe2, 0xfc]); // out 0x80, al; loop
            code.extend([0xba, 0xf4, 0, 0, 0, 0xb8]); // mov edx, 0xf4; mov eax, value
            code.extend(value.to_le_bytes());
            code.push(0xef); // out dx, eax
        }
        Then::Halt => {}
        Then::TripleFault => {
            // An interrupt table of no entries, from memory that is zero.
            code.extend([0x0f, 0x01, 0x1d, 0, 0, 0x30, 0]); // lidt [0x300000]
            code.extend([0x0f, 0x0b]); // ud2
        }
        Then::Reset => code.extend([0xb0, 0xfe, 0xe6, 0x64]), // mov al, 0xfe; out 0x64, al
        Then::PowerOff => code.extend([0x66, 0xba, 0x00, 0x06, 0xb0, 0x34, 0xee]),
    }
    code.extend([0xfa, 0xf4, 0xeb, 0xfd]); // cli; hlt; again
    elf(&code)
}

/// An image whose notes say nothing of PVH.
pub(crate) fn without_note() -> Vec<u8> {
    let mut image = image("", Then::Halt);
    image[HEADERS + 8] = 0; // the note's type
    image
}

/// An image that needs more memory than 64 MiB.
pub(crate) fn too_large() -> Vec<u8> {
    let mut image = image("", Then::Halt);
    image[64 + 40..64 + 48].copy_from_slice(&(256u64 << 20).to_le_bytes());
    image
}

/// An image that ends inside its segment.
pub(crate) fn truncated() -> Vec<u8> {
    let mut image = image("a long line, so that there is something to cut", Then::Halt);
    image.truncate(CODE + 4);
    image
}

/// An image whose segment lies where boot information goes, away from its entry.
pub(crate) fn below_one_mib() -> Vec<u8> {
    let mut image = image("", Then::Halt);
    image[64 + 24..64 + 32].copy_from_slice(&0x1000u64.to_le_bytes());
    image
}

fn elf(code: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend(2u16.to_le_bytes()); // executable
    file.extend(62u16.to_le_bytes()); // x86-64
    file.extend(1u32.to_le_bytes());
    file.extend((LOAD + CODE as u64).to_le_bytes());
    file.extend(64u64.to_le_bytes()); // program headers
    file.extend(0u64.to_le_bytes());
    file.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 2, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    let bytes = (CODE + code.len()) as u64;
    header(&mut file, 1, 0, LOAD, bytes);
    header(
        &mut file,
        4,
        HEADERS as u64,
        LOAD + HEADERS as u64,
        NOTE as u64,
    );
    for word in [4u32, 4, 18] {
        file.extend(word.to_le_bytes());
    }
    file.extend(b"Xen\0");
    file.extend((LOAD as u32 + CODE as u32).to_le_bytes());
    assert_eq!(file.len(), CODE);
    file.extend(code);
    file
}

fn header(file: &mut Vec<u8>, kind: u32, offset: u64, address: u64, bytes: u64) {
    file.extend(kind.to_le_bytes());
    file.extend(7u32.to_le_bytes());
    for word in [offset, address, address, bytes, bytes, 4] {
        file.extend(word.to_le_bytes());
    }
}
