//! KVM's model-specific registers, in either ring.

#![allow(unsafe_code)]

use x86_64::registers::model_specific::Msr;

use super::level::is_user;
use super::service;

/// Writes a register.
///
/// # Safety
/// KVM has the register, and the memory that it names is the caller's to share.
pub(crate) unsafe fn write(register: u32, value: u64) {
    if is_user() {
        service::call(service::WRITE_MSR, [u64::from(register), value, 0]);
    } else {
        // SAFETY: 1. In ring 0 (checked above). 2. KVM has the register, and may write to the
        //    memory that it names (the caller's promise).
        unsafe { Msr::new(register).write(value) };
    }
}

/// Reads a register.
///
/// # Safety
/// KVM has the register.
pub(crate) unsafe fn read(register: u32) -> u64 {
    if is_user() {
        service::call(service::READ_MSR, [u64::from(register), 0, 0])
    } else {
        // SAFETY: 1. In ring 0 (checked above). 2. KVM has the register (the caller's promise); a
        //    read has no effect.
        unsafe { Msr::new(register).read() }
    }
}
