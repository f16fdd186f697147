//! Unmodified programs in ring 3, beside the library OS: enter one, come back when
//! it makes a system call, faults or is interrupted, and give it memory of its own.
//!
//! | file | what |
//! |---|---|
//! | `context` | a program's registers; [`Context::enter`] and why it came back |
//! | `entry` | entry code: SYSCALL, interrupts and faults of programs |
//! | `memory` | address ranges with access rights, copies that survive a fault |
//! | `frames` | the page frames behind them |
//! | `vectors` | SSE and AVX: switching them on, saving and restoring |
//!
//! The image must declare ring 3 (`entry!(main, ring = 3)`). SYSCALL then reaches the
//! library OS on any machine: where KVM emulates ring 0 it leaves the program in ring 3
//! at LSTAR; elsewhere entry code in ring 0 returns to the same place by SYSRET.
//!
//! # Limits
//! - A program shares ring 3 and the address space with the library OS: it can
//!   overwrite it. Only ring 0's memory is out of its reach ([`crate::ring`]).
//! - `int3` and `int 4` are gates of the library OS, not traps of the program.
//! - GS belongs to the library OS.

#![allow(unsafe_code)]

mod context;
mod entry;
mod frames;
mod memory;
pub(crate) mod vectors;

use core::cell::Cell;
use core::mem::offset_of;

use crate::percpu::USER_OFFSET;

pub use context::{Context, Exit, Registers};
pub(crate) use entry::init;
pub use memory::{
    Access, MapError, WINDOW, is_held, is_mapped, load_u32, low, map, next_held, protect, read,
    unmap, write,
};
pub(crate) use memory::{flush_if_asked, is_program_range, low_end};
pub use vectors::{VectorState, WrongLength};

/// What the entry code of programs keeps for each CPU, found through GS.
#[repr(C)]
pub(crate) struct Area {
    /// The registers of the program that runs; 0 while the library OS runs.
    context: Cell<u64>,
    /// The library OS's stack pointer in [`Context::enter`].
    stack: Cell<u64>,
    /// Where the program continues, and its RCX, for the last instructions of entry.
    target: Cell<u64>,
    target_rcx: Cell<u64>,
    /// RCX and the vector of an upcall; vector 0 is a fault.
    scratch: Cell<u64>,
    vector: Cell<u64>,
    /// RFLAGS of a system call that went through ring 0.
    flags: Cell<u64>,
    /// What ring 0 says of a fault: vector, error code, address.
    fault: [Cell<u64>; 3],
    /// FS.base now.
    fs_base: Cell<u64>,
    /// Address of the [`VectorState`] whose contents are in the registers; 0 for none.
    vectors: Cell<u64>,
}

/// Offset of [`Area::context`] in a CPU's area.
pub(crate) const CONTEXT_OFFSET: usize = USER_OFFSET + offset_of!(Area, context);
/// Offset of [`Area::scratch`].
pub(crate) const SCRATCH_OFFSET: usize = USER_OFFSET + offset_of!(Area, scratch);
/// Offset of [`Area::vector`].
pub(crate) const VECTOR_OFFSET: usize = USER_OFFSET + offset_of!(Area, vector);
/// Offset of [`Area::fault`].
pub(crate) const FAULT_OFFSET: usize = USER_OFFSET + offset_of!(Area, fault);

impl Area {
    /// Before any program has run.
    pub(crate) const fn new() -> Self {
        Self {
            context: Cell::new(0),
            stack: Cell::new(0),
            target: Cell::new(0),
            target_rcx: Cell::new(0),
            scratch: Cell::new(0),
            vector: Cell::new(0),
            flags: Cell::new(0),
            fault: [const { Cell::new(0) }; 3],
            fs_base: Cell::new(0),
            vectors: Cell::new(0),
        }
    }
}
