//! The start of the clock: its frequency from CPUID, from KVM's clock, or measured without
//! either.

use super::tsc::{self, Clock, Frequency, GIGA, ticks};
use super::{Scale, calibrate, pvclock};
use crate::acpi::Tables;
use crate::cpuid;

/// Finds the frequencies and starts the clock.
pub(crate) fn init(tables: &Tables) {
    let needs_timer = !cpuid::has_tsc_deadline();
    let by_cpuid = cpuid::tsc_khz().map(|khz| u64::from(khz) * 1000);
    let told = by_cpuid.or_else(pvclock::tsc_hz);
    let frequency = match (by_cpuid, told) {
        (Some(_), _) => Frequency::Cpuid,
        (None, Some(_)) => Frequency::Kvm,
        (None, None) => Frequency::Measured,
    };
    let timer_told = cpuid::apic_khz().map(|khz| u64::from(khz) * 1000);
    let (tsc_hz, timer_hz) = match (told, timer_told) {
        (Some(tsc), Some(timer)) => (tsc, timer),
        (Some(tsc), None) if !needs_timer => (tsc, 0),
        (tsc, timer) => {
            let measured = calibrate::measure(tables);
            (
                tsc.unwrap_or(measured.tsc_hz),
                timer.unwrap_or(measured.timer_hz),
            )
        }
    };
    tsc::set(Clock {
        frequency,
        base: ticks(),
        to_ns: Scale::new(tsc_hz, GIGA),
        from_ns: Scale::new(GIGA, tsc_hz),
        timer_from_ns: (needs_timer && timer_hz != 0).then(|| Scale::new(GIGA, timer_hz)),
    });
}
