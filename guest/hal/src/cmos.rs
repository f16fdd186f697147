//! The clock chip's registers (MC146818), reached by an index and a data port.

#![allow(unsafe_code)]

use tare_abi::ports::{CMOS_DATA, CMOS_INDEX};
use x86_64::instructions::port::Port;

/// Bit 7 of the index masks NMI; registers end below it.
const REGISTERS: u8 = 0x80;

/// Reads `register`; ones where there is no chip. Reading status C clears its flags.
pub(crate) fn read(register: u8) -> u8 {
    select(register);
    // SAFETY: 1. The port is the chip's, or no device's. 2. A read changes no memory.
    unsafe { Port::<u8>::new(CMOS_DATA).read() }
}

/// Writes `register`.
pub(crate) fn write(register: u8, value: u8) {
    select(register);
    // SAFETY: 1. The port is the chip's, or no device's. 2. All that the chip can do is
    //    to raise its interrupt, whose line the caller has routed.
    unsafe { Port::<u8>::new(CMOS_DATA).write(value) };
}

fn select(register: u8) {
    // SAFETY: 1. The port is the chip's, or no device's. 2. The index alone has no effect, and bit
    //    7, which masks NMI, stays clear as after a reset.
    unsafe { Port::<u8>::new(CMOS_INDEX).write(register % REGISTERS) };
}
