//! The guest's own code: what is left when everything else is explained.

use super::explained::finding;
use crate::attribution::Attribution;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::{Events, Load, Vcpu};
use crate::text::{percent, rate, vcpus};

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

pub(super) fn findings(load: &Load, time: &Attribution) -> Vec<Finding> {
    let (spinning, working): (Vec<_>, Vec<_>) = load
        .vcpus
        .iter()
        .zip(&time.guest)
        .map(|(vcpu, (_, share))| (vcpu, *share))
        .partition(|(vcpu, share)| is_known(load) && spins(vcpu, *share));
    [spin(load, &spinning), work(load, &working)]
        .into_iter()
        .flatten()
        .collect()
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
    let what = format!(
        "{} never executed HLT: busy loop or computation",
        vcpus(&indices)
    );
    let mut found = finding(load, Cause::GuestSpins, Basis::Measured, what, own(share));
    let events = |of: fn(&Vcpu) -> f64| spinning.iter().map(|(vcpu, _)| of(vcpu)).sum::<f64>();
    found.evidence.push(format!(
        "{} interrupts and {} exits in {:.0} s",
        rate(events(|vcpu| vcpu.interrupts.values().sum())),
        rate(events(|vcpu| vcpu.exits.values().sum())),
        load.seconds
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
