//! KVM's paravirtual clock, read once: for the TSC's frequency and for the wall
//! clock (kernel `Documentation/virt/kvm/x86/msr.rst`).

#![allow(unsafe_code)]

use core::arch::x86_64::_rdtsc;
use core::cell::UnsafeCell;

use crate::cpuid;
use crate::ring::kvm_register;

const MSR_KVM_WALL_CLOCK_NEW: u32 = 0x4b56_4d00;
const MSR_KVM_SYSTEM_TIME_NEW: u32 = 0x4b56_4d01;

/// KVM's registers that this module writes, and the bytes that KVM writes behind
/// them (`crate::ring::serve`).
pub(crate) const SHARED_REGISTERS: [(u32, u64); 2] =
    [(MSR_KVM_WALL_CLOCK_NEW, 12), (MSR_KVM_SYSTEM_TIME_NEW, 32)];

/// `pvclock_vcpu_time_info`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct SystemTime {
    version: u32,
    _pad: u32,
    tsc_timestamp: u64,
    system_ns: u64,
    tsc_to_system_mul: u32,
    tsc_shift: i8,
    flags: u8,
    _pad2: [u8; 2],
}

/// `pvclock_wall_clock`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct WallClock {
    version: u32,
    seconds: u32,
    nanoseconds: u32,
}

#[repr(C)]
struct Shared {
    system: UnsafeCell<SystemTime>,
    wall: UnsafeCell<WallClock>,
}
// SAFETY: 1. KVM writes the structures only between the two writes of a register that ask for it
//    and end it. 2. One caller at a time asks: `clock::init` on the only CPU that runs, then
//    `wall_ns` once, within its cell (`clock::wall`).
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared {
    system: UnsafeCell::new(SystemTime {
        version: 0,
        _pad: 0,
        tsc_timestamp: 0,
        system_ns: 0,
        tsc_to_system_mul: 0,
        tsc_shift: 0,
        flags: 0,
        _pad2: [0; 2],
    }),
    wall: UnsafeCell::new(WallClock {
        version: 0,
        seconds: 0,
        nanoseconds: 0,
    }),
};

/// The TSC's frequency by KVM's scale from ticks to nanoseconds.
pub(super) fn tsc_hz() -> Option<u64> {
    let time = system_time()?;
    if time.tsc_to_system_mul == 0 {
        return None;
    }
    let hz = (1_000_000_000_u64 << 32) / u64::from(time.tsc_to_system_mul);
    Some(match time.tsc_shift {
        shift if shift < 0 => hz << u32::from(shift.unsigned_abs()).min(31),
        shift => hz >> u32::from(shift.unsigned_abs()).min(63),
    })
}

/// Nanoseconds since 1970 by the hypervisor.
pub(super) fn wall_ns() -> Option<u64> {
    let now = system_time()?;
    let address = SHARED.wall.get();
    // SAFETY: 1. CPUID offers the register (`system_time`). 2. The hypervisor writes no
    //    more than the structure, static and identity-mapped, before the instruction ends.
    unsafe { kvm_register::write(MSR_KVM_WALL_CLOCK_NEW, address.addr() as u64) };
    // SAFETY: 1. The structure is static, aligned and initialised. 2. KVM wrote it before the
    //    register's write ended, and does not write it again. 3. One caller at a time is here
    //    (`Shared`).
    let boot = unsafe { address.read_volatile() };
    if boot.version == 0 {
        return None;
    }
    // SAFETY: 1. Every 64-bit processor has the counter, and either ring may read it
    //    (`clock::ticks`).
    let ticks = unsafe { _rdtsc() }.saturating_sub(now.tsc_timestamp);
    let shifted = match now.tsc_shift {
        shift if shift < 0 => ticks >> u32::from(shift.unsigned_abs()).min(63),
        shift => ticks << u32::from(shift.unsigned_abs()).min(63),
    };
    let since = (u128::from(shifted) * u128::from(now.tsc_to_system_mul)) >> 32;
    let boot_ns = u64::from(boot.seconds) * 1_000_000_000 + u64::from(boot.nanoseconds);
    Some(boot_ns + now.system_ns + since as u64)
}

/// Asks for the clock's values, copies them, and switches it off again, so
/// that the hypervisor has nothing to keep up to date.
fn system_time() -> Option<SystemTime> {
    if !cpuid::has_pv_clock() {
        return None;
    }
    let address = SHARED.system.get();
    // SAFETY: 1. CPUID offers the register. 2. The hypervisor writes no more than the
    //    structure, which is static and identity-mapped, before it runs this CPU again.
    unsafe { kvm_register::write(MSR_KVM_SYSTEM_TIME_NEW, address.addr() as u64 | 1) };
    // SAFETY: 1. The structure is static, aligned and initialised. 2. KVM wrote it before this CPU
    //    went on; a second write meanwhile changes the version, which is checked below. 3. One
    //    caller at a time is here (`Shared`).
    let time = unsafe { address.read_volatile() };
    // SAFETY: 1. CPUID offers the register. 2. Without the enabling bit KVM stops writing.
    unsafe { kvm_register::write(MSR_KVM_SYSTEM_TIME_NEW, 0) };
    (time.version != 0 && time.version % 2 == 0).then_some(time)
}
