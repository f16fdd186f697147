//! A program's file, found and mapped: at the start of the machine, and by `execve`.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use tare_hal::user::{ClockCalls, Registers};
use tare_libos::{random, thread};
use tare_program::Start;
use tare_program::elf::{ElfError, Layout};

use crate::errno::{Errno, Result};
use crate::files::Bytes;
use crate::files::tree::{Content, Last, Node, NodeKind, Tree};
use crate::load::{self, AuxFacts, Executable};
use crate::process::Process;
use crate::vdso::Functions;

/// Most bytes of a program that is made while the machine runs: they are read to be mapped.
const MOST_MADE: u64 = 256 << 20;

/// A program with the loader that it names.
pub(crate) struct Found {
    pub(crate) program: Executable,
    pub(crate) loader: Option<Executable>,
}

/// Why a file cannot run.
pub(crate) enum NotFound {
    /// There is none, or it is not a file.
    Program,
    /// It names a loader that is not there.
    Loader(String),
    Elf(ElfError),
    /// It is on a disk that cannot be read, or there is no memory for it.
    Read(Errno),
}

/// The program at a path.
pub(crate) fn find(tree: &Tree, path: &str) -> core::result::Result<Found, NotFound> {
    let found = tree.find(path, Last::Follow);
    let node = found.map_err(|_| NotFound::Program)?;
    find_in(tree, &node)
}

/// The program that a file is.
pub(crate) fn find_in(tree: &Tree, node: &Node) -> core::result::Result<Found, NotFound> {
    let program = executable(node)?.ok_or(NotFound::Program)?;
    let loader = match &program.layout.interpreter {
        None => None,
        Some(loader) => {
            let node = tree.find(loader, Last::Follow).ok();
            let found = node.map(|node| executable(&node)).transpose()?.flatten();
            Some(found.ok_or_else(|| NotFound::Loader(loader.clone()))?)
        }
    };
    Ok(Found { program, loader })
}

/// A file as it can be mapped; none of what is not a file.
fn executable(node: &Node) -> core::result::Result<Option<Executable>, NotFound> {
    let first = || first_bytes(node, MOST_MADE).map_err(NotFound::Read);
    let (file, bytes) = match &node.kind {
        NodeKind::File(Content::Memory(file)) => {
            let bytes = match file.archive() {
                Some(bytes) => Cow::Borrowed(bytes),
                None => Cow::Owned(first()?),
            };
            (file.clone(), bytes)
        }
        NodeKind::File(Content::Stored(_)) => {
            let whole = first()?;
            let copy = copy(node, &whole).map_err(NotFound::Read)?;
            (copy, Cow::Owned(whole))
        }
        _ => return Ok(None),
    };
    let layout = Layout::parse(&bytes).map_err(NotFound::Elf)?;
    Ok(Some(Executable { file, layout }))
}

/// A file of a disk, whose pages cannot be mapped, in memory: `whole` is what was read of it. What is written to
/// the disk later does not change the program that runs.
fn copy(node: &Node, whole: &[u8]) -> Result<Bytes> {
    if whole.len() as u64 != node.len()? {
        return Err(Errno::ENOMEM);
    }
    let copy = Bytes::new(&[]);
    copy.append(whole)?;
    Ok(copy)
}

/// What a file begins with, `most` bytes of it.
pub(crate) fn first_bytes(node: &Node, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = node.len()?.min(most) as usize;
    bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(length, 0);
    let mut done = 0;
    while done < length {
        match node.read(done as u64, &mut bytes[done..])? {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// Maps a program into a process without one; gives the registers that it begins with.
pub(crate) fn map(process: &Process, found: &Found, start: &Start) -> Result<Registers> {
    let mut seed = [0; 16];
    random::fill(&mut seed);
    let machine = AuxFacts {
        features: tare_hal::cpu_features(),
        random: seed,
        functions: match tare_hal::user::clock_calls() {
            ClockCalls::Shared(functions) => Functions::Elsewhere(functions),
            ClockCalls::Own(code) => Functions::Within(code.functions, code.bytes),
        },
    };
    let loader = found.loader.as_ref();
    let begin = load::load(process, &found.program, loader, start, machine)?;
    if tare_hal::ring::is_ring_0_slow() {
        log::debug!("SYSCALL leaves the machine: what is called often becomes a jump");
        let mut space = process.space.lock();
        let target = tare_hal::user::jump_target();
        space.sites.start(target, thread::cores());
    }
    Ok(Registers {
        rip: begin.rip,
        rsp: begin.rsp,
        ..Registers::default()
    })
}

/// The name of a program's first thread: as the program was called, since a link to a program of
/// several names is not followed (Linux `fs/exec.c`, `begin_new_exec`).
pub(crate) fn thread_name(called: &str) -> [u8; 16] {
    let mut name = [0; 16];
    let last = called.rsplit('/').next().unwrap_or_default().bytes();
    let slots = name[..15].iter_mut();
    slots.zip(last).for_each(|(slot, byte)| *slot = byte);
    name
}
