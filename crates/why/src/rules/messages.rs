//! Interrupts by others: IPIs, and devices.

use super::explained::{finding, interrupts};
use crate::attribution::Attribution;
use crate::finding::{Basis, Cause, Finding};
use crate::load::{Load, Source, Vcpu};
use crate::spread::{Own, Spread};

/// Interrupts per second from which a single cause is worth a sentence; fewer count as
/// the rest.
const LEAST_HZ: f64 = 20.0;

pub(super) fn findings(load: &Load, time: &Attribution, spread: &Spread<'_>) -> Vec<Finding> {
    [
        ipis(load, time, spread, Source::Ipi),
        ipis(load, time, spread, Source::SelfIpi),
        devices(load, time, spread),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn ipis(load: &Load, time: &Attribution, spread: &Spread<'_>, source: Source) -> Option<Finding> {
    let hz = load.taken(source);
    let share = time.source(source);
    if hz < LEAST_HZ && share <= 0.0 {
        return None;
    }
    let (cause, what) = match source {
        Source::SelfIpi => (Cause::SelfIpis, "IPIs of vCPUs to themselves"),
        _ => (Cause::IpiStorm, "IPIs between vCPUs"),
    };
    let all = load.taken_rate(source, hz);
    let what = format!("{what}, {all}");
    let parts = interrupts(share);
    let mut found = finding(load, cause, Basis::Estimated, what, parts);
    found.share_interval = spread.interval(Own::Source(source), |it| it.source(source));
    found.rate = Some(all);
    let of = |vcpu: &Vcpu| {
        let hz = vcpu.interrupts.get(&source).copied()?;
        let rate = load.taken_rate(source, hz);
        (hz >= 1.0).then(|| format!("vCPU {} took {}", vcpu.index, rate.brief()))
    };
    found.evidence.extend(load.vcpus.iter().filter_map(of));
    found
        .evidence
        .push(format!("{} IPIs sent", load.sent_rate().brief()));
    Some(found)
}

fn devices(load: &Load, time: &Attribution, spread: &Spread<'_>) -> Option<Finding> {
    let taken = load.taken(Source::Device);
    let share = time.source(Source::Device);
    if taken < LEAST_HZ && share <= 0.0 {
        return None;
    }
    let all = load.taken_rate(Source::Device, taken);
    let what = format!("device interrupts, {all}");
    let parts = interrupts(share);
    let mut found = finding(load, Cause::DeviceInterrupts, Basis::Estimated, what, parts);
    let own = Own::Source(Source::Device);
    found.share_interval = spread.interval(own, |it| it.source(Source::Device));
    found.rate = Some(all);
    let raised = load
        .raised
        .get(&Source::Device)
        .copied()
        .unwrap_or_default();
    found.evidence.push(format!(
        "devices raised {}, {} of them by VMM threads",
        load.raised_rate(&[Source::Device], raised.hz).brief(),
        load.raised_rate(&[Source::Device], raised.by_monitor_hz)
            .brief()
    ));
    found.evidence.push(format!(
        "{} halts ended by any interrupt",
        load.halt_rate().brief()
    ));
    Some(found)
}
