//! Unmodified programs in ring 3, beside the library OS or below it: enter one, come back when
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
//! | `clock_calls`, `clock_code` | clocks that a program reads without a system call |
//! | `keep_out` | what keeps ring 0 off programs' code |
//! | `vectors` | SSE and AVX: switching them on, saving and restoring |
//!
//! An image that declares programs (`entry!(main, programs_end = ADDRESS, ...)`) runs them from either
//! ring; another only from ring 3. In ring 0 the library OS's memory is out of a program's reach
//! (`ring::isolates`, ADR 88). In ring 3 SYSCALL reaches the library OS on any machine: where KVM emulates
//! ring 0 it leaves the program in ring 3 at LSTAR; elsewhere entry code in ring 0 returns to the same place
//! by SYSRET.
//!
//! # Limits
//! - Beside the library OS, in ring 3, a program can overwrite it: only ring 0's memory is out of
//!   its reach ([`crate::ring`]). `int3` and `int 4` are gates of the library OS there, and GS is its.
//! - Below it, GS is not saved for each thread of a program.

#![allow(unsafe_code)]

mod area;
mod clock_calls;
mod clock_code;
mod context;
mod entry;
pub(crate) mod flush;
mod frames;
mod keep_out;
mod large_frames;
mod memory;
mod registers;
pub(crate) mod vectors;

pub use crate::memory::access::Access;
pub use crate::memory::layout::{PROGRAMS as WINDOW, low};
pub(crate) use area::Area;
pub use clock_calls::{ClockCalls, clock_calls};
pub use clock_code::ClockCode;
pub use context::{Context, Exit};
pub use entry::jump_target;
pub(crate) use entry::{STUB, init, isolated_stub};
pub use frames::{memory_stats, memory_total};
pub(crate) use keep_out::keep_out;
pub use memory::{
    LARGE, MapError, count_held, exchange_u32, is_held, is_large, is_lent, is_mapped, large_bytes,
    lend, load_u32, map, map_bytes, map_large, next_held, protect, read, relocate, store_u64,
    unmap, write,
};
pub use registers::Registers;
pub use vectors::{VectorState, WrongLength};
