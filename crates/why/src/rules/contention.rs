//! vCPUs that could run and have no CPU: a quota, the machine's own pinning, or others.

use std::collections::BTreeMap;

use super::explained::finding;
use crate::account::LEAST_SEEN;
use crate::advice;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::{Load, Throttled, Vcpu};
use crate::text::{list, percent, vcpus};

/// vCPUs by the CPUs that they may use.
type Groups<'a> = BTreeMap<&'a [u32], Vec<&'a Vcpu>>;

/// Names shown of those who had the CPUs.
const NAMED: usize = 3;
/// Share of a core from which one of them is worth its name.
const WORTH_NAMING: f64 = 0.005;

pub(super) fn findings(load: &Load) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut throttled: BTreeMap<u32, f64> = BTreeMap::new();
    for quota in &load.throttled {
        findings.extend(quota_finding(load, quota, &mut throttled));
    }
    let mut groups = Groups::new();
    for vcpu in &load.vcpus {
        groups.entry(&vcpu.allowed).or_default().push(vcpu);
    }
    let (together, others): (Groups<'_>, Groups<'_>) = groups
        .into_iter()
        .partition(|(cpus, members)| is_together(load, cpus, members));
    for (cpus, members) in together {
        findings.push(pinned(load, cpus, &members, &throttled));
    }
    let others: Vec<&Vcpu> = others.into_values().flatten().collect();
    findings.extend(steal(load, &others, &throttled));
    findings
}

/// A finding whose share is time that was not used.
fn lost(load: &Load, cause: Cause, what: String, share: f64) -> Finding {
    let mut found = finding(load, cause, Basis::Measured, what, Breakdown::default());
    found.share = share;
    found.share_interval = Some([share; 2]);
    found
}

/// Waiting that a quota does not explain.
fn unthrottled(vcpu: &Vcpu, throttled: &BTreeMap<u32, f64>) -> f64 {
    let by_quota = throttled.get(&vcpu.tid).copied().unwrap_or(0.0);
    (vcpu.waiting - by_quota).max(0.0)
}

/// The part of a vCPU's wait in a stop by this quota that had not ended when the window did: the
/// kernel has only counted the quota's periods in it. A wait for others rarely takes a period.
fn unfinished_stop(load: &Load, quota: &Throttled, vcpu: &Vcpu) -> f64 {
    let period = quota.period_us as f64 / 1e6 / load.seconds;
    if quota.periods > 0 && vcpu.unfinished >= period {
        vcpu.unfinished
    } else {
        0.0
    }
}

/// The kernel counts a group's stopped time when the stop ends, and each stopped vCPU waits for
/// all of it.
fn quota_finding(
    load: &Load,
    quota: &Throttled,
    throttled: &mut BTreeMap<u32, f64>,
) -> Option<Finding> {
    let members: Vec<&Vcpu> = load
        .vcpus
        .iter()
        .filter(|v| quota.threads.contains(&v.tid))
        .collect();
    let mut left = quota.share;
    let (mut share, mut unfinished) = (0.0, 0.0);
    for vcpu in &members {
        let waited = unthrottled(vcpu, throttled);
        let still = waited.min(unfinished_stop(load, quota, vcpu));
        let ended = left.min(waited - still);
        *throttled.entry(vcpu.tid).or_default() += still + ended;
        share += still + ended;
        unfinished += still;
        left -= ended;
    }
    if share <= 0.0 {
        return None;
    }
    let what = format!(
        "throttled: the CPU quota of its cgroup, {:.2} CPUs, stops {}",
        quota.cpus,
        vcpus(&members.iter().map(|vcpu| vcpu.index).collect::<Vec<_>>())
    );
    let mut found = lost(load, Cause::Throttled, what, share);
    found.evidence.push(format!(
        "{} was throttled {} of the time, on all CPUs together (cpu.stat)",
        quota.directory,
        percent(quota.share)
    ));
    if unfinished > 0.0 {
        found.evidence.push(format!(
            "the last stop had not ended and is not in cpu.stat's time: its vCPUs waited {} of the time \
             (nr_throttled rose by {})",
            percent(unfinished),
            quota.periods
        ));
    }
    found.evidence.push(waits(&members));
    let wanted = load.cpu() + members.iter().map(|vcpu| vcpu.waiting).sum::<f64>();
    found.remedies = vec![advice::quota(quota, wanted, load)];
    Some(found)
}

