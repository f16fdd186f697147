//! Unmodified programs in ring 3, beside the library OS: enter one, come back when
//! it makes a system call, faults or is interrupted, and give it its own memory.
//!
//! | file | what |
//! |---|---|
//! | `context` | a program's thread: [`Context::enter`] and why it came back |
//! | `registers`, `area` | its general registers; what the entry code keeps for each CPU |
//! | `entry` | entry code: SYSCALL, interrupts and faults of programs |
//! | `memory` | address ranges with access rights, copies that survive a fault |
//! | `flush` | requests to other CPUs to forget translations |
//! | `frames`, `large_frames` | the page frames behind them, by 4 KiB and by 2 MiB |
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

mod area;
mod clock_calls;
mod context;
mod entry;
pub(crate) mod flush;
mod frames;
mod large_frames;
mod memory;
mod registers;
pub(crate) mod vectors;

pub use crate::memory::access::Access;
pub use crate::memory::layout::{PROGRAMS as WINDOW, low};
pub(crate) use area::Area;
pub use clock_calls::clock_calls;
pub use context::{Context, Exit};
pub(crate) use entry::init;
pub use entry::jump_target;
pub use memory::{
    LARGE, MapError, is_held, is_large, is_lent, is_mapped, large_bytes, lend, load_u32, map,
    map_bytes, map_large, next_held, protect, read, relocate, store_u64, unmap, write,
};
pub use registers::Registers;
pub use vectors::{VectorState, WrongLength};
