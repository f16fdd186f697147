//! Measures the TSC and the APIC's timer against a clock of known frequency:
//! the ACPI power management timer, else channel 2 of the PIT. Takes 5 ms, and
//! only where neither CPUID nor KVM tells (QEMU's translator).

#![allow(unsafe_code)]

use core::arch::x86_64::_rdtsc;

use x86_64::instructions::port::Port;

use crate::acpi::Tables;
use crate::{apic, cpu};

/// What was measured.
pub(super) struct Measured {
    /// TSC frequency.
    pub(super) tsc_hz: u64,
    /// APIC timer frequency at divider 1.
    pub(super) timer_hz: u64,
}

const PM_TIMER_HZ: u64 = 3_579_545;
const PM_TIMER_MASK: u32 = 0x00ff_ffff;
const PIT_HZ: u64 = 1_193_182;
const MEASURE_FRACTION: u64 = 200;
/// Looks at a clock that stands still before it is given up.
const PATIENCE: u32 = 2_000_000;
/// Taken when no clock ticks: what QEMU's translator counts.
const GUESS_HZ: u64 = 1_000_000_000;

/// Measures both frequencies.
pub(super) fn measure(tables: &Tables) -> Measured {
    apic::mask_timer();
    apic::arm_ticks(u32::MAX);
    let (tsc, timer) = (tsc(), apic::ticks_left());
    let elapsed = tables
        .pm_timer_port
        .and_then(wait_pm_timer)
        .or_else(wait_pit);
    let (tsc, timer) = (tsc_since(tsc), timer.wrapping_sub(apic::ticks_left()));
    apic::unmask_timer();
    match elapsed {
        Some((ticks, hz)) => Measured {
            tsc_hz: tsc * hz / ticks,
            timer_hz: u64::from(timer) * hz / ticks,
        },
        None => Measured {
            tsc_hz: GUESS_HZ,
            timer_hz: GUESS_HZ,
        },
    }
}

/// Waits 5 ms; gives the ticks that passed and their frequency.
fn wait_pm_timer(port: u16) -> Option<(u64, u64)> {
    // SAFETY: reading the timer has no effect.
    let read = || unsafe { Port::<u32>::new(port).read() } & PM_TIMER_MASK;
    let start = read();
    for _ in 0..PATIENCE {
        let passed = u64::from(read().wrapping_sub(start) & PM_TIMER_MASK);
        if passed >= PM_TIMER_HZ / MEASURE_FRACTION {
            return Some((passed, PM_TIMER_HZ));
        }
        cpu::pause();
    }
    None
}

/// Lets channel 2 count down for 5 ms (Intel 8254, mode 0).
fn wait_pit() -> Option<(u64, u64)> {
    let count = (PIT_HZ / MEASURE_FRACTION) as u16;
    let mut gate = Port::<u8>::new(0x61);
    // SAFETY: the PIT's second channel drives only the speaker, which is off.
    unsafe {
        let control = gate.read() & !0b10;
        gate.write(control & !1);
        Port::<u8>::new(0x43).write(0b1011_0000);
        Port::<u8>::new(0x42).write(count as u8);
        Port::<u8>::new(0x42).write((count >> 8) as u8);
        gate.write(control | 1);
        for _ in 0..PATIENCE {
            if gate.read() & 0x20 != 0 {
                return Some((u64::from(count), PIT_HZ));
            }
            cpu::pause();
        }
    }
    None
}

fn tsc() -> u64 {
    // SAFETY: every 64-bit CPU has the counter.
    unsafe { _rdtsc() }
}

fn tsc_since(start: u64) -> u64 {
    tsc().wrapping_sub(start)
}
