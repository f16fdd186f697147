//! The registers of the local APIC behind either of their interfaces.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};

use tare_abi::layout::LAPIC;
use x86_64::registers::model_specific::Msr;

use crate::ring;

pub(crate) const TASK_PRIORITY: u32 = 0x08;
pub(crate) const EOI: u32 = 0x0b;
pub(crate) const SPURIOUS_VECTOR: u32 = 0x0f;
pub(super) const COMMAND: u32 = 0x30;
pub(super) const COMMAND_HIGH: u32 = 0x31;
/// First of eight registers of interrupts in service.
pub(crate) const IN_SERVICE: u32 = 0x10;
pub(crate) const LVT_TIMER: u32 = 0x32;
pub(crate) const LVT_LINT0: u32 = 0x35;
pub(crate) const LVT_LINT1: u32 = 0x36;
pub(crate) const INITIAL_COUNT: u32 = 0x38;
pub(crate) const CURRENT_COUNT: u32 = 0x39;
pub(crate) const DIVIDE: u32 = 0x3e;

const IA32_APIC_BASE: u32 = 0x1b;
const GLOBAL_ENABLE: u64 = 1 << 11;
const X2APIC_ENABLE: u64 = 1 << 10;
pub(super) const X2APIC_BASE: u32 = 0x800;

static X2APIC: AtomicBool = AtomicBool::new(false);

/// Whether the registers are MSRs.
#[inline]
pub(super) fn is_x2apic() -> bool {
    X2APIC.load(Ordering::Relaxed)
}

/// Chooses the interface for all CPUs.
pub(super) fn choose(x2apic: bool) {
    X2APIC.store(x2apic, Ordering::Relaxed);
}

/// Switches this CPU's APIC on with the chosen interface.
pub(super) fn enable() {
    if ring::is_user() {
        // It is on since the reset (`ring::choose`).
        return;
    }
    let mode = if is_x2apic() {
        GLOBAL_ENABLE | X2APIC_ENABLE
    } else {
        GLOBAL_ENABLE
    };
    let mut base = Msr::new(IA32_APIC_BASE);
    // SAFETY: 1. Every processor with a local APIC has the register, and every 64-bit processor has
    //    an APIC. 2. In ring 0 (checked above).
    let value = unsafe { base.read() };
    if value & mode != mode {
        // SAFETY: 1. The address stays as it is. 2. x2APIC exists if it was chosen.
        unsafe { base.write(value | mode) };
    }
}

/// Reads a register by its x2APIC index.
#[inline]
pub(crate) fn read(register: u32) -> u32 {
    if is_x2apic() {
        // SAFETY: 1. x2APIC is on (`enable`), which it is in ring 0 only (`cpuid::has_x2apic`). 2.
        //    The index is one of the constants above or one of the eight from `IN_SERVICE`: a
        //    register that exists and can be read.
        unsafe { Msr::new(X2APIC_BASE + register).read() as u32 }
    } else {
        // SAFETY: 1. `paging::map_low_devices` has mapped the page of registers, uncached. 2. The
        //    index is one of the constants above or one of the eight from `IN_SERVICE`: within the
        //    page, aligned to 16. 3. A read changes no memory.
        unsafe { address(register).read_volatile() }
    }
}

/// Writes a register by its x2APIC index.
#[inline]
pub(crate) fn write(register: u32, value: u32) {
    if is_x2apic() {
        // SAFETY: 1. x2APIC is on (`enable`), which it is in ring 0 only (`cpuid::has_x2apic`). 2.
        //    The index is one of the constants above. 3. The callers, all in `apic`, write values
        //    that the manual defines: other ones fault.
        unsafe { Msr::new(X2APIC_BASE + register).write(u64::from(value)) };
    } else {
        // SAFETY: 1. The page of registers is mapped, and the index is one of the constants above:
        //    within the page, aligned to 16. 2. What the callers in `apic` write raises interrupts
        //    that have handlers, and starts CPUs at the trampoline.
        unsafe { address(register).write_volatile(value) };
    }
}

fn address(register: u32) -> *mut u32 {
    (LAPIC + u64::from(register) * 16) as *mut u32
}
