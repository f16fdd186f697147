//! What the entry code of programs keeps for each CPU.

use core::cell::Cell;

/// A part of a CPU's own area, found through GS.
#[repr(C)]
pub(crate) struct Area {
    /// The registers of the program that runs; 0 while the library OS runs.
    pub(crate) context: Cell<u64>,
    /// The library OS's stack pointer in [`super::Context::enter`].
    pub(crate) stack: Cell<u64>,
    /// Where the program continues, and its RCX, for the last instructions of entry.
    pub(crate) target: Cell<u64>,
    pub(crate) target_rcx: Cell<u64>,
    /// RCX and the vector of an upcall; vector 0 is a fault.
    pub(crate) scratch: Cell<u64>,
    pub(crate) vector: Cell<u64>,
    /// RFLAGS of a system call that went through ring 0.
    pub(crate) flags: Cell<u64>,
    /// What ring 0 says of a fault: vector, error code, address.
    pub(crate) fault: [Cell<u64>; 3],
    /// FS.base now.
    pub(crate) fs_base: Cell<u64>,
    /// Address of the [`super::VectorState`] whose contents are in the registers; 0 for none.
    pub(crate) vectors: Cell<u64>,
}

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
