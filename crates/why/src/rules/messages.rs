//! Interrupts by others: IPIs, and devices.

use super::explained::{finding, interrupts};
use crate::attribution::Attribution;
use crate::finding::{Basis, Cause, Finding};
use crate::load::{Load, Source, Vcpu};
use crate::text::rate;

/// Interrupts per second from which a single cause is worth a sentence; fewer count as
/// the rest.
const LEAST_HZ: f64 = 20.0;

pub(super) fn findings(load: &Load, time: &Attribution) -> Vec<Finding> {
    [
        ipis(load, time, Source::Ipi),
        ipis(load, time, Source::SelfIpi),
        devices(load, time),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn ipis(load: &Load, time: &Attribution, source: Source) -> Option<Finding> {
    let hz = load.taken(source);
    let share = time.source(source);
    if hz < LEAST_HZ && share <= 0.0 {
        return None;
    }
    let (cause, what) = match source {
        Source::SelfIpi => (Cause::SelfIpis, "IPIs of vCPUs to themselves"),
        _ => (Cause::IpiStorm, "IPIs between vCPUs"),
    };
    let what = format!("{what}, {}", rate(hz));
    let parts = interrupts(share);
    let mut found = finding(load, cause, Basis::Estimated, what, parts);
    let of = |vcpu: &Vcpu| {
        let hz = vcpu.interrupts.get(&source).copied()?;
        (hz >= 1.0).then(|| format!("vCPU {} took {}", vcpu.index, rate(hz)))
    };
    found.evidence.extend(load.vcpus.iter().filter_map(of));
    found
        .evidence
        .push(format!("{} IPIs sent", rate(load.sent_ipis)));
    Some(found)
}

fn devices(load: &Load, time: &Attribution) -> Option<Finding> {
    let taken = load.taken(Source::Device);
    let share = time.source(Source::Device);
    if taken < LEAST_HZ && share <= 0.0 {
        return None;
    }
    let what = format!("device interrupts, {}", rate(taken));
    let parts = interrupts(share);
    let mut found = finding(load, Cause::DeviceInterrupts, Basis::Estimated, what, parts);
    let raised = load.raised.get(&Source::Device);
    let raised = raised.copied().unwrap_or_default();
    found.evidence.push(format!(
        "devices raised {}, {} of them by VMM threads",
        rate(raised.hz),
        rate(raised.by_monitor_hz)
    ));
    found.evidence.push(format!(
        "{} halts ended by any interrupt",
        rate(load.sum(|vcpu| vcpu.halts))
    ));
    Some(found)
}
