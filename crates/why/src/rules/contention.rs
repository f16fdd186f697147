//! vCPUs that could run and have no CPU.

use std::collections::BTreeMap;

use super::finding;
use crate::finding::{Basis, Cause, Finding};
use crate::load::{Load, Vcpu};
use crate::words::{percent, vcpus};

/// vCPUs by the CPUs that they may use.
type Groups<'a> = BTreeMap<&'a [u32], Vec<&'a Vcpu>>;

pub(super) fn findings(load: &Load) -> Vec<Finding> {
    let mut groups = Groups::new();
    for vcpu in &load.vcpus {
        groups.entry(&vcpu.allowed).or_default().push(vcpu);
    }
    let (together, others): (Groups<'_>, Groups<'_>) = groups
        .into_iter()
        .partition(|(cpus, members)| is_together(load, cpus, members));
    let mut findings: Vec<_> = together
        .into_iter()
        .map(|(cpus, members)| pinned(load, cpus, &members))
        .collect();
    let others: Vec<&Vcpu> = others.into_values().flatten().collect();
    findings.extend(steal(load, &others));
    findings
}

/// More vCPUs than CPUs that they may use, though the host has others.
fn is_together(load: &Load, cpus: &[u32], members: &[&Vcpu]) -> bool {
    !cpus.is_empty() && members.len() > cpus.len() && (cpus.len() as u32) < load.host_cpus
}

fn pinned(load: &Load, cpus: &[u32], members: &[&Vcpu]) -> Finding {
    let share = members.iter().map(|vcpu| vcpu.waiting).sum();
    let indices: Vec<u32> = members.iter().map(|vcpu| vcpu.index).collect();
    let names: Vec<String> = cpus.iter().map(u32::to_string).collect();
    let what = format!(
        "{} pinned on top of each other, on CPU {}",
        vcpus(&indices),
        crate::words::list(&names)
    );
    let mut found = finding(load, Cause::PinnedTogether, share, Basis::Measured, what);
    found.evidence.push(waits(members));
    found
}

fn steal(load: &Load, members: &[&Vcpu]) -> Option<Finding> {
    let share: f64 = members.iter().map(|vcpu| vcpu.waiting).sum();
    if share <= 0.0 {
        return None;
    }
    let what = "vCPUs wait for a CPU that others use".to_owned();
    let mut found = finding(load, Cause::Steal, share, Basis::Measured, what);
    found.evidence.push(waits(members));
    let mut by: Vec<&String> = members.iter().flat_map(|v| &v.preempted_by).collect();
    by.dedup();
    let names: Vec<_> = by.into_iter().take(3).cloned().collect();
    if !names.is_empty() {
        let names = crate::words::list(&names);
        found.evidence.push(format!("their CPU went to {names}"));
    }
    Some(found)
}

fn waits(members: &[&Vcpu]) -> String {
    let waits = members.iter().filter(|vcpu| vcpu.waiting > 0.0);
    let waits: Vec<_> = waits
        .map(|vcpu| {
            format!(
                "vCPU {} ran {}, waited {}",
                vcpu.index,
                percent(vcpu.cpu),
                percent(vcpu.waiting)
            )
        })
        .collect();
    waits.join("; ")
}
