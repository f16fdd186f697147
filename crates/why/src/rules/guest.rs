//! The guest's own code: what is left when everything else is explained.

use super::explained::finding;
use crate::attribution::Attribution;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::{Events, Load, Vcpu};
use crate::spread::{Own, Spread};
use crate::text::{percent, rate, thousands, vcpus};

/// Halts per second below which a vCPU never halts.
const NEVER_HZ: f64 = 0.5;
/// Seconds in which events must have been counted: a storm of another machine's leaves some
/// milliseconds, in which no halt means nothing.
const ENOUGH_S: f64 = 0.25;
/// Interrupts and exits per second below which it causes none.
const SILENT_HZ: f64 = 50.0;
/// Part of the window that it is runnable: a pause by the VMM would lower it. A wait that
/// is going on is not in the kernel's figures yet.
const ALWAYS: f64 = 0.6;
/// Part of its time that must be its own.
const OWN: f64 = 0.9;

pub(super) fn findings(load: &Load, time: &Attribution, spread: &Spread<'_>) -> Vec<Finding> {
    let (spinning, working): (Vec<_>, Vec<_>) = load
        .vcpus
        .iter()
        .zip(&time.guest)
        .map(|(vcpu, (_, share))| (vcpu, *share))
        .partition(|(vcpu, share)| is_known(load) && spins(vcpu, *share));
    let found = [
        (spin(load, &spinning), spinning),
        (work(load, &working), working),
    ];
    let found = found.into_iter().filter_map(|(found, whose)| {
        let mut found = found?;
        let is_its = |index: u32| whose.iter().any(|(vcpu, _)| vcpu.index == index);
        found.share_interval = spread.interval(Own::Rest, |it| {
            let own = it.guest.iter().filter(|(index, _)| is_its(*index));
            own.map(|(_, share)| share).sum()
        });
        Some(found)
    });
    found.collect()
}

/// Whether its events were counted for long enough to say that there were none.
fn is_known(load: &Load) -> bool {
    load.events == Events::Counted && load.counted_seconds >= ENOUGH_S
}

fn spins(vcpu: &Vcpu, share: f64) -> bool {
    let events: f64 = vcpu.interrupts.values().chain(vcpu.exits.values()).sum();
    vcpu.halts < NEVER_HZ
        && events < SILENT_HZ
        && vcpu.cpu + vcpu.waiting >= ALWAYS
        && share >= OWN * vcpu.cpu
}

fn own(share: f64) -> Breakdown {
    Breakdown {
        guest: share,
        ..Breakdown::default()
    }
}

fn spin(load: &Load, spinning: &[(&Vcpu, f64)]) -> Option<Finding> {
    let indices: Vec<u32> = spinning.iter().map(|(vcpu, _)| vcpu.index).collect();
    if indices.is_empty() {
        return None;
    }
    let share = spinning.iter().map(|(_, share)| share).sum();
    let unseen = load.unseen_hz();
    let seen = match unseen {
        hz if hz < NEVER_HZ => "never executed HLT".to_owned(),
        hz => format!(
            "executed no HLT while events were counted ({} of the time; up to {} may be missed)",
            percent(load.counted_seconds / load.seconds),
            rate(hz)
        ),
    };
    let what = format!("{} {seen}: busy loop or computation", vcpus(&indices));
    let mut found = finding(load, Cause::GuestSpins, Basis::Measured, what, own(share));
    let events = |of: fn(&Vcpu) -> f64| {
        let hz: f64 = spinning.iter().map(|(vcpu, _)| of(vcpu)).sum();
        thousands((hz * load.counted_seconds).round() as u64)
    };
    found.evidence.push(format!(
        "{} interrupts and {} exits in the {:.1} s that were counted",
        events(|vcpu| vcpu.interrupts.values().sum()),
        events(|vcpu| vcpu.exits.values().sum()),
        load.counted_seconds
    ));
    Some(found)
}

fn work(load: &Load, working: &[(&Vcpu, f64)]) -> Option<Finding> {
    let share: f64 = working.iter().map(|(_, share)| share).sum();
    let busiest = working.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let what = "the guest's own work".to_owned();
    let mut found = finding(load, Cause::Guest, Basis::Estimated, what, own(share));
    found.evidence.push(format!(
        "most of it on vCPU {}: {}",
        busiest.0.index,
        percent(busiest.1)
    ));
    Some(found)
}
