//! Rules about which CPUs threads run on.

use tare_policy::placement::{Class, chr_permille};

use super::rule_result::{RuleResult, not_applicable, pin_gain, too_few_cpus};
use crate::advice::{Advice, Change, Gain};
use crate::facts::{Facts, Platform, class_name};
use crate::runs::Runs;

fn pin(facts: &Facts) -> Option<String> {
    Some(format!("tare pin {} --cpus auto", facts.name))
}

fn measured(facts: &Facts) -> String {
    if facts.platform.is_none() {
        return "not measured, since it does not run yet: advice for this kind of work".to_owned();
    }
    format!(
        "{} CPUs busy, {} % of its runnable time spent waiting for a CPU, {} migrations between \
         CPUs a second",
        facts.busy_millicpus as f64 / 1000.0,
        facts.ready_permille as f64 / 10.0,
        facts.migrations_per_s
    )
}

/// CPU-Pinning 2020, slide 30 (1): avoid small vanilla containers.
pub(super) fn small_vanilla_container(facts: &Facts, runs: &Runs) -> RuleResult {
    let rule = "small-vanilla-container";
    (facts.platform == Some(Platform::Container) && !facts.layout.is_pinned()).then_some(())?;
    let class = facts.class?;
    if let Some(why) = too_few_cpus(facts) {
        return not_applicable(rule, why);
    }
    let resources = &facts.resources;
    let chr = chr_permille(resources.assigned_millicpus, resources.host_cpus)?;
    let low = class.chr().low_permille;
    (chr < low).then(|| {
        Ok(Advice {
            rule,
            what: "pin this small container, or give it more cores"
                .to_owned(),
            because: format!(
                "its CHR (container CPUs / host CPUs) is {:.2}, below the recommended {:.2} for \
                 {} work",
                f64::from(chr) / 1000.0,
                f64::from(low) / 1000.0,
                class_name(class)
            ),
            evidence: "CPU-Pinning 2020, slide 30 (1) and slide 25: the lower the CHR, the larger the overhead",
            gain: pin_gain(facts, runs),
            command: pin(facts),
            change: Change::Pin,
        })
    })
}

/// CPU-Pinning 2020, slide 30 (2): pin CPU-bound containers.
pub(super) fn cpu_bound_container(facts: &Facts, runs: &Runs) -> RuleResult {
    let rule = "pin-cpu-bound-container";
    let container = matches!(facts.platform, Some(Platform::Container) | None);
    (container && facts.class == Some(Class::CpuBound)).then_some(())?;
    (!facts.layout.is_pinned()).then_some(())?;
    if let Some(why) = too_few_cpus(facts) {
        return not_applicable(rule, why);
    }
    Some(Ok(Advice {
        rule,
        what: "pin this CPU-bound container to as many CPUs as it uses".to_owned(),
        because: measured(facts),
        evidence: "CPU-Pinning 2020, slide 30 (2); the cause is on slide 26: accounting at each migration",
        gain: pin_gain(facts, runs),
        command: pin(facts),
        change: Change::Pin,
    }))
}

/// CPU-Pinning 2020, slide 30 (3): not worthwhile for CPU-bound machines.
pub(super) fn cpu_bound_machine(facts: &Facts, runs: &Runs) -> RuleResult {
    let is_vm = facts.platform.is_some_and(Platform::is_vm);
    (is_vm && facts.class == Some(Class::CpuBound)).then_some(())?;
    Some(Ok(Advice {
        rule: "leave-cpu-bound-machine",
        what: if facts.layout.is_pinned() {
            "pinning this CPU-bound machine gains nothing, and does no harm".to_owned()
        } else {
            "leave this CPU-bound machine unpinned".to_owned()
        },
        because: measured(facts),
        evidence: "CPU-Pinning 2020, slide 30 (3) and slide 23: a machine's overhead is constant over size, \
                   and pinning does not help",
        gain: pin_gain(facts, runs),
        command: None,
        change: Change::None,
    }))
}

