//! The periodic timers of a PC, for images that show what they cost: HPET (IA-PC
//! HPET 1.0a), PIT (Intel 8254) and the clock chip's periodic interrupt
//! (MC146818). Nothing else starts one: deadlines use the local APIC's timer.

#![allow(unsafe_code)]

use x86_64::instructions::port::Port;

use crate::apic::{accept_from_pics, end_of_pic_interrupt, ioapic};
use crate::trap::irq::{self, Handler, Vector};
use crate::{cmos, memory, smp};

/// Lines of the IOAPIC: interrupt 0 is connected to the third (ACPI's override).
const TIMER_LINE: u32 = 2;
const CLOCK_LINE: u32 = 8;

/// Vectors of the 8259s' lines: the last sixteen, the spurious one's among them, which no device has while there
/// are few.
const PIC_VECTORS: u8 = 0x50;
/// Lines of the 8259s.
const PIC_TIMER_LINE: u8 = 0;
const PIC_CLOCK_LINE: u8 = 8;

const HPET: u64 = 0xfed0_0000;
const HPET_BYTES: u64 = 0x400;
const HPET_PERIOD: u64 = 0x4;
const HPET_CONFIGURATION: u64 = 0x10;
const HPET_ENABLE_LEGACY: u32 = 0b11;
const HPET_COUNTER: u64 = 0xf0;
const HPET_TIMER0: u64 = 0x100;
const HPET_COMPARATOR0: u64 = 0x108;
/// Interrupts, periodically, and the period is what is written next.
const HPET_PERIODIC: u32 = (1 << 2) | (1 << 3) | (1 << 6);
const FS_IN_S: u64 = 1_000_000_000_000_000;
/// Longest period that the specification allows the counter, fs.
const HPET_MAX_PERIOD: u64 = 100_000_000;

const PIT_HZ: u64 = 1_193_182;
const PIT_COUNTER0: u16 = 0x40;
const PIT_CONTROL: u16 = 0x43;
/// Counter 0, both bytes, a rate generator.
const PIT_RATE: u8 = 0x34;

const RTC_SECONDS: u8 = 0;
const RTC_A: u8 = 0x0a;
const RTC_B: u8 = 0x0b;
const RTC_C: u8 = 0x0c;
const RTC_PERIODIC: u8 = 1 << 6;
/// Fastest and slowest selections of the divider that all chips take.
const RTC_SELECTIONS: core::ops::RangeInclusive<u8> = 3..=15;

/// A clock that a guest may take the time from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The HPET's main counter.
    Hpet,
    /// Counter 0 of the PIT, latched.
    Pit,
    /// The seconds of the clock chip.
    Rtc,
    /// The timer of ACPI's power management (ACPI 6.5, 4.8.3.3) at this port.
    PmTimer(u16),
}

/// Reads a clock `times` times; says what is missing.
pub fn read(clock: Clock, times: u64) -> Result<(), &'static str> {
    if clock == Clock::Hpet && !memory::map_device(&(HPET..HPET + HPET_BYTES)) {
        return Err("the HPET cannot be mapped");
    }
    for _ in 0..times {
        read_once(clock);
    }
    Ok(())
}

fn read_once(clock: Clock) {
    match clock {
        Clock::Hpet => drop(hpet_read(HPET_COUNTER)),
        Clock::Rtc => drop(cmos::read(RTC_SECONDS)),
        Clock::Pit => {
            // SAFETY: 1. The port is the PIT's, or no device's. 2. Latching a counter does
            // not stop it.
            unsafe { Port::<u8>::new(PIT_CONTROL).write(0) };
            for _ in 0..2 {
                // SAFETY: 1. The port is the PIT's, or no device's. 2. A read of the latched count
                //    changes no memory.
                unsafe { Port::<u8>::new(PIT_COUNTER0).read() };
            }
        }
        // SAFETY: 1. The caller names the port as that of ACPI's timer, which is read-only; a port
        //    without a device reads as ones. 2. A read of a port changes no memory.
        Clock::PmTimer(port) => unsafe {
            Port::<u32>::new(port).read();
        },
    }
}

/// A periodic timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The first comparator of the HPET, in place of interrupt 0.
    Hpet,
    /// Counter 0 of the PIT.
    Pit,
    /// The same through the 8259s, as before there was an IOAPIC.
    PitThroughPic,
    /// The same with its line masked everywhere: it costs only the host.
    PitMasked,
    /// The clock chip; each interrupt has to be acknowledged there.
    Rtc,
    /// The same through the 8259s.
    RtcThroughPic,
}

