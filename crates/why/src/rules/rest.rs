//! What no rule has explained: every part of the breakdown above 1 % is in a finding.

use super::explained::finding;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::Load;

/// Share of a core that a part of the breakdown may lack in the findings.
const UNEXPLAINED: f64 = 0.005;

/// Adds a finding for each part of the breakdown that the others leave unexplained.
pub(crate) fn complete(
    load: &Load,
    breakdown: &Breakdown,
    interval: Option<&[Breakdown; 2]>,
    findings: &mut Vec<Finding>,
) {
    let rests: Vec<Finding> = breakdown
        .parts()
        .into_iter()
        .enumerate()
        .filter_map(|(index, (name, share))| {
            let explained: f64 = findings.iter().map(|f| f.parts.parts()[index].1).sum();
            let rest = share - explained;
            (rest > UNEXPLAINED).then(|| {
                let mut found = of_part(load, name, rest, explained > 0.0);
                found.share_interval = interval
                    .map(|ends| ends.map(|end| (end.parts()[index].1 - explained).max(0.0)));
                found
            })
        })
        .collect();
    findings.extend(rests);
}

fn of_part(load: &Load, name: &str, rest: f64, is_partly_explained: bool) -> Finding {
    let mut parts = Breakdown::default();
    let (cause, field) = match name {
        "guest" => (Cause::Guest, &mut parts.guest),
        "interrupts" => (Cause::DeviceInterrupts, &mut parts.interrupts),
        "exits" => (Cause::Exits, &mut parts.exits),
        "halt polling" => (Cause::Polling, &mut parts.polling),
        "VMM threads" => (Cause::EmulatorThread, &mut parts.emulator_threads),
        "I/O threads" => (Cause::EmulatorThread, &mut parts.io_threads),
        "helper processes" => (Cause::Helpers, &mut parts.helpers),
        "kernel threads" => (Cause::KernelThreads, &mut parts.kernel_threads),
        _ => (Cause::Unknown, &mut parts.unknown),
    };
    *field = rest;
    let what = if name == "unknown" {
        "vCPU time of unknown cause: BPF is unavailable".to_owned()
    } else if is_partly_explained {
        format!("other {name}")
    } else {
        name.to_owned()
    };
    finding(load, cause, Basis::Estimated, what, parts)
}
