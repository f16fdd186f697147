//! The parts of an image's file: sections, and the symbols that lie in them.

use std::ops::Range;

use anyhow::{Context as _, Result, bail};
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use super::name;

/// An image's file.
#[derive(Debug)]
pub(super) struct Image {
    /// Length of the file.
    pub(super) bytes: u64,
    /// Bytes of the file that are loaded.
    pub(super) loaded: u64,
    /// Sections that have bytes in the file.
    pub(super) sections: Vec<Section>,
    /// In order of address, none twice.
    pub(super) symbols: Vec<Symbol>,
}

/// A section that has bytes in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Whether it is loaded.
    pub(super) is_loaded: bool,
}

/// A function or a constant with a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Demangled.
    pub(super) name: String,
    pub(super) section: String,
    /// Bytes that no symbol before it has.
    pub(super) bytes: u64,
    pub(super) is_function: bool,
}

impl Image {
    /// Parses the bytes of a file.
    pub(super) fn parse(file: &[u8]) -> Result<Self> {
        let elf = ElfFile64::<Endianness>::parse(file).context("not an ELF file of 64 bits")?;
        let headers = elf.elf_header();
        let segments = headers.program_headers(elf.endian(), file)?;
        let is_load = |kind| kind == object::elf::PT_LOAD;
        let loaded = segments
            .iter()
            .filter(|segment| is_load(segment.p_type(elf.endian())))
            .map(|segment| segment.p_filesz(elf.endian()))
            .sum();
        Ok(Self {
            bytes: file.len() as u64,
            loaded,
            sections: sections(&elf)?,
            symbols: symbols(&elf)?,
        })
    }

    /// Bytes of a section that belong to no symbol.
    pub(super) fn unnamed(&self, section: &Section) -> u64 {
        let symbols = self.symbols.iter();
        let named: u64 = symbols
            .filter(|symbol| symbol.section == section.name)
            .map(|symbol| symbol.bytes)
            .sum();
        section.bytes.saturating_sub(named)
    }
}

fn sections(elf: &ElfFile64<'_, Endianness>) -> Result<Vec<Section>> {
    let mut sections = Vec::new();
    for section in elf.sections() {
        let Some((_, bytes)) = section.file_range().filter(|(_, bytes)| *bytes > 0) else {
            continue;
        };
        sections.push(Section {
            name: section.name()?.to_owned(),
            bytes,
            is_loaded: section.address() != 0,
        });
    }
    Ok(sections)
}

fn symbols(elf: &ElfFile64<'_, Endianness>) -> Result<Vec<Symbol>> {
    let mut found = Vec::new();
    for symbol in elf.symbols() {
        let is_part = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data);
        let Some(section) = symbol.section_index().filter(|_| is_part) else {
            continue;
        };
        let section = elf.section_by_index(section)?;
        if symbol.size() == 0 || section.file_range().is_none() {
            continue;
        }
        let end = symbol
            .address()
            .checked_add(symbol.size())
            .with_context(|| format!("the symbol at {:#x} has no end", symbol.address()))?;
        found.push((symbol.address()..end, section.name()?, symbol));
    }
    if found.is_empty() {
        bail!("no symbols");
    }
    // Of several names of one function the first by the alphabet, at each run the same.
    found.sort_by_key(|(range, _, symbol)| (range.start, symbol.name().unwrap_or_default()));
    let mut free_from = 0;
    let mut symbols = Vec::new();
    for (range, section, symbol) in found {
        let bytes = beyond(&range, free_from);
        free_from = free_from.max(range.end);
        if bytes > 0 {
            symbols.push(Symbol {
                name: name::demangled(symbol.name()?),
                section: section.to_owned(),
                bytes,
                is_function: symbol.kind() == SymbolKind::Text,
            });
        }
    }
    Ok(symbols)
}

/// Bytes of a range from an address on.
fn beyond(range: &Range<u64>, address: u64) -> u64 {
    range.end.saturating_sub(range.start.max(address))
}
