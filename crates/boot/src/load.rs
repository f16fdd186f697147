//! Loading: check everything, then write everything.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use tare_abi::entry::{EntryState, boot_gdt};
use tare_abi::layout;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, ReadVolatile};

use crate::elf::Image;
use crate::error::LoadError;
use crate::initramfs::Placement;
use crate::memory_map::MemoryMap;
use crate::start_info::StartInfo;
use crate::{GuestMemoryMmap, acpi, cmdline};

/// Where an image or initramfs comes from: a file, or bytes in a [`std::io::Cursor`].
pub trait Source: Read + ReadVolatile + Seek {}

impl<S: Read + ReadVolatile + Seek> Source for S {}

/// What goes along with the image.
#[derive(Debug)]
pub struct LoadOptions<'a, S> {
    /// The guest's command line, printable ASCII without a NUL.
    pub cmdline: &'a str,
    /// The initramfs, if any, from its beginning.
    pub initramfs: Option<&'a mut S>,
    /// vCPUs of the machine, for the ACPI tables; APIC IDs count from 0.
    pub cpus: u8,
}

/// A machine ready to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The first vCPU's state.
    pub entry: EntryState,
    /// Guest addresses from the image's first byte to behind its last.
    pub image: Range<u64>,
    /// Guest addresses of the initramfs.
    pub initramfs: Option<Range<u64>>,
}

/// Checks `image` and what goes along with it, and writes all of it and the
/// boot information into `memory`, which is taken to be zeroed.
///
/// Nothing is written unless every check passed; only reading or writing itself
/// can fail later.
///
/// ```
/// use std::io::Cursor;
/// use tare_boot::{GuestMemoryMmap, LoadError, LoadOptions, load};
/// use vm_memory::GuestAddress;
///
/// let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 8 << 20)]).unwrap();
/// let options = LoadOptions { cmdline: "log=info", initramfs: None, cpus: 1 };
/// let result = load(&memory, &mut Cursor::new(b"#!/bin/sh"), options);
/// assert!(matches!(result, Err(LoadError::NotElf)));
/// ```
pub fn load<S: Source>(
    memory: &GuestMemoryMmap,
    image: &mut S,
    options: LoadOptions<'_, S>,
) -> Result<Loaded, LoadError> {
    let low_end = low_memory_end(memory)?;
    cmdline::check(options.cmdline)?;
    let elf = Image::parse(image)?;
    elf.check_placement(memory)?;
    let placement = match options.initramfs {
        Some(source) => Some((
            Placement::choose(source, elf.low_end(low_end), low_end)?,
            source,
        )),
        None => None,
    };
    let tables = acpi::tables(options.cpus)?;

    elf.write(image, memory)?;
    let initramfs = placement
        .map(|(placement, source)| placement.write(source, memory))
        .transpose()?;
    cmdline::write(options.cmdline, memory)?;
    memory.write_slice(&tables, GuestAddress(layout::RSDP))?;
    let entry = EntryState::pvh(elf.entry());
    write_gdt(entry, memory)?;
    StartInfo {
        memory_map: MemoryMap::of(memory),
        initramfs: initramfs.clone(),
    }
    .write(memory)?;
    Ok(Loaded {
        entry,
        image: elf.span(),
        initramfs,
    })
}

/// End of the memory that begins at 0; it must hold the boot information.
fn low_memory_end(memory: &GuestMemoryMmap) -> Result<u64, LoadError> {
    let end = memory
        .find_region(GuestAddress(0))
        .map_or(0, |region| region.len());
    if end < layout::HIGH_RAM {
        return Err(LoadError::MemoryTooSmall { have_bytes: end });
    }
    Ok(end)
}

fn write_gdt(entry: EntryState, memory: &GuestMemoryMmap) -> Result<(), LoadError> {
    let bytes: Vec<u8> = boot_gdt(entry.mode)
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect();
    Ok(memory.write_slice(&bytes, GuestAddress(layout::BOOT_GDT))?)
}

/// The size of a source in bytes.
pub(crate) fn size<S: Seek>(source: &mut S) -> std::io::Result<u64> {
    source.seek(SeekFrom::End(0))
}
