//! What ring 3 must not be able to do, for tests: each ends the image with a fault,
//! or is refused by the gate.

#![allow(unsafe_code)]

use core::arch::asm;

use super::{gate, service};
use crate::memory::supervisor;

/// An attempt on ring 0's memory or gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trespass {
    /// Writes to a page table.
    WritePageTable,
    /// Writes to the memory with the descriptor tables.
    WriteDescriptors,
    /// Reads from there.
    ReadDescriptors,
    /// Jumps to ring 0's entry code.
    Jump,
    /// Executes `cli`.
    Privileged,
    /// Goes through the halt gate's sibling, the service gate, and on without a stack.
    NoStack,
    /// Returns to an address that no processor has.
    WildReturn,
    /// Takes the CPU's area from ring 0's entry code, which finds it by GS.
    NoArea,
}

/// Tries it. In ring 0 there is nothing to trespass on: the image would break
/// itself.
///
/// # Panics
/// In ring 0, or if it succeeds.
pub fn trespass(what: Trespass) -> ! {
    assert!(super::is_user(), "only ring 3 can trespass");
    let [_, tables, descriptors] = supervisor::image_parts().map(|part| part.range.start);
    // SAFETY (all): the attempt faults, and a fault ends the image; if it does not, the
    // panic below does.
    match what {
        // SAFETY: see above.
        Trespass::WritePageTable => unsafe { (tables as *mut u64).write_volatile(0) },
        // SAFETY: see above.
        Trespass::WriteDescriptors => unsafe { (descriptors as *mut u64).write_volatile(0) },
        // SAFETY: see above.
        Trespass::ReadDescriptors => drop(unsafe { (descriptors as *const u64).read_volatile() }),
        // SAFETY: see above.
        Trespass::Jump => unsafe { asm!("call {}", in(reg) gate::halt(), clobber_abi("C")) },
        // SAFETY: see above.
        Trespass::Privileged => unsafe { asm!("cli") },
        // SAFETY: see above.
        Trespass::NoStack => unsafe {
            asm!("mov rsp, 0x1000", "mov edi, 5", "int 4", "push rax");
        },
        // SAFETY: see above.
        Trespass::WildReturn => unsafe {
            asm!("push {wild}", "ret", wild = in(reg) 0x4141_4141_4141_4141_u64);
        },
        // SAFETY: see above.
        Trespass::NoArea => unsafe { asm!("wrgsbase {}", in(reg) 0_u64) },
    }
    panic!("{what:?} succeeded")
}

/// Asks the service gate for what it must refuse, with arguments drawn from `seed`;
/// gives how many requests it took as they were. The image goes on afterwards.
///
/// # Panics
/// In ring 0.
pub fn ask_nonsense(seed: u64, requests: u32) -> u32 {
    assert!(super::is_user(), "only ring 3 asks");
    let mut state = seed | 1;
    let mut draw = move || {
        // Marsaglia's xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let upcalls = (ask_nonsense as *const ()).addr() as u64 & !4095;
    for (address, entry) in [(upcalls, 0), (upcalls, upcalls | 7), (0x6000_0000_0000, 7)] {
        let answer = service::call(service::SET_PAGES, [address, entry, 1]);
        // The last one maps a page of the first MiB, which is ring 3's.
        assert_eq!(
            answer,
            u64::from(entry == 7),
            "entry {entry:#x} at {address:#x}"
        );
    }
    let own = supervisor::image_parts().map(|part| part.range.start);
    let mut taken = 0;
    for _ in 0..requests {
        // Small numbers and addresses of ring 0's memory find more than random ones.
        let mut argument = || match draw() % 4 {
            0 => draw() % 8,
            1 => own[draw() as usize % own.len()] + (draw() % 64) * 4096,
            2 => 0x7000_0000_0000 + draw() % (1 << 40) / 4096 * 4096,
            _ => draw(),
        };
        let arguments = [argument(), argument(), argument()];
        // Numbers beyond the last, and those of which every answer is harmless.
        let number = match draw() % 8 {
            0 => service::MAP_PAGES,
            1 => service::WRITE_MSR,
            2 => service::READ_MSR,
            3 => service::SET_PAGES,
            4 => service::WRITE_FS,
            5 => service::FLUSH,
            6 => service::OPEN,
            _ => 9 + draw() % (1 << 32),
        };
        taken += u32::from(service::call(number, arguments) == 1);
    }
    taken
}
