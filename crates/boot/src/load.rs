//! Loading: check everything, then write everything.

use std::ops::Range;

use tare_abi::entry::{EntryState, boot_gdt};
use tare_abi::layout;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use crate::elf::{Entry, Image};
use crate::error::LoadError;
use crate::initramfs::{Initramfs, Placement};
use crate::linux::{self, BzImage, SetupHeader, ZeroPage};
use crate::memory_map::MemoryMap;
use crate::protocol::Protocol;
use crate::source::Source;
use crate::start_info::StartInfo;
use crate::{GuestMemoryMmap, acpi, cmdline};

/// What goes along with the image.
pub struct LoadOptions<'a> {
    /// The guest's command line, printable ASCII without a NUL.
    pub cmdline: &'a str,
    /// The initramfs, if any.
    pub initramfs: Option<&'a mut dyn Initramfs>,
    /// vCPUs of the machine, for the ACPI tables; APIC IDs count from 0.
    pub cpus: u8,
    /// How the image may be entered.
    pub protocol: Protocol,
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
/// use tare_boot::{GuestMemoryMmap, LoadError, LoadOptions, Protocol, load};
/// use vm_memory::GuestAddress;
///
/// let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 8 << 20)]).unwrap();
/// let options = LoadOptions {
///     cmdline: "log=info",
///     initramfs: None,
///     cpus: 1,
///     protocol: Protocol::Pvh,
/// };
/// let result = load(&memory, &mut Cursor::new(b"#!/bin/sh"), options);
/// assert!(matches!(result, Err(LoadError::NotElf)));
/// ```
pub fn load<S: Source>(
    memory: &GuestMemoryMmap,
    image: &mut S,
    options: LoadOptions<'_>,
) -> Result<Loaded, LoadError> {
    let low_end = low_memory_end(memory)?;
    cmdline::check(options.cmdline, options.protocol)?;
    if options.protocol == Protocol::Linux && BzImage::is_one(image)? {
        return load_bzimage(memory, image, options, low_end);
    }
    let elf = Image::parse(image, options.protocol).map_err(|error| match error {
        LoadError::NotElf if options.protocol == Protocol::Linux => LoadError::NotAKernel,
        other => other,
    })?;
    elf.check_placement(memory)?;
    let rest = Rest::check(options, elf.low_end(low_end), low_end)?;

    elf.write(image, memory)?;
    let (entry, header) = match elf.entry() {
        Entry::Pvh(address) => (EntryState::pvh(address), None),
        Entry::Linux64(address) => (EntryState::linux(address), Some(SetupHeader::made())),
    };
    Ok(Loaded {
        entry,
        image: elf.span(),
        initramfs: rest.write(entry, header, memory)?,
    })
}

fn load_bzimage<S: Source>(
    memory: &GuestMemoryMmap,
    image: &mut S,
    options: LoadOptions<'_>,
    low_end: u64,
) -> Result<Loaded, LoadError> {
    let kernel = BzImage::parse(image)?;
    cmdline::check_length(options.cmdline, kernel.cmdline_most)?;
    let place = kernel.place(low_end)?;
    let rest = Rest::check(options, place.end, low_end.min(kernel.initramfs_limit))?;

    kernel.write(image, place.start, memory)?;
    let entry = EntryState::linux(kernel.entry(place.start));
    Ok(Loaded {
        entry,
        initramfs: rest.write(entry, Some(kernel.header), memory)?,
        image: place,
    })
}

/// What goes along with an image, checked.
struct Rest<'a> {
    cmdline: &'a str,
    initramfs: Option<(Placement, &'a mut dyn Initramfs)>,
    tables: Vec<u8>,
}

impl<'a> Rest<'a> {
    /// The initramfs lies between the image's end and `limit`.
    fn check(options: LoadOptions<'a>, image_end: u64, limit: u64) -> Result<Self, LoadError> {
        let initramfs = match options.initramfs {
            Some(source) => Some((Placement::choose(source, image_end, limit)?, source)),
            None => None,
        };
        Ok(Self {
            cmdline: options.cmdline,
            initramfs,
            tables: acpi::tables(options.cpus)?,
        })
    }

    /// Writes it with the boot information that the entry's protocol wants:
    /// boot parameters with `header`, start info without. Says where the
    /// initramfs lies.
    fn write(
        self,
        entry: EntryState,
        header: Option<SetupHeader>,
        memory: &GuestMemoryMmap,
    ) -> Result<Option<Range<u64>>, LoadError> {
        let initramfs = self
            .initramfs
            .map(|(placement, initramfs)| placement.write(initramfs, memory))
            .transpose()?;
        cmdline::write(self.cmdline, memory)?;
        memory.write_slice(&self.tables, GuestAddress(layout::RSDP))?;
        write_gdt(entry, memory)?;
        let memory_map = MemoryMap::of(memory);
        match header {
            None => StartInfo {
                memory_map,
                initramfs: initramfs.clone(),
            }
            .write(memory)?,
            Some(header) => {
                linux::write_page_table(memory)?;
                ZeroPage {
                    header,
                    memory_map,
                    cmdline: self.cmdline,
                    initramfs: initramfs.clone(),
                }
                .write(memory)?;
            }
        }
        Ok(initramfs)
    }
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
