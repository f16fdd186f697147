//! The program's file into its address space, and its first stack (System V ABI for
//! x86-64, 3.4.1; kernel `fs/binfmt_elf.c`).

use alloc::string::String;
use alloc::vec::Vec;

use linux_raw_sys::auxvec::{
    AT_BASE, AT_CLKTCK, AT_EGID, AT_ENTRY, AT_EUID, AT_EXECFN, AT_FLAGS, AT_GID, AT_HWCAP, AT_NULL,
    AT_PAGESZ, AT_PHDR, AT_PHENT, AT_PHNUM, AT_PLATFORM, AT_RANDOM, AT_SECURE, AT_SYSINFO_EHDR,
    AT_UID,
};
use tare_program::elf::{Layout, LoadAddress, Segment};
use tare_program::{Start, names};

use crate::credentials::Whose;
use crate::errno::{Errno, Result};
use crate::files::Bytes;
use crate::memory::{DATA, PAGE, Rights};
use crate::process::Process;
use crate::space::{
    Area, Backing, FIRST_STACK_BYTES, RELOCATED, RELOCATED_BYTES, STACK_TOP, may_commit,
};
use crate::vdso::{self, Functions};

/// Bytes of a program header.
const HEADER_BYTES: u64 = 56;
const CLOCK_TICKS: u64 = 100;

/// A file that is mapped: the program, or the loader that it names (PT_INTERP).
pub(crate) struct Executable {
    pub(crate) file: Bytes,
    pub(crate) layout: Layout,
}

/// Where a program begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    pub(crate) rip: u64,
    pub(crate) rsp: u64,
}

/// What the machine says of itself, for the auxiliary vector.
#[derive(Clone, Debug)]
pub(crate) struct AuxFacts {
    /// CPUID leaf 1, EDX.
    pub(crate) features: u32,
    /// For the program's own seeds.
    pub(crate) random: [u8; 16],
    /// Functions of the program's vDSO.
    pub(crate) functions: Functions,
}

/// Maps a program, and its loader if it has one, and makes its stack. As on Linux, a loader
/// begins in place of the program, which it finds by the auxiliary vector.
pub(crate) fn load(
    process: &Process,
    program: &Executable,
    loader: Option<&Executable>,
    start: &Start,
    machine: AuxFacts,
) -> Result<Begin> {
    let layout = &program.layout;
    let span = layout.pages().end - layout.pages().start;
    if layout.place == LoadAddress::Relocatable && span > RELOCATED_BYTES {
        return Err(Errno::ENOEXEC);
    }
    may_commit(layout.memory_bytes())?;
    let base = match layout.place {
        LoadAddress::Fixed => 0,
        LoadAddress::Relocatable => RELOCATED - layout.pages().start,
    };
    map_all(process, base, program)?;
    let entry = base + layout.entry;
    let (loader_base, begin) = match loader {
        None => (0, entry),
        Some(loader) => {
            let base = loader_base(process, &loader.layout)?;
            map_all(process, base, loader)?;
            (base, base + loader.layout.entry)
        }
    };
    let [user, group] = {
        let threads = process.threads.lock();
        // Before the first thread a program has user 0.
        let of = |whose| {
            let thread = threads.values().next();
            thread.map(|thread| thread.credentials.lock().ids(whose))
        };
        [of(Whose::User), of(Whose::Group)].map(Option::unwrap_or_default)
    };
    let auxiliary = [
        (AT_SYSINFO_EHDR, vdso(process, &machine.functions)?),
        (AT_PHDR, layout.headers.map_or(0, |at| base + at)),
        (AT_PHENT, HEADER_BYTES),
        (AT_PHNUM, layout.header_count.into()),
        (AT_PAGESZ, PAGE),
        (AT_BASE, loader_base),
        (AT_FLAGS, 0),
        (AT_ENTRY, entry),
        (AT_UID, user.real.into()),
        (AT_EUID, user.effective.into()),
        (AT_GID, group.real.into()),
        (AT_EGID, group.effective.into()),
        (AT_SECURE, 0),
        (AT_CLKTCK, CLOCK_TICKS),
        (AT_HWCAP, machine.features.into()),
    ];
    Ok(Begin {
        rip: begin,
        rsp: stack(process, start, &auxiliary, &machine.random)?,
    })
}

