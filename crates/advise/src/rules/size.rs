//! Rules about platform, size and quota.

use std::cmp::Ordering;

use tare_policy::placement::{Class, chr_permille};

use super::rule_result::{RuleResult, not_applicable};
use crate::advice::{Advice, Change, Gain};
use crate::facts::{Facts, Platform, Quota, class_name};
use crate::runs::Runs;

/// Slide 30, 5 to 7: the size by CHR.
pub(super) fn chr(facts: &Facts, _: &Runs) -> RuleResult {
    let rule = "size-by-chr";
    let class = facts.class?;
    matches!(facts.platform, Some(Platform::Container) | None).then_some(())?;
    let range = class.chr();
    let host = facts.resources.host_cpus;
    let said = format!(
        "CHR {:.2} to {:.2} for {} work",
        f64::from(range.low_permille) / 1000.0,
        f64::from(range.high_permille) / 1000.0,
        class_name(class)
    );
    let Some((least, most)) = range.cores(host) else {
        return not_applicable(
            rule,
            format!(
                "{said} is less than one of this host's {host} cores (CPU-Pinning 2020 used 112)"
            ),
        );
    };
    let cores = if least == most {
        format!("{least} of this host's {host} cores")
    } else {
        format!("{least} to {most} of this host's {host} cores")
    };
    let assigned = facts.platform.and_then(|_| {
        let chr = chr_permille(facts.resources.assigned_millicpus, host)?;
        Some((chr, range.place(chr)))
    });
    let (what, because) = match assigned {
        Some((_, Ordering::Equal)) => return None,
        Some((chr, order)) => (
            match order {
                Ordering::Less => format!("give it more: {cores}"),
                _ => format!("give it fewer: {cores}"),
            },
            format!("its CHR is {:.2}; {said}", f64::from(chr) / 1000.0),
        ),
        None => (format!("give it {cores}"), said),
    };
    let command = match facts.platform {
        Some(_) => format!("tare pin {} --cpus 0-{}", facts.name, most - 1),
        None => format!("podman run --cpuset-cpus 0-{} IMAGE", most - 1),
    };
    Some(Ok(Advice {
        rule,
        what,
        because,
        evidence: "CPU-Pinning 2020, slide 30 (5 to 7); its slide 25 gives the next higher range for each",
        gain: Gain::Unknown,
        command: Some(command),
        change: Change::None,
    }))
}

/// CPU-Pinning 2020, slide 29 (5): containers in a machine for I/O-bound work.
pub(super) fn platform(facts: &Facts, _: &Runs) -> RuleResult {
    let rule = "platform";
    let class = facts.class?;
    let (what, evidence) = match (facts.platform, class) {
        (Some(Platform::Container) | None, Class::IoBound | Class::UltraIoBound) => (
            "run the container in a virtual machine: for this kind of work that is faster than \
             on the host",
            "CPU-Pinning 2020, slide 29 (5)",
        ),
        (None, Class::CpuBound) => (
            "use a pinned container instead of a virtual machine, whose overhead is constant and \
             not reduced by pinning",
            "CPU-Pinning 2020, slides 23 and 30",
        ),
        _ => return None,
    };
    let would_be_machine = class != Class::CpuBound;
    if would_be_machine && !facts.kvm_opens {
        return not_applicable(
            rule,
            "KVM cannot be opened here (tare doctor says why): a virtual machine would run in \
             QEMU's translator, which is several times slower than a container",
        );
    }
    if facts.emulated {
        return not_applicable(
            rule,
            "this host's KVM emulates ring 0: a virtual machine is slower here than on a processor \
             with VT-x or SVM, and Linux guests run in QEMU's translator",
        );
    }
    Some(Ok(Advice {
        rule,
        what: what.to_owned(),
        because: format!("it is {}", class_name(class)),
        evidence,
        gain: Gain::Unknown,
        command: would_be_machine.then(|| "tare run --kernel debian --root IMAGE.tar".to_owned()),
        change: Change::None,
    }))
}

/// No quota on CPUs that are its own.
pub(super) fn quota_and_set(facts: &Facts, _: &Runs) -> RuleResult {
    let quota = facts.quotas.iter().min_by_key(|quota| quota.millicpus)?;
    facts.layout.is_pinned().then(|| {
        let (what, whose) = match quota.off {
            Some(_) => ("remove the CPU quota".to_owned(), String::new()),
            None => (
                "move it out of the cgroup that has a CPU quota".to_owned(),
                format!(", {}", shared(quota)),
            ),
        };
        Ok(Advice {
            rule: "no-quota-on-own-cpus",
            what: format!("{what}: its CPU set already limits it"),
            because: format!(
                "it is pinned and also has a quota of {} CPUs{whose}",
                cpus(quota)
            ),
            evidence: "later sources: users report throttling on CPUs that no other process uses",
            gain: Gain::Unknown,
            command: quota.off.clone(),
            change: Change::None,
        })
    })
}

/// A quota that is used up stops all threads at once.
pub(super) fn throttled(facts: &Facts, _: &Runs) -> RuleResult {
    let throttled = facts.quotas.iter().filter(|quota| quota.throttled > 0);
    let quota = throttled.max_by_key(|quota| quota.throttled)?;
    (!facts.layout.is_pinned()).then(|| {
        let last = quota.millicpus.div_ceil(1000).max(1) - 1;
        let pin = format!("tare pin {} --cpus 0-{last}", facts.name);
        let which = match quota.off {
            Some(_) => format!("its quota of {} CPUs", cpus(quota)),
            None => format!("{} ({} CPUs),", shared(quota), cpus(quota)),
        };
        Ok(Advice {
            rule: "set-instead-of-quota",
            what: "limit it by a CPU set instead of a quota".to_owned(),
            because: format!("{which} was exhausted {} times", quota.throttled),
            evidence: "later sources: with a quota of one CPU a workload ran 2.03 times slower \
                       than pinned to one CPU",
            gain: match quota.off {
                Some(_) => Gain::Published("up to 2.03 times"),
                // What the others take of it is not known.
                None => Gain::Unknown,
            },
            // A set alone leaves the quota as it is.
            command: quota.off.as_ref().map(|off| format!("{pin} && {off}")),
            change: Change::None,
        })
    })
}

/// A quota that is not the target's alone.
fn shared(quota: &Quota) -> String {
    format!("the quota of {}, which other processes share", quota.group)
}

fn cpus(quota: &Quota) -> f64 {
    quota.millicpus as f64 / 1000.0
}
