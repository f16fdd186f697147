//! A program's file, found and mapped: at the start of the machine, and by `execve`.

use alloc::string::String;
use alloc::vec::Vec;

use tare_hal::user::{ClockCalls, Registers};
use tare_libos::{random, thread};
use tare_program::Start;
use tare_program::elf::{ElfError, Layout};

use crate::errno::Result;
use crate::files::Bytes;
use crate::files::tree::{Content, Last, NodeKind, Tree};
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
    /// There is none, or it is not a file in memory.
    Program,
    /// It names a loader that is not there.
    Loader(String),
    Elf(ElfError),
}

impl From<ElfError> for NotFound {
    fn from(error: ElfError) -> Self {
        Self::Elf(error)
    }
}

/// The program at a path.
pub(crate) fn find(tree: &Tree, path: &str) -> core::result::Result<Found, NotFound> {
    let program = executable(tree, path)?.ok_or(NotFound::Program)?;
    let loader = match &program.layout.interpreter {
        None => None,
        Some(loader) => {
            let missing = || NotFound::Loader(loader.clone());
            Some(executable(tree, loader)?.ok_or_else(missing)?)
        }
    };
    Ok(Found { program, loader })
}

/// A file that can be mapped; none if there is none.
fn executable(tree: &Tree, path: &str) -> core::result::Result<Option<Executable>, ElfError> {
    let Some(file) = file(tree, path) else {
        return Ok(None);
    };
    let layout = match file.archive() {
        Some(bytes) => Layout::parse(bytes)?,
        None => Layout::parse(&first_bytes(&file, MOST_MADE))?,
    };
    Ok(Some(Executable { file, layout }))
}

/// The content of a file in memory.
pub(crate) fn file(tree: &Tree, path: &str) -> Option<Bytes> {
    match &tree.find(path, Last::Follow).ok()?.kind {
        NodeKind::File(Content::Memory(file)) => Some(file.clone()),
        _ => None,
    }
}

/// What a file begins with, `most` bytes of it.
pub(crate) fn first_bytes(file: &Bytes, most: u64) -> Vec<u8> {
    let mut bytes = alloc::vec![0; file.len().min(most) as usize];
    let count = file.read(0, &mut bytes);
    bytes.truncate(count);
    bytes
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
