//! Vectors of exceptions and interrupts, and who has them.

/// Gates in the IDT: 32 exceptions and 64 interrupts.
pub(crate) const GATES: usize = 96;

/// Exceptions whose error code the processor pushes, by bit (Intel SDM vol. 3A, table 6-1).
pub(crate) const WITH_ERROR_CODE: u32 = 0x6022_7d00;

/// An interrupt vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector(pub(crate) u8);

/// Vector of bit 0 of the pending interrupts.
pub(crate) const FIRST: u8 = 32;
/// The local timer's.
pub(crate) const TIMER: u8 = 0x20;
/// Wake-ups by other CPUs.
pub(crate) const WAKE: u8 = 0x21;
/// The one whose entry code only reads the clock (`crate::stamp`).
pub(crate) const STAMP: u8 = 0x22;
/// The first that devices get.
pub(super) const FIRST_DEVICE: usize = 0x23;
/// Spurious interrupts; never acknowledged. The low four bits are ones, as
/// old local APICs want.
pub(crate) const SPURIOUS: u8 = 0x5f;
