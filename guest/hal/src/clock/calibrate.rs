//! Measures the TSC and the APIC's timer against a clock of known frequency: the
//! ACPI power management timer, else the PIT. Takes 5 ms, and runs only where
//! neither CPUID nor KVM gives the frequency (QEMU's translator).
//!
//! The host may deschedule the vCPU at any point, also between the readings of two
//! clocks. So each reading of the reference lies between two of the TSC, the closest
//! pair of several tries counts, and of several windows the median.

#![allow(unsafe_code)]

use core::arch::x86_64::_rdtsc;

use x86_64::instructions::port::Port;

use super::windows::{self, Measured, Passed, Sample, WINDOWS};
use crate::acpi::Tables;
use crate::{apic, cpu};

const PM_TIMER_HZ: u64 = 3_579_545;
const PM_TIMER_MASK: u64 = 0x00ff_ffff;
const PIT_HZ: u64 = 1_193_182;
const PIT_MASK: u64 = 0xffff;
const PIT_CHANNEL_0: u16 = 0x40;
const PIT_COMMAND: u16 = 0x43;
/// Channel 0, both bytes, mode 0.
const PIT_COUNT_DOWN: u8 = 0b0011_0000;
const PIT_LATCH: u8 = 0;
/// A window lasts this part of a second.
const WINDOW_FRACTION: u64 = 1000;
/// Tries to read all clocks at one time.
const TRIES: usize = 8;
/// Reads of a clock that stands still before calibration gives it up.
const MOST_LOOKS: u32 = 2_000_000;
/// Assumed when no clock ticks: the rate of QEMU's translator.
const GUESS_HZ: u64 = 1_000_000_000;

/// Measures both frequencies.
pub(super) fn measure(tables: &Tables) -> Measured {
    apic::mask_timer();
    apic::arm_ticks(u32::MAX);
    let measured = tables
        .pm_timer_port
        .and_then(|port| measure_with(&Reference::PmTimer(port)))
        .or_else(|| {
            start_pit();
            measure_with(&Reference::Pit)
        });
    apic::unmask_timer();
    measured.unwrap_or(Measured {
        tsc_hz: GUESS_HZ,
        timer_hz: GUESS_HZ,
    })
}

fn measure_with(reference: &Reference) -> Option<Measured> {
    let mut windows = [Measured::default(); WINDOWS];
    for window in &mut windows {
        let begin = sample(reference);
        reference.wait(begin.clock)?;
        let end = sample(reference);
        let passed = Passed {
            ticks: reference.passed(begin.clock, end.clock),
            hz: reference.hz(),
        };
        *window = begin.to(&end, &passed)?;
    }
    Some(windows::median(windows))
}

/// A clock of known frequency.
enum Reference {
    /// The ACPI power management timer at this port, 24 bits upwards.
    PmTimer(u16),
    /// Channel 0 of the 8254, 16 bits downwards.
    Pit,
}

impl Reference {
    fn hz(&self) -> u64 {
        match self {
            Self::PmTimer(_) => PM_TIMER_HZ,
            Self::Pit => PIT_HZ,
        }
    }

    fn read(&self) -> u64 {
        match self {
            // SAFETY: 1. ACPI names the port as that of the timer (`acpi`). 2. A read of the timer
            //    has no effect, and none changes memory.
            Self::PmTimer(port) => u64::from(unsafe { Port::<u32>::new(*port).read() }),
            Self::Pit => u64::from(u16::MAX - pit_count()),
        }
    }

    /// Ticks between two readings.
    fn passed(&self, from: u64, to: u64) -> u64 {
        let mask = match self {
            Self::PmTimer(_) => PM_TIMER_MASK,
            Self::Pit => PIT_MASK,
        };
        to.wrapping_sub(from) & mask
    }

    /// Waits for a window's length; `None` if the clock stands still.
    fn wait(&self, start: u64) -> Option<()> {
        for _ in 0..MOST_LOOKS {
            if self.passed(start, self.read()) >= self.hz() / WINDOW_FRACTION {
                return Some(());
            }
            cpu::pause();
        }
        None
    }
}

/// The quickest of several readings of all clocks.
fn sample(reference: &Reference) -> Sample {
    let mut best = read_all(reference);
    for _ in 1..TRIES {
        let sample = read_all(reference);
        if sample.took < best.took {
            best = sample;
        }
    }
    best
}

fn read_all(reference: &Reference) -> Sample {
    let begin = tsc();
    let clock = reference.read();
    let timer = apic::ticks_left();
    let took = tsc().wrapping_sub(begin);
    Sample {
        tsc: begin.wrapping_add(took / 2),
        clock,
        timer,
        took,
    }
}

/// Lets channel 0 count down (Intel 8254, mode 0). Its interrupt is masked; channel 2
/// would need port 0x61, which microvm machines lack.
fn start_pit() {
    pit_write(PIT_COMMAND, PIT_COUNT_DOWN);
    pit_write(PIT_CHANNEL_0, 0xff);
    pit_write(PIT_CHANNEL_0, 0xff);
}

fn pit_count() -> u16 {
    pit_write(PIT_COMMAND, PIT_LATCH);
    // SAFETY: 1. The port is the PIT's, or no device's. 2. A read of the latched count gives its
    //    low byte, then its high one, and changes no memory.
    let [low, high] = [(); 2].map(|()| unsafe { Port::<u8>::new(PIT_CHANNEL_0).read() });
    u16::from_le_bytes([low, high])
}

fn pit_write(port: u16, value: u8) {
    // SAFETY: 1. The port is the PIT's, which nothing else uses at boot, or no device's.
    //    2. Its interrupt is masked.
    unsafe { Port::<u8>::new(port).write(value) };
}

fn tsc() -> u64 {
    // SAFETY: 1. Every 64-bit processor has the counter, and either ring may read it
    //    (`clock::ticks`).
    unsafe { _rdtsc() }
}
