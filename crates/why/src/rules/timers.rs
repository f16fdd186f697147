//! Periodic timers: those that a PC has, and the guest's own.

use tare_account::Role;

use super::chips::{kernel_pit_fires, timers_part, vmm_timer_hz};
use super::explained::{finding, interrupts};
use crate::attribution::Attribution;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::{Load, Source, TimerLine};
use crate::price::Prices;
use crate::text::percent;

/// Interrupts per second from which the line of a chip counts as a periodic timer.
const LEAST_HZ: f64 = 10.0;
/// Part of the intervals that must be even for a tick to be called one.
const REGULAR: f64 = 0.6;

pub(super) fn findings(load: &Load, time: &Attribution, prices: &Prices<'_>) -> Vec<Finding> {
    let pit = match load.timer_line {
        TimerLine::Certain => "PIT",
        TimerLine::PitOrHpet => "PIT (or HPET in its place)",
    };
    let chips = [
        (Source::Hpet, Cause::Hpet, "HPET"),
        (Source::Pit, Cause::Pit, pit),
        (Source::Rtc, Cause::Rtc, "RTC"),
    ];
    let mut findings: Vec<_> = chips
        .into_iter()
        .filter_map(|device| chip(load, time, prices, device))
        .collect();
    findings.extend(tick(load, time));
    findings
}

fn chip(
    load: &Load,
    time: &Attribution,
    prices: &Prices<'_>,
    (source, cause, name): (Source, Cause, &str),
) -> Option<Finding> {
    let raised = load.raised.get(&source).copied().unwrap_or_default();
    let taken = load.taken(source);
    let vcpus = time.source(source);
    if raised.hz.max(taken) < LEAST_HZ && vcpus <= 0.0 {
        return None;
    }
    let by_kernel = source == Source::Pit && kernel_pit_fires(load);
    let kernel = if by_kernel {
        load.threads_in(|role| role == Role::Kvm)
    } else {
        0.0
    };
    let vmm = timers_part(load, vmm_timer_hz(load, source), prices);
    let parts = Breakdown {
        interrupts: vcpus,
        kernel_threads: kernel,
        emulator_threads: vmm,
        ..Breakdown::default()
    };
    let is_masked = taken < raised.hz / 10.0;
    let raises = load.raised_rate(&[source], raised.hz);
    let (what, rate) = if is_masked {
        let what = format!("{name} fires {raises} although the guest masks its line");
        (what, raises)
    } else {
        let all = load.taken_rate(source, taken);
        (format!("{name} interrupts, {all}"), all)
    };
    let mut found = finding(load, cause, Basis::Estimated, what, parts);
    found.rate = Some(rate);
    found.evidence.push(if by_kernel {
        format!("KVM's PIT thread raises the line {raises}")
    } else {
        format!("a timer of the VMM's main loop raises the line {raises}")
    });
    found.evidence.push(format!(
        "{} in vCPUs that it wakes up, {} in threads that raise it",
        percent(vcpus),
        percent(kernel + vmm)
    ));
    Some(found)
}

/// The guest's own timer, whether it ticks or its programs sleep briefly.
fn tick(load: &Load, time: &Attribution) -> Option<Finding> {
    let hz = load.taken(Source::Timer);
    let share = time.source(Source::Timer);
    if share <= 0.0 {
        return None;
    }
    let regularity = load.sum(|vcpu| {
        let own = vcpu.interrupts.get(&Source::Timer).copied();
        vcpu.timer_regularity * own.unwrap_or(0.0)
    }) / hz.max(f64::MIN_POSITIVE);
    let rate = load.taken_rate(Source::Timer, hz);
    let what = if regularity >= REGULAR {
        format!("the guest's periodic timer, {rate}")
    } else {
        format!("the guest's timer, {rate} at uneven times")
    };
    let parts = interrupts(share);
    let mut found = finding(load, Cause::PeriodicTick, Basis::Estimated, what, parts);
    found.rate = Some(rate);
    found.evidence.push(format!(
        "interrupts of the vCPUs' own APIC timers; {} of the intervals are even",
        percent(regularity)
    ));
    found.evidence.push(format!("{} halts", load.halt_rate()));
    Some(found)
}
