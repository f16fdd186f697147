//! The ELF header and the program headers.

use std::io::SeekFrom;

use crate::error::{LoadError, Part};
use crate::source::Source;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// Far more than any linker writes.
const MAX_PROGRAM_HEADERS: usize = 256;

const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const TYPE_EXECUTABLE: u16 = 2;
const TYPE_SHARED: u16 = 3;
const MACHINE_X86_64: u16 = 62;

/// A program header, as it is in the file.
pub(super) struct ProgramHeader {
    pub(super) number: usize,
    pub(super) kind: u32,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) file_bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) align: u64,
}

impl ProgramHeader {
    fn parse(number: usize, bytes: &[u8]) -> Self {
        Self {
            number,
            kind: u32_at(bytes, 0),
            offset: u64_at(bytes, 8),
            address: u64_at(bytes, 24),
            file_bytes: u64_at(bytes, 32),
            memory_bytes: u64_at(bytes, 40),
            align: u64_at(bytes, 48),
        }
    }

    /// Checks that the segment ends within the file.
    pub(super) fn check_in_file(&self, file_bytes: u64) -> Result<(), LoadError> {
        let end = self.offset.saturating_add(self.file_bytes);
        check_end(Part::Segment(self.number), end, file_bytes)
    }
}

/// The entry and every program header of a file of `file_bytes` bytes.
pub(super) fn program_headers<S: Source>(
    source: &mut S,
    file_bytes: u64,
) -> Result<(u64, Vec<ProgramHeader>), LoadError> {
    let (entry, offset, count) = elf_header(source, file_bytes)?;
    let table_bytes = count * PROGRAM_HEADER_BYTES;
    let end = offset.saturating_add(table_bytes as u64);
    check_end(Part::ProgramHeaders, end, file_bytes)?;
    let table = read_at(source, offset, table_bytes)?;
    let headers = table
        .chunks_exact(PROGRAM_HEADER_BYTES)
        .enumerate()
        .map(|(number, bytes)| ProgramHeader::parse(number, bytes))
        .collect();
    Ok((entry, headers))
}

/// The entry, offset and number of the program headers.
fn elf_header<S: Source>(source: &mut S, file_bytes: u64) -> Result<(u64, u64, usize), LoadError> {
    let begin = read_at(source, 0, file_bytes.min(HEADER_BYTES as u64) as usize)?;
    if !begin.starts_with(b"\x7fELF") {
        return Err(LoadError::NotElf);
    }
    check_end(Part::Header, HEADER_BYTES as u64, file_bytes)?;
    check_machine(&begin)?;
    if u16_at(&begin, 54) as usize != PROGRAM_HEADER_BYTES {
        return Err(LoadError::Headers { what: "their size" });
    }
    let count = u16_at(&begin, 56) as usize;
    if count > MAX_PROGRAM_HEADERS {
        return Err(LoadError::Headers {
            what: "their number",
        });
    }
    Ok((u64_at(&begin, 24), u64_at(&begin, 32), count))
}

fn check_machine(header: &[u8]) -> Result<(), LoadError> {
    let found = if header[4] != CLASS_64 {
        "not a 64-bit ELF file"
    } else if header[5] != LITTLE_ENDIAN {
        "a big-endian ELF file"
    } else if u16_at(header, 18) != MACHINE_X86_64 {
        "an ELF file for another processor"
    } else if ![TYPE_EXECUTABLE, TYPE_SHARED].contains(&u16_at(header, 16)) {
        "an ELF file that is not executable"
    } else {
        return Ok(());
    };
    Err(LoadError::WrongMachine { found })
}

fn check_end(part: Part, end: u64, file_bytes: u64) -> Result<(), LoadError> {
    if end <= file_bytes {
        return Ok(());
    }
    Err(LoadError::Truncated {
        part,
        end,
        file_bytes,
    })
}

pub(super) fn read_at<S: Source>(
    source: &mut S,
    offset: u64,
    count: usize,
) -> Result<Vec<u8>, LoadError> {
    let mut bytes = vec![0; count];
    source
        .seek(SeekFrom::Start(offset))
        .and_then(|_| source.read_exact(&mut bytes))
        .map_err(LoadError::Image)?;
    Ok(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
