//! ELF files made by hand, as wrong as a test wants them.

use std::io::Cursor;

use tare_abi::layout::MIB;
use tare_boot::{GuestMemoryMmap, LoadError, LoadOptions, Loaded, Protocol, load};
use vm_memory::GuestAddress;

pub(crate) const ENTRY: u32 = 0x10_0040;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;

/// A program header and the bytes that it points to.
#[derive(Clone)]
pub(crate) struct Segment {
    pub kind: u32,
    pub address: u64,
    pub bytes: Vec<u8>,
    /// Bytes in memory; those in the file where `None`.
    pub memory_bytes: Option<u64>,
}

impl Segment {
    pub(crate) fn load(address: u64, bytes: &[u8]) -> Self {
        Self {
            kind: 1,
            address,
            bytes: bytes.to_vec(),
            memory_bytes: None,
        }
    }

    pub(crate) fn with_memory(self, bytes: u64) -> Self {
        Self {
            memory_bytes: Some(bytes),
            ..self
        }
    }

    /// A PVH note that says `entry`.
    pub(crate) fn pvh_note(entry: u32) -> Self {
        let mut bytes = Vec::new();
        for word in [4_u32, 4, 18] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(b"Xen\0");
        bytes.extend(entry.to_le_bytes());
        Self {
            kind: 4,
            address: 0,
            bytes,
            memory_bytes: None,
        }
    }
}

/// An executable for x86-64 of these segments.
pub(crate) fn elf(segments: &[Segment]) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(2_u16.to_le_bytes()); // executable
    file.extend(62_u16.to_le_bytes()); // x86-64
    file.extend(1_u32.to_le_bytes());
    for word in [0, HEADER_BYTES as u64, 0] {
        file.extend(u64::to_le_bytes(word)); // entry, program and section headers
    }
    file.extend(0_u32.to_le_bytes());
    let halves = [HEADER_BYTES, PROGRAM_HEADER_BYTES, segments.len(), 64, 0, 0];
    for half in halves {
        file.extend((half as u16).to_le_bytes());
    }
    let mut offset = HEADER_BYTES + PROGRAM_HEADER_BYTES * segments.len();
    for segment in segments {
        file.extend(segment.kind.to_le_bytes());
        file.extend(7_u32.to_le_bytes());
        let size = segment.bytes.len() as u64;
        let memory = segment.memory_bytes.unwrap_or(size);
        let (offset_word, address) = (offset as u64, segment.address);
        for word in [offset_word, address, address, size, memory, 4] {
            file.extend(word.to_le_bytes());
        }
        offset += segment.bytes.len();
    }
    for segment in segments {
        file.extend(&segment.bytes);
    }
    file
}

/// An image that loads: code at 1 MiB, data and zeros at 2 MiB.
pub(crate) fn valid_segments() -> Vec<Segment> {
    vec![
        Segment::load(MIB, &[0x90; 256]),
        Segment::load(2 * MIB, &[7; 100]).with_memory(0x3000),
        Segment::pvh_note(ENTRY),
    ]
}

pub(crate) fn memory(mib: u64) -> GuestMemoryMmap {
    GuestMemoryMmap::from_ranges(&[(GuestAddress(0), (mib * MIB) as usize)]).unwrap()
}

/// Loads `file` with nothing beside it into 8 MiB.
pub(crate) fn load_alone(file: &[u8]) -> Result<Loaded, LoadError> {
    let options = LoadOptions {
        cmdline: "",
        initramfs: None,
        cpus: 1,
        protocol: Protocol::Pvh,
    };
    load(&memory(8), &mut Cursor::new(file), options)
}
