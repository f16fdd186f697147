//! Why an image cannot be loaded: each message names the thing and the way out.

use std::io;

use tare_abi::layout::{HIGH_RAM, MIB, MMIO_GAP_START};
use thiserror::Error;

/// Why an image cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The image could not be read.
    #[error("the image cannot be read")]
    Image(#[source] io::Error),
    /// The initramfs could not be read.
    #[error("the initramfs cannot be read")]
    Initramfs(#[source] io::Error),
    /// Not an ELF file.
    #[error(
        "the image is not an ELF file; Tare boots ELF images with a PVH note (a Linux kernel, bzImage or vmlinux, needs --kernel FILE)"
    )]
    NotElf,
    /// Neither ELF nor bzImage.
    #[error("the file is neither a vmlinux (ELF) nor a bzImage; give a Linux kernel for x86-64")]
    NotAKernel,
    /// A bzImage without a 64-bit entry.
    #[error("the kernel has no 64-bit entry; build it for x86-64, version 3.8 or later")]
    No64BitEntry,
    /// A bzImage that may be loaded at no sensible address.
    #[error(
        "the kernel wants to be aligned to {alignment:#x}, which is not a power of two; build it again"
    )]
    KernelAlignment {
        /// What its header says.
        alignment: u64,
    },
    /// A bzImage that needs more memory to unpack itself.
    #[error(
        "the kernel needs {need_mib} MiB of memory to unpack itself, the machine has {have_mib} MiB below 3 GiB; give it more"
    )]
    KernelTooLarge {
        /// Memory with which it would fit.
        need_mib: u64,
        /// The machine's.
        have_mib: u64,
    },
    /// An ELF file of another class, byte order, machine or type.
    #[error("the image is {found}; build it for x86_64 as a 64-bit executable")]
    WrongMachine {
        /// What it is.
        found: &'static str,
    },
    /// The program headers are unusable.
    #[error("the image's program headers are malformed ({what}); build it again")]
    Headers {
        /// What is wrong.
        what: &'static str,
    },
    /// The image ends before its headers say it does.
    #[error(
        "the image is truncated: {part} ends at byte {end}, the file has {file_bytes}; copy or build it again"
    )]
    Truncated {
        /// What is cut off.
        part: Part,
        /// Where it should end.
        end: u64,
        /// Size of the file.
        file_bytes: u64,
    },
    /// No PVH entry.
    #[error(
        "the image has no PVH note (XEN_ELFNOTE_PHYS32_ENTRY); link it with the library OS's entry, or build Linux with CONFIG_PVH=y"
    )]
    NoPvhNote,
    /// A note segment whose notes do not fit it, or an unreasonably large one.
    #[error("the image's notes are malformed; build it again")]
    Notes,
    /// Nothing to load.
    #[error("the image has no loadable segment; it may be an object file: link it")]
    NoSegments,
    /// A segment claims more bytes in the file than in memory.
    #[error(
        "segment {segment} of the image has {file_bytes} bytes in the file and room for {memory_bytes}; build it again"
    )]
    SegmentSize {
        /// Number of the program header.
        segment: usize,
        /// Bytes in the file.
        file_bytes: u64,
        /// Bytes in memory.
        memory_bytes: u64,
    },
    /// A segment needs memory that the machine does not have.
    #[error("segment {segment} of the image lies at {start:#x}..{end:#x}, outside the machine's {have_mib} MiB of memory; {}", memory_hint(*need_mib))]
    OutsideMemory {
        /// Number of the program header.
        segment: usize,
        /// First address.
        start: u64,
        /// Address behind the last.
        end: u64,
        /// The machine's memory.
        have_mib: u64,
        /// Memory with which it would fit; `None` if no amount helps.
        need_mib: Option<u64>,
    },
    /// A segment lies where the monitor puts boot information.
    #[error(
        "segment {segment} of the image begins at {start:#x}, below {HIGH_RAM:#x}, where boot information lies; link it at 1 MiB or above"
    )]
    BootArea {
        /// Number of the program header.
        segment: usize,
        /// First address.
        start: u64,
    },
    /// Two segments claim the same memory.
    #[error(
        "segments {first} and {second} of the image overlap in memory; correct its linker script"
    )]
    Overlap {
        /// Number of a program header.
        first: usize,
        /// Number of another.
        second: usize,
    },
    /// The entry is not in the image.
    #[error("the image's entry {entry:#x} lies outside what its segments load; build it again")]
    EntryOutside {
        /// The entry.
        entry: u64,
    },
    /// The initramfs does not fit.
    #[error(
        "the initramfs has {bytes} bytes, beside the image there is room for {room}; {}",
        initramfs_hint(*need_mib)
    )]
    InitramfsTooLarge {
        /// Its size.
        bytes: u64,
        /// Bytes between the image and the end of low memory.
        room: u64,
        /// Memory with which it would fit.
        need_mib: u64,
    },
    /// The command line does not fit.
    #[error("the command line has {bytes} bytes, {most} are allowed; shorten it")]
    CmdlineTooLong {
        /// Its length.
        bytes: usize,
        /// What the kernel, or the space for it, takes.
        most: usize,
    },
    /// The command line has a byte that is not printable ASCII.
    #[error(
        "the command line has the byte {byte:#04x} at position {position}; only printable ASCII is allowed"
    )]
    CmdlineNotPrintable {
        /// The byte.
        byte: u8,
        /// Its position, from 0.
        position: usize,
    },
    /// The machine is too small for the boot information itself.
    #[error("the machine has {have_bytes} bytes of memory; boot information alone needs {} MiB", HIGH_RAM / MIB)]
    MemoryTooSmall {
        /// Memory from address 0.
        have_bytes: u64,
    },
    /// The ACPI tables outgrew their place.
    #[error(
        "the ACPI tables of this machine need {bytes} bytes, {room} are reserved; configure fewer CPUs"
    )]
    Acpi {
        /// Their size.
        bytes: u64,
        /// The room.
        room: u64,
    },
    /// A write to guest memory failed although its place was checked.
    #[error("guest memory could not be written")]
    Memory(#[from] vm_memory::GuestMemoryError),
}

/// A part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The ELF header.
    Header,
    /// The table of program headers.
    ProgramHeaders,
    /// The segment of this program header.
    Segment(usize),
    /// What a bzImage unpacks.
    Payload,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header => f.write_str("its header"),
            Self::ProgramHeaders => f.write_str("its table of program headers"),
            Self::Segment(number) => write!(f, "segment {number}"),
            Self::Payload => f.write_str("its payload"),
        }
    }
}

/// More memory helps only as far as it lies below the gap for devices.
fn initramfs_hint(need_mib: u64) -> String {
    let low_mib = MMIO_GAP_START / MIB;
    if need_mib <= low_mib {
        format!("give the machine {need_mib} MiB of memory or put less into it")
    } else {
        format!(
            "it must lie below {low_mib} MiB, whatever the machine has: put less into it, or the files on a disk"
        )
    }
}

fn memory_hint(need_mib: Option<u64>) -> String {
    match need_mib {
        Some(mib) => format!("give it {mib} MiB"),
        None => "link the image at a lower address".to_owned(),
    }
}
