//! The processor's clock, which an emulator that counts instructions
//! (QEMU's `-icount`) makes of their number.
#![allow(unsafe_code)]

/// Cycles since the machine was switched on.
pub(crate) fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC, and nothing forbids it to the
    // first process: only a process itself can (PR_SET_TSC).
    unsafe { std::arch::x86_64::_rdtsc() }
}