/// Starts `timer` at about `hz`; its handler only acknowledges the chip. Gives
/// the rate that the chip supports, or names what is missing.
pub fn start(timer: Timer, hz: u64) -> Result<u64, &'static str> {
    let hz = hz.clamp(19, 100_000);
    match timer {
        Timer::Hpet => hpet(hz),
        Timer::Pit => pit(hz, || route(TIMER_LINE, &|| {})),
        Timer::PitThroughPic => pit(hz, route_through_pic),
        Timer::PitMasked => pit(hz, || Ok(())),
        Timer::Rtc => rtc(hz, || route(CLOCK_LINE, &acknowledge_rtc)),
        Timer::RtcThroughPic => rtc(hz, || {
            let handler = &|| {
                acknowledge_rtc();
                end_of_pic_interrupt(PIC_CLOCK_LINE);
            };
            through_pics(PIC_CLOCK_LINE, handler)
        }),
    }
}

fn hpet(hz: u64) -> Result<u64, &'static str> {
    if !memory::map_device(&(HPET..HPET + HPET_BYTES)) {
        return Err("the HPET cannot be mapped");
    }
    let period_fs = u64::from(hpet_read(HPET_PERIOD));
    if period_fs == 0 || period_fs > HPET_MAX_PERIOD {
        return Err("there is no HPET");
    }
    route(TIMER_LINE, &|| {})?;
    let ticks = FS_IN_S / period_fs / hz;
    hpet_write(HPET_TIMER0, HPET_PERIODIC);
    hpet_write(HPET_COMPARATOR0, ticks as u32);
    hpet_write(HPET_COMPARATOR0 + 4, 0);
    hpet_write(HPET_CONFIGURATION, HPET_ENABLE_LEGACY);
    Ok(FS_IN_S / period_fs / ticks)
}

fn hpet_read(register: u64) -> u32 {
    // SAFETY: 1. The register lies in the 1,024 bytes that `read` and `hpet` mapped before they
    //    call this, at a multiple of 4. 2. A read of the HPET changes no memory.
    unsafe { ((HPET + register) as *const u32).read_volatile() }
}

fn hpet_write(register: u64, value: u32) {
    // SAFETY: 1. The register lies in the 1,024 bytes that `hpet` mapped, at a multiple of 4. 2.
    //    All that the HPET can do is to raise the line that `route` has given a handler.
    unsafe { ((HPET + register) as *mut u32).write_volatile(value) };
}

fn pit(hz: u64, route: fn() -> Result<(), &'static str>) -> Result<u64, &'static str> {
    let count = (PIT_HZ / hz).clamp(2, u64::from(u16::MAX)) as u16;
    // SAFETY: 1. The port is the PIT's, or no device's. 2. Its line is masked until `route`.
    unsafe { Port::<u8>::new(PIT_CONTROL).write(PIT_RATE) };
    for byte in count.to_le_bytes() {
        // SAFETY: 1. The port is the PIT's, or no device's. 2. Its line is masked until `route`.
        unsafe { Port::<u8>::new(PIT_COUNTER0).write(byte) };
    }
    if !pit_counts() {
        return Err("there is no PIT");
    }
    route()?;
    Ok(PIT_HZ / u64::from(count))
}

/// A port without a device reads as ones, always.
fn pit_counts() -> bool {
    // SAFETY: 1. The port is the PIT's, or no device's. 2. A read of the counter changes no memory.
    (0..16).any(|_| unsafe { Port::<u8>::new(PIT_COUNTER0).read() } != 0xff)
}

fn rtc(hz: u64, route: fn() -> Result<(), &'static str>) -> Result<u64, &'static str> {
    let rate = |selection: &u8| 32_768 >> (selection - 1);
    let selection = RTC_SELECTIONS
        .filter(|selection| rate(selection) <= hz)
        .min()
        .unwrap_or(*RTC_SELECTIONS.end());
    if cmos::read(RTC_B) == 0xff {
        return Err("there is no clock chip");
    }
    route()?;
    cmos::write(RTC_A, 0x20 | selection);
    cmos::write(RTC_B, cmos::read(RTC_B) | RTC_PERIODIC);
    cmos::read(RTC_C);
    Ok(rate(&selection))
}

/// The chip's next interrupt comes when this one has been read.
fn acknowledge_rtc() {
    cmos::read(RTC_C);
}

/// Delivers the first line of the 8259s, which is the PIT's, to the first CPU: at once, also
/// where the PIT has been counting with its line masked ([`Timer::PitMasked`]).
pub fn route_through_pic() -> Result<(), &'static str> {
    through_pics(PIC_TIMER_LINE, &|| end_of_pic_interrupt(PIC_TIMER_LINE))
}

/// Delivers a line of the 8259s to the first CPU; its handler ends the interrupt.
fn through_pics(line: u8, handler: Handler) -> Result<(), &'static str> {
    irq::register(Vector(PIC_VECTORS + line), handler);
    accept_from_pics(line, PIC_VECTORS);
    Ok(())
}

/// Delivers `line` to the first CPU.
fn route(line: u32, handler: Handler) -> Result<(), &'static str> {
    let routed =
        irq::allocate(handler).is_some_and(|vector| ioapic::route(line, vector, smp::apic_id(0)));
    routed.then_some(()).ok_or("the interrupt cannot be routed")
}