/// CPU-Pinning 2020, slide 30 (4): pin I/O-bound work.
pub(super) fn io_bound(facts: &Facts, runs: &Runs) -> RuleResult {
    let rule = "pin-io-bound";
    let class = facts.class.filter(|class| *class != Class::CpuBound)?;
    (!facts.layout.is_pinned()).then_some(())?;
    if let Some(why) = too_few_cpus(facts) {
        return not_applicable(rule, why);
    }
    Some(Ok(Advice {
        rule,
        what: format!("pin this {} workload", class_name(class)),
        because: measured(facts),
        evidence: "CPU-Pinning 2020, slide 30 (4) and slide 28",
        gain: pin_gain(facts, runs),
        command: pin(facts),
        change: Change::Pin,
    }))
}

/// One node for threads and memory.
pub(super) fn one_node(facts: &Facts, _: &Runs) -> RuleResult {
    let rule = "one-node";
    if facts.resources.host_nodes < 2 {
        return not_applicable(rule, "this host has one NUMA node");
    }
    facts.platform?;
    (facts.layout.nodes > 1).then(|| {
        Ok(Advice {
            rule,
            what: "keep its threads on the NUMA node of its memory".to_owned(),
            because: format!("its threads may run on {} nodes", facts.layout.nodes),
            evidence: "later sources: tuning guides of vendors and distributions; not measured \
                       by Tare, which needs a host with two nodes",
            gain: Gain::Unknown,
            command: pin(facts),
            change: Change::Pin,
        })
    })
}

/// Cores before siblings.
pub(super) fn siblings(facts: &Facts, _: &Runs) -> RuleResult {
    let layout = &facts.layout;
    (layout.sibling_vcpus > 0 && layout.free_cores > 0).then(|| {
        Ok(Advice {
            rule: "cores-of-their-own",
            what: "give each of its vCPUs a separate core".to_owned(),
            because: format!(
                "{} pairs of vCPUs share a core while {} cores are free",
                layout.sibling_vcpus, layout.free_cores
            ),
            evidence: "later sources: the two hardware threads of a core share its execution units",
            gain: Gain::Unknown,
            command: pin(facts),
            change: Change::Pin,
        })
    })
}

/// What users ask of pinning: emulator and I/O threads too.
pub(super) fn helpers_apart(facts: &Facts, _: &Runs) -> RuleResult {
    let layout = &facts.layout;
    let is_vm = facts.platform.is_some_and(Platform::is_vm);
    (is_vm && layout.helpers_on_vcpus > 0).then_some(())?;
    let rule = "helpers-apart";
    if facts.resources.host_cpus <= facts.resources.vcpus {
        return not_applicable(
            rule,
            "it has as many vCPUs as this host has CPUs: no CPU is left for other threads",
        );
    }
    Some(Ok(Advice {
        rule,
        what: "move its emulator and I/O threads off its vCPUs' CPUs".to_owned(),
        because: format!(
            "{} such threads may run on a CPU to which a vCPU is pinned",
            layout.helpers_on_vcpus
        ),
        evidence: "later sources: users ask for pinning that includes these threads",
        gain: Gain::Unknown,
        command: pin(facts),
        change: Change::Pin,
    }))
}

/// Isolated CPUs are there to be used.
pub(super) fn isolated(facts: &Facts, _: &Runs) -> RuleResult {
    let (resources, layout) = (&facts.resources, &facts.layout);
    let is_vm = facts.platform.is_some_and(Platform::is_vm);
    let enough = resources.vcpus > 0 && resources.isolated_cpus >= resources.vcpus;
    (is_vm && enough && layout.isolated_vcpus < resources.vcpus).then(|| {
        Ok(Advice {
            rule: "use-isolated-cpus",
            what: "pin its vCPUs to the isolated CPUs".to_owned(),
            because: format!(
                "{} CPUs are isolated, and {} of its {} vCPUs are on one",
                resources.isolated_cpus, layout.isolated_vcpus, resources.vcpus
            ),
            evidence: "later sources: the host's scheduler places no other thread on these CPUs",
            gain: Gain::Unknown,
            command: pin(facts),
            change: Change::Pin,
        })
    })
}
