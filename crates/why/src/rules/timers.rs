//! Periodic timers: those that a PC has, and the guest's own.

use tare_account::Role;

use super::chips::{kernel_pit_fires, timers_part, vmm_timer_hz};
use super::explained::{finding, interrupts};
use crate::attribution::Attribution;
use crate::expired;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::{Load, Source, TimerLine};
use crate::price::Prices;
use crate::rate::Rate;
use crate::spread::{Own, Spread};
use crate::text::percent;

/// Interrupts per second from which the line of a chip counts as a periodic timer.
const LEAST_HZ: f64 = 10.0;
/// Part of the intervals that must be even for a tick to be called one.
const REGULAR: f64 = 0.6;
/// Interrupts that are raised for each that is taken from which on their line is masked.
const MASKED: f64 = 10.0;

pub(super) fn findings(
    load: &Load,
    time: &Attribution,
    prices: &Prices<'_>,
    spread: &Spread<'_>,
) -> Vec<Finding> {
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
        .filter_map(|device| chip(load, time, prices, spread, device))
        .collect();
    findings.extend(tick(load, time, spread));
    findings
}

fn chip(
    load: &Load,
    time: &Attribution,
    prices: &Prices<'_>,
    spread: &Spread<'_>,
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
    let raises = load.raised_rate(&[source], raised.hz);
    let all = load.taken_rate(source, taken);
    let (what, rate) = match Line::of(&raises, &all) {
        Line::Masked => (
            format!("{name} fires {raises} although the guest masks its line"),
            raises,
        ),
        Line::MayBeMasked => (
            format!("{name} fires {raises}, and the guest may mask its line"),
            raises,
        ),
        Line::Open => (format!("{name} interrupts, {all}"), all),
    };
    let mut found = finding(load, cause, Basis::Estimated, what, parts);
    let vcpus_ends = spread.interval(Own::Source(source), |it| it.source(source));
    let vmm_ends = raises.along(vmm);
    found.share_interval = vcpus_ends
        .zip(vmm_ends)
        .map(|(vcpus, vmm)| [vcpus[0] + vmm[0] + kernel, vcpus[1] + vmm[1] + kernel]);
    found.rate = Some(rate);
    found.evidence.push(if by_kernel {
        format!("KVM's PIT thread raises the line {}", raises.brief())
    } else {
        format!(
            "a timer of the VMM's main loop raises the line {}",
            raises.brief()
        )
    });
    found.evidence.push(format!(
        "{} in vCPUs that it wakes up, {} in threads that raise it",
        percent(vcpus),
        percent(kernel + vmm)
    ));
    Some(found)
}

/// What the guest does with the line of a chip that fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Open,
    Masked,
    /// Too few events were counted to tell.
    MayBeMasked,
}

impl Line {
    /// It takes less than a tenth of the interrupts that are raised.
    fn of(raises: &Rate, taken: &Rate) -> Self {
        let is_masked = |raised: f64, taken: f64| taken < raised / MASKED;
        if !is_masked(raises.per_second, taken.per_second) {
            return Self::Open;
        }
        match raises.ends().zip(taken.ends()) {
            Some(([raised, _], [_, taken])) if is_masked(raised, taken) => Self::Masked,
            _ => Self::MayBeMasked,
        }
    }
}

/// The guest's own timer, whether it ticks or its programs sleep briefly.
fn tick(load: &Load, time: &Attribution, spread: &Spread<'_>) -> Option<Finding> {
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
    let own = Own::Source(Source::Timer);
    found.share_interval = spread.interval(own, |it| it.source(Source::Timer));
    found.rate = Some(rate);
    found.evidence.push(format!(
        "interrupts of the vCPUs' own APIC timers; {} of the intervals are even",
        percent(regularity)
    ));
    found
        .evidence
        .push(format!("{} halts", load.halt_rate().brief()));
    if let Some(timers) = expired::program_timers(&load.expiries) {
        let line = format!("time limits and timers of the program that ran out: {timers}");
        found.evidence.push(line);
    }
    if let Some(remedy) = expired::remedy(&load.expiries, share) {
        found.remedies = vec![remedy];
    }
    Some(found)
}
