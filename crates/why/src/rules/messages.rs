//! Interrupts by others: vCPUs that interrupt each other, and devices.

use super::finding;
use crate::attribution::Attribution;
use crate::finding::{Basis, Cause, Finding};
use crate::load::{Load, Source};
use crate::words::rate;

/// Interrupts per second from which they are worth a sentence.
const LEAST_HZ: f64 = 50.0;

pub(super) fn findings(load: &Load, time: &Attribution) -> Vec<Finding> {
    [ipis(load, time), devices(load, time)]
        .into_iter()
        .flatten()
        .collect()
}

fn ipis(load: &Load, time: &Attribution) -> Option<Finding> {
    let commands = load.sum(|vcpu| {
        let owned = |exit: &&crate::exit::Exit| exit.owner() == Some(Source::Ipi);
        let ours = vcpu.exits.keys().filter(owned);
        ours.map(|exit| vcpu.exits[exit]).sum()
    });
    let taken = load.taken(Source::Ipi);
    let hz = taken.max(commands);
    if hz < LEAST_HZ {
        return None;
    }
    let what = format!("interrupts between vCPUs, {}", rate(hz));
    let share = time.source(Source::Ipi);
    let mut found = finding(load, Cause::IpiStorm, share, Basis::Estimated, what);
    let of = |vcpu: &crate::load::Vcpu| {
        let hz = vcpu.interrupts.get(&Source::Ipi).copied()?;
        (hz >= 1.0).then(|| format!("vCPU {} took {}", vcpu.index, rate(hz)))
    };
    found.evidence.extend(load.vcpus.iter().filter_map(of));
    found
        .evidence
        .push(format!("{} writes to interrupt commands", rate(commands)));
    Some(found)
}

fn devices(load: &Load, time: &Attribution) -> Option<Finding> {
    let taken = load.taken(Source::Device);
    if taken < LEAST_HZ {
        return None;
    }
    let what = format!("interrupts from devices, {}", rate(taken));
    let share = time.source(Source::Device);
    let mut found = finding(load, Cause::DeviceInterrupts, share, Basis::Estimated, what);
    let raised = load
        .raised
        .get(&Source::Device)
        .copied()
        .unwrap_or_default();
    found.evidence.push(format!(
        "devices raised {}, {} of them by threads of the monitor",
        rate(raised.hz),
        rate(raised.by_monitor_hz)
    ));
    found.evidence.push(format!(
        "{} halts ended by any interrupt",
        rate(load.sum(|vcpu| vcpu.halts))
    ));
    Some(found)
}
