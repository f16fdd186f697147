//! Ring 0's side of the service gate. Every argument is checked here, since ring 3 may ask
//! for anything.

#![allow(unsafe_code)]

use x86_64::registers::model_specific::Msr;

use super::service::{
    ASK_FOR_HUGE_PAGE, CLEAR_PAGES, FLUSH, MAP_GIB, MAP_PAGES, READ_MSR, SEND_IPI, SET_LARGE_PAGE,
    SET_NEW_PAGES, SET_PAGES, WRITE_FS, WRITE_MSR,
};
use crate::apic::eoi;
use crate::memory::paging::{self, Earlier, large};
use crate::memory::supervisor;
use crate::{clock, ipi};

/// Refused or unknown.
const REFUSED: u64 = u64::MAX;

/// Runs in ring 0 with interrupts off: for an image in ring 3 on this CPU's ring-0 stack.
#[unsafe(no_mangle)]
extern "C" fn tare_service(number: u64, first: u64, second: u64, third: u64) -> u64 {
    match number {
        WRITE_MSR => write_msr(first, second),
        READ_MSR => read_msr(first),
        MAP_PAGES => u64::from(paging::map_pages_here(first, second, third)),
        MAP_GIB => u64::from(paging::map_gib_here(first, second != 0)),
        FLUSH => {
            x86_64::instructions::tlb::flush_all();
            0
        }
        SEND_IPI => {
            ipi::call_here(u128::from(first), second as u32);
            0
        }
        SET_NEW_PAGES => u64::from(paging::set_pages_here(
            first,
            second,
            third,
            Earlier::Nothing,
        )),
        SET_PAGES => u64::from(paging::set_pages_here(first, second, third, Earlier::Some)),
        CLEAR_PAGES => u64::from(paging::clear_pages_here(first, third)),
        SET_LARGE_PAGE => u64::from(large::set_here(first, second)),
        ASK_FOR_HUGE_PAGE => {
            large::ask_for_huge_page_here(first);
            0
        }
        WRITE_FS => write_fs(first),
        _ => REFUSED,
    }
}

fn write_fs(base: u64) -> u64 {
    const IA32_FS_BASE: u32 = 0xc000_0100;
    // Another address faults.
    if base >> 47 != 0 && base >> 47 != (1 << 17) - 1 {
        return REFUSED;
    }
    // SAFETY: 1. Every 64-bit processor has the register. 2. Ring 0 does not use FS. 3. The
    //    address is canonical, as checked.
    unsafe { Msr::new(IA32_FS_BASE).write(base) };
    0
}

/// Registers that give KVM the address of memory to share with the guest, and the
/// bytes that it writes there.
fn shared_bytes(register: u64) -> Option<u64> {
    clock::SHARED_REGISTERS
        .iter()
        .chain(&eoi::SHARED_REGISTERS)
        .find(|(known, _)| u64::from(*known) == register)
        .map(|(_, bytes)| *bytes)
}

fn write_msr(register: u64, value: u64) -> u64 {
    let Some(bytes) = shared_bytes(register) else {
        return REFUSED;
    };
    // The low bits are flags to one register and part of the address to another: from the lowest
    // address that KVM can take to the end behind the highest.
    let (lowest, end) = (value & !3, value.saturating_add(bytes));
    if value != 0 && supervisor::overlaps(&(lowest..end)) {
        return REFUSED;
    }
    // SAFETY: 1. `shared_bytes` knows the register; one that this KVM lacks faults, and the image
    //    ends. 2. KVM writes to the bytes from the address that the value names, whatever low bits
    //    it takes as flags: all of them were checked, and none is ring 0's. 3. In ring 0.
    unsafe { Msr::new(register as u32).write(value) };
    0
}

fn read_msr(register: u64) -> u64 {
    match shared_bytes(register) {
        // SAFETY: 1. `shared_bytes` knows the register; one that this KVM lacks faults, and the
        //    image ends. 2. In ring 0, and a read has no effect.
        Some(_) => unsafe { Msr::new(register as u32).read() },
        None => REFUSED,
    }
}
