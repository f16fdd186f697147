//! Interrupt commands: what one CPU sends to others.

#![allow(unsafe_code)]

use core::arch::asm;

use x86_64::registers::model_specific::Msr;

use super::registers::{COMMAND, COMMAND_HIGH, X2APIC_BASE, is_x2apic, read, write};
use crate::{clock, cpu, percpu, ring};

const DELIVERY_PENDING: u32 = 1 << 12;

/// Sends an interrupt command; the time stamp counter before and after it.
/// Between them are as few instructions as possible, since an emulated one
/// costs as much as the command.
pub(super) fn send_timed(apic_id: u32, command: u32) -> (u64, u64) {
    if !is_x2apic() {
        let before = clock::ticks();
        send(apic_id, command);
        return (before, clock::ticks());
    }
    let (low, high): (u64, u64);
    let (after_low, after_high): (u64, u64);
    // SAFETY: 1. x2APIC is on (`is_x2apic`), so that the register exists, and this is ring 0
    //    (`cpuid::has_x2apic`). 2. The interrupt is one that the receiver handles: the callers are
    //    those of `apic`. 3. The exchanges keep the counter in `low` and `high` and bring the
    //    command to where WRMSR takes it; every register that changes is an output.
    unsafe {
        asm!(
            "rdtsc",
            "xchg rax, {low}",
            "xchg rdx, {high}",
            "wrmsr",
            "rdtsc",
            low = inout(reg) u64::from(command) => low,
            high = inout(reg) u64::from(apic_id) => high,
            in("ecx") X2APIC_BASE + COMMAND,
            out("rax") after_low,
            out("rdx") after_high,
            options(nostack, preserves_flags),
        );
    }
    (low | high << 32, after_low | after_high << 32)
}

/// Sends an interrupt command.
pub(super) fn send(apic_id: u32, command: u32) {
    if is_x2apic() {
        let value = u64::from(apic_id) << 32 | u64::from(command);
        // SAFETY: 1. x2APIC is on (`is_x2apic`), so that the register exists, and this is ring 0
        //    (`cpuid::has_x2apic`). 2. The interrupt is one that the receiver handles, or starts a
        //    CPU at the trampoline: the callers are those of `apic`.
        unsafe { Msr::new(X2APIC_BASE + COMMAND).write(value) };
        return;
    }
    // An interrupt handler in between would change the destination.
    let interrupts = cpu::disable_interrupts();
    // Each access leaves the guest, and in ring 3 costs as much as the command: a virtual APIC is never
    // busy (KVM: `kvm_lapic_reg_write` in arch/x86/kvm/lapic.c), and keeps its destination.
    while !ring::is_user() && read(COMMAND) & DELIVERY_PENDING != 0 {
        cpu::pause();
    }
    let destination = &percpu::current().command_destination;
    if destination.replace(Some(apic_id)) != Some(apic_id) {
        write(COMMAND_HIGH, apic_id << 24);
    }
    write(COMMAND, command);
    cpu::restore_interrupts(interrupts);
}
