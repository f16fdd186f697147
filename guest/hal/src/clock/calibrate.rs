//! Measures the TSC and the APIC's timer against a clock of known frequency:
//! the ACPI power management timer, else the PIT. Takes 2 ms, and
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
const PIT_CHANNEL_0: u16 = 0x40;
const PIT_COMMAND: u16 = 0x43;
/// Channel 0, both bytes, mode 0.
const PIT_COUNT_DOWN: u8 = 0b0011_0000;
const PIT_LATCH: u8 = 0;
/// Measured for this part of a second.
const MEASURE_FRACTION: u64 = 500;
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

/// Waits 2 ms; gives the ticks that passed and their frequency.
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

/// Lets channel 0 count down for 2 ms (Intel 8254, mode 0). Its interrupt is
/// masked; channel 2 would need port 0x61, which microvm machines lack.
fn wait_pit() -> Option<(u64, u64)> {
    // SAFETY: nobody else uses the PIT.
    unsafe {
        Port::<u8>::new(PIT_COMMAND).write(PIT_COUNT_DOWN);
        Port::<u8>::new(PIT_CHANNEL_0).write(0xff);
        Port::<u8>::new(PIT_CHANNEL_0).write(0xff);
    }
    let start = pit_count();
    for _ in 0..PATIENCE {
        let passed = u64::from(start.wrapping_sub(pit_count()));
        if passed >= PIT_HZ / MEASURE_FRACTION {
            return Some((passed, PIT_HZ));
        }
        cpu::pause();
    }
    None
}

fn pit_count() -> u16 {
    let mut counter = Port::<u8>::new(PIT_CHANNEL_0);
    // SAFETY: latches and reads the counter, low byte first.
    unsafe {
        Port::<u8>::new(PIT_COMMAND).write(PIT_LATCH);
        u16::from(counter.read()) | u16::from(counter.read()) << 8
    }
}

fn tsc() -> u64 {
    // SAFETY: every 64-bit CPU has the counter.
    unsafe { _rdtsc() }
}

fn tsc_since(start: u64) -> u64 {
    tsc().wrapping_sub(start)
}
