//! ELF64 for x86-64: parsed into a valid type first, written afterwards.
//!
//! linux-loader's ELF loader checks neither class nor machine, nor overlaps, nor
//! places, and takes the last note for the only one; images here are hostile, so
//! headers are parsed here, and linux-loader gives the PVH structures.
//! Reference: System V ABI, chapters 4 and 5.

use std::io::SeekFrom;
use std::ops::Range;

use tare_abi::layout::{HIGH_RAM, MIB, MMIO_GAP_START};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use crate::GuestMemoryMmap;
use crate::error::{LoadError, Part};
use crate::load::{Source, size};
use crate::note;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// Far more than any linker writes.
const MAX_PROGRAM_HEADERS: usize = 256;
const MAX_NOTES_BYTES: u64 = 64 * 1024;

const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const TYPE_EXECUTABLE: u16 = 2;
const TYPE_SHARED: u16 = 3;
const MACHINE_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;

/// A checked image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    entry: u64,
    segments: Vec<Segment>,
}

/// A part of the file that goes to memory; its bytes are in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    number: usize,
    offset: u64,
    file_bytes: u64,
    start: u64,
    end: u64,
}

struct ProgramHeader {
    number: usize,
    kind: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
    align: u64,
}

impl Image {
    /// Reads and checks the headers and the notes of `source`.
    pub(crate) fn parse<S: Source>(source: &mut S) -> Result<Self, LoadError> {
        let file_bytes = size(source).map_err(LoadError::Image)?;
        let headers = program_headers(source, file_bytes)?;
        let segments = headers
            .iter()
            .filter(|header| header.kind == PT_LOAD && header.memory_bytes > 0)
            .map(|header| Segment::parse(header, file_bytes))
            .collect::<Result<Vec<_>, _>>()?;
        if segments.is_empty() {
            return Err(LoadError::NoSegments);
        }
        let image = Self {
            entry: pvh_entry(source, &headers, file_bytes)?,
            segments,
        };
        image.check_overlaps()?;
        image.check_entry()?;
        Ok(image)
    }

    fn check_overlaps(&self) -> Result<(), LoadError> {
        let mut sorted: Vec<_> = self.segments.iter().collect();
        sorted.sort_by_key(|segment| segment.start);
        match sorted.windows(2).find(|pair| pair[0].end > pair[1].start) {
            None => Ok(()),
            Some(pair) => Err(LoadError::Overlap {
                first: pair[0].number.min(pair[1].number),
                second: pair[0].number.max(pair[1].number),
            }),
        }
    }

    fn check_entry(&self) -> Result<(), LoadError> {
        let holds = |segment: &Segment| {
            (segment.start..segment.start + segment.file_bytes).contains(&self.entry)
        };
        if self.segments.iter().any(holds) {
            Ok(())
        } else {
            Err(LoadError::EntryOutside { entry: self.entry })
        }
    }

    /// Checks that each segment lies in memory and off the boot information.
    pub(crate) fn check_placement(&self, memory: &GuestMemoryMmap) -> Result<(), LoadError> {
        self.segments
            .iter()
            .try_for_each(|segment| segment.check_placement(memory))
    }

    /// The PVH entry.
    pub(crate) fn entry(&self) -> u64 {
        self.entry
    }

    /// From the first to behind the last address.
    pub(crate) fn span(&self) -> Range<u64> {
        let first = self.segments.iter().map(|segment| segment.start).min();
        let last = self.segments.iter().map(|segment| segment.end).max();
        first.unwrap_or(0)..last.unwrap_or(0)
    }

    /// End of the part of the image that lies below `limit`.
    pub(crate) fn low_end(&self, limit: u64) -> u64 {
        self.segments
            .iter()
            .map(|segment| segment.end)
            .filter(|end| *end <= limit)
            .max()
            .unwrap_or(HIGH_RAM)
    }