/// Where a loader goes: among the mappings. One for fixed addresses could lie on its program.
fn loader_base(process: &Process, layout: &Layout) -> Result {
    if layout.place == LoadAddress::Fixed {
        return Err(Errno::ENOEXEC);
    }
    let pages = layout.pages();
    let bytes = pages.end - pages.start;
    let start = process.space.lock().find(bytes, 0)?;
    start.checked_sub(pages.start).ok_or(Errno::ENOEXEC)
}

/// Maps the object through which the program reads clocks; gives its address.
fn vdso(process: &Process, functions: &Functions) -> Result {
    let mut space = process.space.lock();
    let base = space.find(PAGE, 0)?;
    let area = Area {
        end: 0,
        rights: Rights {
            read: true,
            write: false,
            execute: true,
        },
        backing: Backing::File {
            bytes: Bytes::new(&vdso::image(base, functions)),
            offset: 0,
            end: u64::MAX,
        },
        name: "[vdso]",
    };
    space.map(base..base + PAGE, area)?;
    Ok(base)
}

fn map_all(process: &Process, base: u64, executable: &Executable) -> Result<()> {
    let mut segments = executable.layout.segments.iter();
    segments.try_for_each(|segment| map(process, base, segment, &executable.file))
}

fn map(process: &Process, base: u64, segment: &Segment, file: &Bytes) -> Result<()> {
    let pages = segment.pages();
    let pages = base + pages.start..base + pages.end;
    let in_page = segment.address % PAGE;
    let rights = Rights {
        read: segment.read,
        write: segment.write,
        execute: segment.execute,
    };
    let mut space = process.space.lock();
    let mut anonymous_from = pages.start;
    if segment.file_bytes != 0 {
        let file_pages = (in_page + segment.file_bytes).next_multiple_of(PAGE);
        anonymous_from = pages.start + file_pages;
        let backing = Backing::File {
            bytes: file.clone(),
            offset: segment.offset - in_page,
            end: if segment.memory_bytes > segment.file_bytes {
                // The rest of the last page is zeros.
                segment.offset + segment.file_bytes
            } else {
                u64::MAX
            },
        };
        space.map(
            pages.start..anonymous_from,
            Area {
                end: 0,
                rights,
                backing,
                name: "program",
            },
        )?;
    }
    if anonymous_from < pages.end {
        let area = Area {
            end: 0,
            rights,
            backing: Backing::Anonymous,
            name: "program",
        };
        space.map(anonymous_from..pages.end, area)?;
    }
    Ok(())
}

/// Fills the stack from its top; gives the stack pointer.
fn stack(
    process: &Process,
    start: &Start,
    auxiliary: &[(u32, u64)],
    random: &[u8; 16],
) -> Result<u64> {
    let area = Area {
        end: 0,
        rights: DATA,
        backing: Backing::Anonymous,
        name: "[stack]",
    };
    process
        .space
        .lock()
        .map(STACK_TOP - FIRST_STACK_BYTES..STACK_TOP, area)?;
    let mut at = STACK_TOP;
    let mut push = |bytes: &[u8]| -> Result<u64> {
        at = at.checked_sub(bytes.len() as u64).ok_or(Errno::E2BIG)?;
        if at < STACK_TOP - FIRST_STACK_BYTES / 4 {
            return Err(Errno::E2BIG);
        }
        process.write(at, bytes)?;
        Ok(at)
    };
    let mut text = |text: &str| -> Result<u64> {
        let mut bytes = names::bytes(text).into_owned();
        bytes.push(0);
        push(&bytes)
    };
    let path = text(&start.path)?;
    let platform = text("x86_64")?;
    let mut pointers =
        |texts: &[String]| -> Result<Vec<u64>> { texts.iter().map(|one| text(one)).collect() };
    let environment = pointers(&start.environment)?;
    let arguments = pointers(&start.arguments)?;
    let random = push(random)?;

    let mut words = Vec::new();
    words.push(arguments.len() as u64);
    words.extend(arguments);
    words.push(0);
    words.extend(environment);
    words.push(0);
    let last = [
        (AT_RANDOM, random),
        (AT_EXECFN, path),
        (AT_PLATFORM, platform),
        (AT_NULL, 0),
    ];
    for (kind, value) in auxiliary.iter().chain(&last) {
        words.extend([u64::from(*kind), *value]);
    }
    // The stack pointer is a multiple of 16.
    let bottom = (random - words.len() as u64 * 8) & !15;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    process.write(bottom, &bytes)?;
    Ok(bottom)
}
