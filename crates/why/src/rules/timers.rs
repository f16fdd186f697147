//! Periodic timers: those that a PC has, and the guest's own.

use tare_account::Role;

use super::{finding, timers_part};
use crate::attribution::Attribution;
use crate::finding::{Basis, Cause, Finding};
use crate::load::{Load, Source};
use crate::price::Prices;
use crate::words::{percent, rate};

/// Interrupts per second from which a timer counts as periodic work.
const LEAST_HZ: f64 = 20.0;
/// Part of the intervals that must be even for a tick to be called one.
const REGULAR: f64 = 0.6;

pub(super) fn findings(load: &Load, time: &Attribution, prices: &Prices<'_>) -> Vec<Finding> {
    let devices = [
        (Source::Hpet, Cause::Hpet, "HPET"),
        (Source::Pit, Cause::Pit, "PIT"),
        (Source::Rtc, Cause::Rtc, "RTC"),
    ];
    let mut findings: Vec<_> = devices
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
    if raised.hz < LEAST_HZ || taken <= 0.0 {
        return None;
    }
    let threads = match source {
        Source::Pit => load.threads_in(|role| role == Role::Kvm),
        _ => timers_part(load, taken, prices),
    };
    let vcpus = time.source(source);
    let what = format!("{name} interrupts, {}", rate(taken));
    let mut found = finding(load, cause, vcpus + threads, Basis::Estimated, what);
    found.evidence.push(match source {
        Source::Pit => format!("KVM's own PIT raises its line {}", rate(raised.hz)),
        // QEMU raises lines below 16 at both interrupt controllers.
        _ => format!(
            "a timer of the monitor's main loop raises its line {}",
            rate(raised.hz)
        ),
    });
    found.evidence.push(format!(
        "{} in vCPUs that wake up for them, {} in threads that raise them",
        percent(vcpus),
        percent(threads)
    ));
    Some(found)
}

/// The guest's own timer, whether it ticks or its programs sleep briefly.
fn tick(load: &Load, time: &Attribution) -> Option<Finding> {
    let hz = load.taken(Source::Timer);
    if hz < LEAST_HZ {
        return None;
    }
    let regularity = load.sum(|vcpu| {
        let own = vcpu.interrupts.get(&Source::Timer).copied();
        vcpu.timer_regularity * own.unwrap_or(0.0)
    }) / hz;
    let what = match regularity >= REGULAR {
        true => format!("the guest's periodic timer, {}", rate(hz)),
        false => format!("the guest's timer, {} at uneven times", rate(hz)),
    };
    let share = time.source(Source::Timer);
    let mut found = finding(load, Cause::PeriodicTick, share, Basis::Estimated, what);
    found.evidence.push(format!(
        "interrupts of the vCPUs' own APIC timers; {} of the intervals are even",
        percent(regularity)
    ));
    let halts = load.sum(|vcpu| vcpu.halts);
    found.evidence.push(format!("{} halts", rate(halts)));
    Some(found)
}