/// More vCPUs than CPUs that they may use, though the host has others.
fn is_together(load: &Load, cpus: &[u32], members: &[&Vcpu]) -> bool {
    !cpus.is_empty() && members.len() > cpus.len() && (cpus.len() as u32) < load.host_cpus
}

fn pinned(load: &Load, cpus: &[u32], members: &[&Vcpu], throttled: &BTreeMap<u32, f64>) -> Finding {
    let share = members
        .iter()
        .map(|vcpu| unthrottled(vcpu, throttled))
        .sum();
    let indices: Vec<u32> = members.iter().map(|vcpu| vcpu.index).collect();
    let names: Vec<String> = cpus.iter().map(u32::to_string).collect();
    let what = format!(
        "{} are pinned to the same CPU {} and preempt each other",
        vcpus(&indices),
        list(&names)
    );
    let mut found = lost(load, Cause::PinnedTogether, what, share);
    found.evidence.push(waits(members));
    found.evidence.extend(takers(load, members));
    found.remedies = advice::wider_cpusets(load, members);
    found
        .remedies
        .push(advice::dedicated_cpus(load, members, cpus));
    found
}

fn steal(load: &Load, members: &[&Vcpu], throttled: &BTreeMap<u32, f64>) -> Option<Finding> {
    let waiting: Vec<&Vcpu> = members
        .iter()
        .copied()
        .filter(|vcpu| unthrottled(vcpu, throttled) > 0.0)
        .collect();
    let share: f64 = waiting.iter().map(|v| unthrottled(v, throttled)).sum();
    if share <= 0.0 {
        return None;
    }
    let indices: Vec<u32> = waiting.iter().map(|vcpu| vcpu.index).collect();
    let what = format!(
        "steal (run-queue latency): {} runnable, but not running",
        vcpus(&indices)
    );
    let mut found = lost(load, Cause::Steal, what, share);
    found.evidence.push(waits(&waiting));
    found.evidence.extend(takers(load, &waiting));
    found.remedies = advice::steal(load, &waiting);
    Some(found)
}

/// Who had the CPUs meanwhile, summed by process; without shares where sampling showed too little.
fn takers(load: &Load, waiting: &[&Vcpu]) -> Option<String> {
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    for taker in waiting.iter().flat_map(|vcpu| &vcpu.taken_by) {
        let name = if taker.is_own {
            "its own threads"
        } else {
            taker.name.as_str()
        };
        *shares.entry(name).or_default() += taker.share;
    }
    let mut shares: Vec<_> = shares.into_iter().collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let seen: f64 = shares.iter().map(|(_, share)| share).sum();
    let waited: f64 = waiting.iter().map(|vcpu| vcpu.waiting).sum();
    if !load.is_counted_whole() && seen < waited * LEAST_SEEN {
        let names: Vec<String> = shares
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .take(NAMED)
            .collect();
        let names = names.join(", ");
        return (!names.is_empty())
            .then(|| format!("meanwhile their CPUs ran, among others: {names}"));
    }
    let named = shares.into_iter().take(NAMED);
    let named: Vec<String> = named
        .filter(|(_, share)| *share >= WORTH_NAMING)
        .map(|(name, share)| format!("{name} {}", percent(share)))
        .collect();
    (!named.is_empty()).then(|| format!("meanwhile their CPUs ran: {}", named.join(", ")))
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
