//! ELF64 for x86-64: parsed into a valid type first, written afterwards.
//!
//! linux-loader's ELF loader checks neither class nor machine, nor overlaps, nor
//! places, and takes the last note for the only one; images here are hostile, so
//! headers are parsed here, and linux-loader gives the PVH structures.
//! Reference: System V ABI, chapters 4 and 5.

mod header;

use std::io::SeekFrom;
use std::ops::Range;

use tare_abi::layout::{HIGH_RAM, MIB, MMIO_GAP_START};
use tare_abi::options::Options;
use tare_abi::rings::Rings;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use crate::GuestMemoryMmap;
use crate::error::LoadError;
use crate::note;
use crate::protocol::Protocol;
use crate::source::{Source, size};
use header::{ProgramHeader, program_headers, read_at};

const MAX_NOTES_BYTES: u64 = 64 * 1024;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;

/// A checked image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    entry: Entry,
    segments: Vec<Segment>,
}

/// Where an image is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// By its PVH note.
    Pvh(u64),
    /// At the ELF header's entry, in 64-bit mode (vmlinux without the note).
    Linux64(u64),
}

impl Entry {
    fn address(self) -> u64 {
        match self {
            Self::Pvh(address) | Self::Linux64(address) => address,
        }
    }
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

impl Image {
    /// Reads and checks the headers and the notes of `source`.
    pub(crate) fn parse<S: Source>(source: &mut S, protocol: Protocol) -> Result<Self, LoadError> {
        let file_bytes = size(source).map_err(LoadError::Image)?;
        let (elf_entry, headers) = program_headers(source, file_bytes)?;
        let segments = headers
            .iter()
            .filter(|header| header.kind == PT_LOAD && header.memory_bytes > 0)
            .map(|header| Segment::parse(header, file_bytes))
            .collect::<Result<Vec<_>, _>>()?;
        if segments.is_empty() {
            return Err(LoadError::NoSegments);
        }
        let pvh = in_notes(source, &headers, file_bytes, note::pvh_entry)?;
        let entry = match (pvh, protocol) {
            (Some(entry), _) => Entry::Pvh(entry),
            (None, Protocol::Linux) => Entry::Linux64(elf_entry),
            (None, Protocol::Pvh) => return Err(LoadError::NoPvhNote),
        };
        let image = Self { entry, segments };
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
        let entry = self.entry.address();
        let holds = |segment: &Segment| {
            (segment.start..segment.start + segment.file_bytes).contains(&entry)
        };
        if self.segments.iter().any(holds) {
            Ok(())
        } else {
            Err(LoadError::EntryOutside { entry })
        }
    }

    /// Checks that each segment lies in memory and off the boot information.
    pub(crate) fn check_placement(&self, memory: &GuestMemoryMmap) -> Result<(), LoadError> {
        self.segments
            .iter()
            .try_for_each(|segment| segment.check_placement(memory))
    }

    /// The entry.
    pub(crate) fn entry(&self) -> Entry {
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
        let end = header
            .address
            .checked_add(header.memory_bytes)
            .ok_or(LoadError::Headers {
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

/// The rings that an image names in a note (`tare_abi::rings`); `None` without a note, which
/// means either ring.
pub fn rings<S: Source>(source: &mut S) -> Result<Option<Rings>, LoadError> {
    noted(source, note::rings)
}

/// The options that an image takes, as it names them in a note ([`tare_abi::options`]).
pub fn options<S: Source>(source: &mut S) -> Result<Options, LoadError> {
    Ok(noted(source, note::options)?.unwrap_or_default())
}

/// Guest-physical address of the table in which an image counts the time limits and timers of its
/// program that ran out ([`tare_abi::expiries`]); `None` for an image that does not. It may lie
/// anywhere: the file says so.
pub fn expiries<S: Source>(source: &mut S) -> Result<Option<u64>, LoadError> {
    noted(source, note::expiries)
}

/// Whether a file is an image or a kernel, which names its 32-bit entry in a note (Xen
/// `docs/misc/pvh.pandoc`), and not a program. Reads its headers and notes only.
pub fn boots_by_itself<S: Source>(source: &mut S) -> bool {
    let entry = |notes: &[u8], align| Ok(note::has_pvh_entry(notes, align).then_some(()));
    matches!(noted(source, entry), Ok(Some(())))
}

/// What `read` finds first in the notes of a file, of which only headers and notes are read.
fn noted<S: Source, T>(
    source: &mut S,
    read: impl Fn(&[u8], u64) -> Result<Option<T>, LoadError>,
) -> Result<Option<T>, LoadError> {
    let file_bytes = size(source).map_err(LoadError::Image)?;
    let (_, headers) = program_headers(source, file_bytes)?;
    in_notes(source, &headers, file_bytes, read)
}

/// What `read` finds first in any of the note segments; it gets a segment's bytes and alignment.
fn in_notes<S: Source, T>(
    source: &mut S,
    headers: &[ProgramHeader],
    file_bytes: u64,
    read: impl Fn(&[u8], u64) -> Result<Option<T>, LoadError>,
) -> Result<Option<T>, LoadError> {
    for header in headers.iter().filter(|header| header.kind == PT_NOTE) {
        header.check_in_file(file_bytes)?;
        if header.file_bytes > MAX_NOTES_BYTES {
            return Err(LoadError::Notes);
        }
        let notes = read_at(source, header.offset, header.file_bytes as usize)?;
        if let Some(found) = read(&notes, header.align)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
