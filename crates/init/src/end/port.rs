//! The exit port of the machine (`tare_abi::ports::EXIT`).
#![allow(unsafe_code)]

use std::arch::asm;
use std::ffi::c_ulong;

use tare_abi::exit::GuestExit;
use tare_abi::ports;

const PORTS: c_ulong = 4;

/// Tells the host how the guest ends; without effect where the kernel gives no
/// access to ports, or the machine has no such port.
pub(super) fn write(exit: GuestExit) {
    // SAFETY: ioperm takes numbers only; it changes what this thread may do.
    let allowed = unsafe { libc::ioperm(c_ulong::from(ports::EXIT), PORTS, 1) } == 0;
    if allowed {
        // SAFETY: the access was granted; the port is not memory, and no
        // machine has another device there that this would disturb.
        unsafe {
            asm!("out dx, eax", in("dx") ports::EXIT, in("eax") exit.to_value(),
                 options(nomem, nostack, preserves_flags));
        }
    }
}
