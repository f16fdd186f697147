//! Which ring an image runs in: what the monitor says in Tare's CPUID leaf, else
//! `ring=` on the command line, else ring 3 where ring 0 is slow.

#![allow(unsafe_code)]

use core::arch::x86_64::_rdtsc;

use x86_64::registers::model_specific::Msr;

use super::{Ring, Rings};
use crate::cpuid;
use crate::memory::layout::has_programs;

const IA32_APIC_BASE: u32 = 0x1b;
const ENABLE: u64 = 1 << 11;
const X2APIC_ENABLE: u64 = 1 << 10;
/// Instructions that are timed.
const TIMED: u64 = 100;
/// Cycles that an emulated instruction takes at least: hardware takes about one,
/// QEMU's translator some tens, KVM's emulator more than a thousand.
const EMULATED_CYCLES: u64 = 500;
const TRIES: usize = 4;

unsafe extern "Rust" {
    /// The rings that the image supports ([`Rings`]), defined by `tare_libos::entry!`.
    static TARE_RINGS: u32;
}

/// The ring for this image on this machine; `named` gives the one that the command line
/// names. Runs in ring 0, on the first CPU.
///
/// # Panics
/// If the command line names a ring that the image does not support, or ring 0 for an image with
/// programs where that is emulated, or the image needs ring 3 and the machine has no local APIC with
/// registers in memory.
pub(crate) fn choose(named: impl FnOnce() -> Option<u8>) -> Ring {
    // SAFETY: 1. `tare_libos::entry!` defines the constant once in every image, with this type. 2.
    //    Nothing writes it.
    let rings = Rings::from_bits(unsafe { TARE_RINGS }).unwrap_or(Rings::EITHER);
    if rings != Rings::EITHER {
        return only(rings, named());
    }
    match cpuid::tare_ring().or_else(named) {
        Some(3) => Ring::Three,
        Some(_) => {
            // KVM's emulator has no XRSTOR.
            assert!(
                !has_programs() || !is_emulated(),
                "programs need ring 3 here, since KVM emulates ring 0: leave out ring=0"
            );
            Ring::Zero
        }
        None if has_memory_apic() && is_emulated() => Ring::Three,
        None => Ring::Zero,
    }
}

/// The one ring of `rings`, if the command line names no other.
fn only(rings: Rings, asked: Option<u8>) -> Ring {
    let ring = if rings.contain(0) {
        Ring::Zero
    } else {
        Ring::Three
    };
    if asked.is_some_and(|asked| asked != ring.number()) {
        let needed = ring.number();
        panic!("this image needs ring {needed}: start it with --ring {needed}");
    }
    assert!(
        ring == Ring::Zero || has_memory_apic(),
        "this image needs ring 3, and this machine's local APIC has no registers in memory"
    );
    ring
}

/// Whether the local APIC is on with its memory-mapped registers, which ring 3 needs,
/// as it is after a reset.
fn has_memory_apic() -> bool {
    // SAFETY: 1. In ring 0: `choose` runs before `enter`. 2. Every processor with a local APIC has
    //    the register, and every 64-bit processor has an APIC.
    unsafe { Msr::new(IA32_APIC_BASE).read() & (ENABLE | X2APIC_ENABLE) == ENABLE }
}

/// Whether this machine emulates ring 0: times a loop, the fastest of some tries,
/// since the CPU may be taken away meanwhile.
fn is_emulated() -> bool {
    (0..TRIES).all(|_| timed() > TIMED * EMULATED_CYCLES)
}

fn timed() -> u64 {
    // SAFETY: 1. Every 64-bit processor has the counter. 2. In ring 0, which may read it.
    let ticks = || unsafe { _rdtsc() };
    let begin = ticks();
    // SAFETY: 1. The loop counts one register down, an output, with two instructions a turn. 2. It
    //    ends: the register begins at TIMED / 2, which is not zero.
    unsafe {
        core::arch::asm!(
            "2:",
            "dec {turns:e}",
            "jnz 2b",
            turns = inout(reg) TIMED as u32 / 2 => _,
            options(nomem, nostack),
        );
    }
    ticks().wrapping_sub(begin)
}
