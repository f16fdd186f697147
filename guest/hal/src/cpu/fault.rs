//! A fault at will, for tests of the fault handler.

#![allow(unsafe_code)]

use crate::memory::is_mapped;

/// Reads the byte at `address`, for tests of the fault handler.
///
/// # Panics
/// If something is mapped there: then they do not read it.
pub fn fault(address: usize) -> u8 {
    assert!(!is_mapped(&(address as u64..address as u64 + 1)));
    // SAFETY: 1. Nothing is mapped at the address (asserted above), so that the read faults and the
    //    image ends. 2. If another CPU maps something there meanwhile, the read gives a byte of it.
    unsafe { (address as *const u8).read_volatile() }
}
