//! The layout of a program's ELF file (System V ABI, chapters 4 and 5; kernel
//! `fs/binfmt_elf.c`).

use alloc::string::String;
use alloc::vec::Vec;

use core::ops::Range;

use object::LittleEndian as Le;
use object::elf::{
    EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_PHDR,
    ProgramHeader64,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

const MAGIC: &[u8] = b"\x7fELF";
/// Bytes of a page.
const PAGE: u64 = 4096;
/// End of what a program can address, less a part for stacks and mappings.
const MOST_ADDRESS: u64 = 0x5000_0000_0000;
/// Most segments that are loaded.
const MOST_SEGMENTS: usize = 64;
/// Most bytes of an interpreter's path.
const MOST_PATH: usize = 4096;

/// Where a program's file says that it is to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Whether its addresses are its own, or relative to any place.
    pub place: LoadAddress,
    /// Its first instruction.
    pub entry: u64,
    /// What is loaded, ascending, at least one.
    pub segments: Vec<Segment>,
    /// Where its program headers are once it is loaded, for `AT_PHDR`.
    pub headers: Option<u64>,
    /// How many there are.
    pub header_count: u16,
    /// The program that is to load it, of one that is linked dynamically.
    pub interpreter: Option<String>,
}

/// Whether a program's addresses are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadAddress {
    /// It must be loaded where it says.
    Fixed,
    /// It can be loaded anywhere.
    Relocatable,
}

/// A part that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first address.
    pub address: u64,
    /// Its bytes in memory, at least those of the file.
    pub memory_bytes: u64,
    /// Where its bytes are in the file.
    pub offset: u64,
    /// How many.
    pub file_bytes: u64,
    /// Whether it may be read.
    pub read: bool,
    /// Whether it may be written.
    pub write: bool,
    /// Whether it may be executed.
    pub execute: bool,
}

impl Segment {
    /// Its addresses.
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.memory_bytes
    }

    /// The pages that it touches.
    pub fn pages(&self) -> Range<u64> {
        self.address & !(PAGE - 1)..self.range().end.next_multiple_of(PAGE)
    }
}

/// A file that is not a program for this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// Not ELF.
    #[error("it is not an ELF file")]
    NotElf,
    /// 32 bits, another byte order or machine.
    #[error("it is not for x86-64")]
    Machine,
    /// An object file or a core dump.
    #[error("it is not executable (ELF type {0})")]
    Kind(u16),
    /// A table or segment beyond the file's end.
    #[error("it is truncated: {0} lies beyond its end")]
    Truncated(&'static str),
    /// Nothing to load.
    #[error("it has no segment to load")]
    Empty,
    /// More segments than a program has.
    #[error("it has {0} segments to load; the limit is {MOST_SEGMENTS}")]
    Segments(usize),
    /// A segment that no address space takes.
    #[error("its segment at {0:#x} is larger than the address space, or in the kernel's half")]
    Address(u64),
    /// More bytes in the file than in memory, or an offset that pages cannot map.
    #[error("its segment at {0:#x} cannot be mapped by pages")]
    Alignment(u64),
    /// Segments on each other.
    #[error("its segments overlap at {0:#x}")]
    Overlap(u64),
    /// Writable code.
    #[error("its segment at {0:#x} is writable and executable")]
    WritableCode(u64),
    /// Nothing is there.
    #[error("its entry {0:#x} is not in an executable segment")]
    Entry(u64),
    /// Not a path.
    #[error("the path of its dynamic loader is invalid")]
    Interpreter,
}

impl Layout {
    /// Reads the layout from a file's bytes.
    pub fn parse(file: &[u8]) -> Result<Self, ElfError> {
        let (header, headers) = headers(file)?;
        let place = match header.e_type(Le) {
            ET_EXEC => LoadAddress::Fixed,
            ET_DYN => LoadAddress::Relocatable,
            other => return Err(ElfError::Kind(other)),
        };
        let segments = segments(file, headers)?;
        let layout = Self {
            place,
            entry: header.e_entry(Le),
            headers: headers_address(header.e_phoff(Le), headers, &segments),
            header_count: headers.len() as u16,
            interpreter: interpreter(file, headers)?,
            segments,
        };
        let is_code =
            |segment: &Segment| segment.execute && segment.range().contains(&layout.entry);
        if !layout.segments.iter().any(is_code) {
            return Err(ElfError::Entry(layout.entry));
        }
        Ok(layout)
    }

    /// The pages from the first to the last segment's.
    pub fn pages(&self) -> Range<u64> {
        let start = self.segments.first().map_or(0, |first| first.pages().start);
        let end = self.segments.last().map_or(0, |last| last.pages().end);
        start..end
    }