    /// Writes the segments; what they do not have in the file stays zero.
    pub(crate) fn write<S: Source>(
        &self,
        source: &mut S,
        memory: &GuestMemoryMmap,
    ) -> Result<(), LoadError> {
        for segment in &self.segments {
            source
                .seek(SeekFrom::Start(segment.offset))
                .map_err(LoadError::Image)?;
            memory.read_exact_volatile_from(
                GuestAddress(segment.start),
                source,
                segment.file_bytes as usize,
            )?;
        }
        Ok(())
    }
}

impl Segment {
    fn parse(header: &ProgramHeader, file_bytes: u64) -> Result<Self, LoadError> {
        header.check_in_file(file_bytes)?;
        if header.file_bytes > header.memory_bytes {
            return Err(LoadError::SegmentSize {
                segment: header.number,
                file_bytes: header.file_bytes,
                memory_bytes: header.memory_bytes,
            });
        }
        let end = header.address.checked_add(header.memory_bytes);
        let end = end.ok_or(LoadError::Headers {
            what: "a segment ends beyond the address space",
        })?;
        Ok(Self {
            number: header.number,
            offset: header.offset,
            file_bytes: header.file_bytes,
            start: header.address,
            end,
        })
    }

    fn check_placement(&self, memory: &GuestMemoryMmap) -> Result<(), LoadError> {
        if self.start < HIGH_RAM {
            return Err(LoadError::BootArea {
                segment: self.number,
                start: self.start,
            });
        }
        let fits = memory
            .find_region(GuestAddress(self.start))
            .is_some_and(|region| self.end <= region.start_addr().0 + region.len());
        if fits {
            return Ok(());
        }
        Err(LoadError::OutsideMemory {
            segment: self.number,
            start: self.start,
            end: self.end,
            have_mib: memory.iter().map(GuestMemoryRegion::len).sum::<u64>() / MIB,
            need_mib: (self.end <= MMIO_GAP_START).then(|| self.end.div_ceil(MIB)),
        })
    }
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

    fn check_in_file(&self, file_bytes: u64) -> Result<(), LoadError> {
        let end = self.offset.saturating_add(self.file_bytes);
        check_end(Part::Segment(self.number), end, file_bytes)
    }
}

fn program_headers<S: Source>(
    source: &mut S,
    file_bytes: u64,
) -> Result<Vec<ProgramHeader>, LoadError> {
    let (offset, count) = elf_header(source, file_bytes)?;
    let table_bytes = count * PROGRAM_HEADER_BYTES;
    let end = offset.saturating_add(table_bytes as u64);
    check_end(Part::ProgramHeaders, end, file_bytes)?;
    let table = read_at(source, offset, table_bytes)?;
    Ok(table
        .chunks_exact(PROGRAM_HEADER_BYTES)
        .enumerate()
        .map(|(number, bytes)| ProgramHeader::parse(number, bytes))
        .collect())
}

/// Offset and number of the program headers.
fn elf_header<S: Source>(source: &mut S, file_bytes: u64) -> Result<(u64, usize), LoadError> {
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
    Ok((u64_at(&begin, 32), count))
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

/// The first PVH note in any of the note segments.
fn pvh_entry<S: Source>(
    source: &mut S,
    headers: &[ProgramHeader],
    file_bytes: u64,
) -> Result<u64, LoadError> {
    for header in headers.iter().filter(|header| header.kind == PT_NOTE) {
        header.check_in_file(file_bytes)?;
        if header.file_bytes > MAX_NOTES_BYTES {
            return Err(LoadError::Notes);
        }
        let notes = read_at(source, header.offset, header.file_bytes as usize)?;
        if let Some(entry) = note::pvh_entry(&notes, header.align)? {
            return Ok(entry);
        }
    }
    Err(LoadError::NoPvhNote)
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

fn read_at<S: Source>(source: &mut S, offset: u64, count: usize) -> Result<Vec<u8>, LoadError> {
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
