//! The IOAPIC: interrupt lines of virtio-mmio devices (Intel 82093AA).

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering};

use crate::lock::IrqLock;
use crate::memory;
use crate::trap::irq::Vector;

const ENTRY: u32 = 0x10;
const VERSION: u32 = 1;

static ADDRESS: AtomicU64 = AtomicU64::new(0);
static ACCESS: IrqLock<()> = IrqLock::new(());

/// Remembers where it is; its entries are masked after reset. Without ACPI
/// (QEMU's microvm with `acpi=off`) it is where every PC has it.
pub(super) fn init(address: Option<u32>) {
    let address = address.map_or(tare_abi::layout::IOAPIC, u64::from);
    ADDRESS.store(address, Ordering::Relaxed);
}

/// Delivers the rising edge of `line` as `vector` to the CPU with `apic_id`;
/// says whether there is such a line.
pub(crate) fn route(line: u32, vector: Vector, apic_id: u32) -> bool {
    let base = ADDRESS.load(Ordering::Relaxed);
    if base == 0 || !memory::map_device(&(base..base + 0x20)) {
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
    // SAFETY: the IOAPIC's two windows, mapped by `route`; ACCESS is held.
    unsafe {
        (base as *mut u32).write_volatile(register);
        ((base + 0x10) as *const u32).read_volatile()
    }
}

fn write(base: u64, register: u32, value: u32) {
    // SAFETY: as for `read`.
    unsafe {
        (base as *mut u32).write_volatile(register);
        ((base + 0x10) as *mut u32).write_volatile(value);
    }
}