    /// Bytes of all segments in memory.
    pub fn memory_bytes(&self) -> u64 {
        let bytes = self.segments.iter().map(|segment| segment.memory_bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

/// Whether a file that begins with `start` claims to be for this machine: ELF, 64 bits,
/// x86-64. Bytes that a short file lacks are not judged; 20 are enough.
pub fn is_for_this_machine(start: &[u8]) -> bool {
    let has = |at: Range<usize>, expected: [u8; 2]| start.get(at).is_none_or(|it| it == expected);
    // Class 64, little endian.
    start.starts_with(MAGIC) && has(4..6, [2, 1]) && has(18..20, EM_X86_64.to_le_bytes())
}

fn headers(file: &[u8]) -> Result<(&Header, &[ProgramHeader64<Le>]), ElfError> {
    if !file.starts_with(MAGIC) {
        return Err(ElfError::NotElf);
    }
    if !is_for_this_machine(file) {
        return Err(ElfError::Machine);
    }
    let header = Header::parse(file).map_err(|_| ElfError::Truncated("the header"))?;
    let headers = header
        .program_headers(Le, file)
        .map_err(|_| ElfError::Truncated("the table of segments"))?;
    Ok((header, headers))
}

type Header = FileHeader64<Le>;

fn segments(file: &[u8], headers: &[ProgramHeader64<Le>]) -> Result<Vec<Segment>, ElfError> {
    let loaded = || {
        let load = |header: &&ProgramHeader64<Le>| header.p_type(Le) == PT_LOAD;
        headers
            .iter()
            .filter(load)
            .filter(|header| header.p_memsz(Le) != 0)
    };
    match loaded().count() {
        0 => return Err(ElfError::Empty),
        count if count > MOST_SEGMENTS => return Err(ElfError::Segments(count)),
        _ => {}
    }
    let mut segments = Vec::new();
    for header in loaded() {
        segments.push(segment(file, header)?);
    }
    segments.sort_by_key(|segment| segment.address);
    for pair in segments.windows(2) {
        if pair[0].range().end > pair[1].address {
            return Err(ElfError::Overlap(pair[1].address));
        }
    }
    Ok(segments)
}

fn segment(file: &[u8], header: &ProgramHeader64<Le>) -> Result<Segment, ElfError> {
    let has = |flag| header.p_flags(Le) & flag != 0;
    let segment = Segment {
        address: header.p_vaddr(Le),
        memory_bytes: header.p_memsz(Le),
        offset: header.p_offset(Le),
        file_bytes: header.p_filesz(Le),
        read: has(PF_R),
        write: has(PF_W),
        execute: has(PF_X),
    };
    let at = segment.address;
    let end = at.checked_add(segment.memory_bytes);
    if end.is_none_or(|end| end > MOST_ADDRESS) {
        return Err(ElfError::Address(at));
    }
    let file_end = segment.offset.checked_add(segment.file_bytes);
    if file_end.is_none_or(|end| end > file.len() as u64) {
        return Err(ElfError::Truncated("a segment"));
    }
    let fits = segment.file_bytes <= segment.memory_bytes;
    if !fits || (segment.file_bytes != 0 && at % PAGE != segment.offset % PAGE) {
        return Err(ElfError::Alignment(at));
    }
    if segment.write && segment.execute {
        return Err(ElfError::WritableCode(at));
    }
    Ok(segment)
}

/// Where the table of segments is in memory: as a segment says, or in what is loaded.
fn headers_address(
    offset: u64,
    headers: &[ProgramHeader64<Le>],
    segments: &[Segment],
) -> Option<u64> {
    let own = headers.iter().find(|header| header.p_type(Le) == PT_PHDR);
    own.map(|header| header.p_vaddr(Le)).or_else(|| {
        let holds = |segment: &&Segment| {
            (segment.offset..segment.offset + segment.file_bytes).contains(&offset)
        };
        let segment = segments.iter().find(holds)?;
        Some(segment.address + (offset - segment.offset))
    })
}

fn interpreter(file: &[u8], headers: &[ProgramHeader64<Le>]) -> Result<Option<String>, ElfError> {
    let Some(header) = headers.iter().find(|header| header.p_type(Le) == PT_INTERP) else {
        return Ok(None);
    };
    let bytes = header
        .data(Le, file)
        .map_err(|()| ElfError::Truncated("the loader's path"))?;
    let path = bytes
        .strip_suffix(b"\0")
        .filter(|path| path.len() <= MOST_PATH)
        .and_then(|path| core::str::from_utf8(path).ok());
    path.map(|path| Some(String::from(path)))
        .ok_or(ElfError::Interpreter)
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
