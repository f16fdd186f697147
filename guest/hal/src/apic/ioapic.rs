//! IOAPICs: interrupt lines of virtio-mmio devices (Intel 82093AA).

#![allow(unsafe_code)]

use alloc::vec::Vec;

use crate::lock::IrqLock;
use crate::memory;
use crate::once::OnceCell;
use crate::trap::vector::Vector;

/// Byte offset of the window on the register that is selected.
const WINDOW: u64 = 0x10;
const ENTRY: u32 = 0x10;
const VERSION: u32 = 1;

static IOAPICS: OnceCell<Vec<(u32, u32)>> = OnceCell::new();
static ACCESS: IrqLock<()> = IrqLock::new(());

/// Remembers where they are; their entries are masked after reset. Without
/// ACPI (QEMU's microvm with `acpi=off`) there is one where every PC has it.
pub(super) fn init(ioapics: &[(u32, u32)]) {
    let mut known = ioapics.to_vec();
    if known.is_empty() {
        known.push((tare_abi::layout::IOAPIC as u32, 0));
    }
    IOAPICS.set(known).ok();
}

/// The IOAPIC of `line`, with the line's number there.
fn find(line: u32) -> Option<(u64, u32)> {
    let (address, first) = IOAPICS
        .get()?
        .iter()
        .filter(|(_, first)| *first <= line)
        .max_by_key(|(_, first)| *first)?;
    Some((u64::from(*address), line - first))
}

/// Delivers the rising edge of `line` as `vector` to the CPU with `apic_id`;
/// says whether there is such a line.
pub(crate) fn route(line: u32, vector: Vector, apic_id: u32) -> bool {
    let Some((base, line)) = find(line) else {
        return false;
    };
    if !memory::map_device(&(base..base + 0x20)) {
        return false;
    }
    let _access = ACCESS.lock();
    if line > (read(base, VERSION) >> 16) & 0xff {
        return false;
    }
    write(base, ENTRY + line * 2 + 1, apic_id << 24);
    write(base, ENTRY + line * 2, u32::from(vector.0));
    true
}

fn read(base: u64, register: u32) -> u32 {
    // SAFETY: 1. `select` gives the window on the register, within what `route` mapped, aligned to
    //    4. 2. ACCESS is held by `route`: no other core selects a register in between.
    unsafe { select(base, register).read_volatile() }
}

fn write(base: u64, register: u32, value: u32) {
    // SAFETY: 1. `select` gives the window on the register, within what `route` mapped, aligned to
    //    4. 2. ACCESS is held by `route`: no other core selects a register in between. 3. The entry
    //    delivers to a vector that has a handler (`irq::allocate`).
    unsafe { select(base, register).write_volatile(value) };
}

/// Selects `register`; gives the window on it.
fn select(base: u64, register: u32) -> *mut u32 {
    // SAFETY: 1. `base` is the IOAPIC's select register, mapped by `route`. 2. ACCESS is
    //    held: no other core selects a register in between.
    unsafe { (base as *mut u32).write_volatile(register) };
    (base + WINDOW) as *mut u32
}
