//! Rules about halts and interrupts of virtual machines.

use super::rule_result::{RuleResult, not_applicable};
use crate::advice::{Advice, Change, Gain};
use crate::facts::{Facts, Platform};
use crate::runs::Runs;

/// CPU time that lost polls may take, thousandths of a CPU: the budget of 1 %.
const WASTED_MILLICPUS: u64 = 10;
/// Halts a second from which wake-ups are worth polling for.
const MANY_HALTS: u64 = 1000;
/// Halts that are polled for, thousandths, below which polling is as good as off.
const HARDLY_POLLED_PERMILLE: u64 = 100;

/// Halt polling by its budget.
pub(super) fn halting(facts: &Facts, _: &Runs) -> RuleResult {
    let halting = facts.halting?;
    let (what, because, gain) = if halting.wasted_millicpus > WASTED_MILLICPUS {
        (
            "reduce halt polling",
            format!(
                "polls that ended without a wake-up used {} % of a CPU",
                halting.wasted_millicpus as f64 / 10.0
            ),
            Gain::Published("a 10 us sleep loop under polling costs 100 % of a CPU"),
        )
    } else if halting.halts_per_s >= MANY_HALTS && halting.polled_permille < HARDLY_POLLED_PERMILLE
    {
        (
            "enable halt polling",
            format!(
                "{} halts a second, {} % of them with polling",
                halting.halts_per_s,
                halting.polled_permille as f64 / 10.0
            ),
            Gain::Published("10 to 15 us a round trip, memcached 1.5 times"),
        )
    } else {
        return None;
    };
    let command = match facts.platform {
        Some(Platform::TareVm) => format!("tare set {} halt=budget=1", facts.name),
        _ => "echo 50000 > /sys/module/kvm/parameters/halt_poll_ns".to_owned(),
    };
    Some(Ok(Advice {
        rule: "halt-polling",
        what: what.to_owned(),
        because,
        evidence: "KVM Message Passing 2015; ADR 16",
        gain,
        command: Some(command),
        change: Change::None,
    }))
}

/// Interrupt coalescing of disks.
pub(super) fn coalescing(facts: &Facts, _: &Runs) -> RuleResult {
    let mut busy = facts.disks.iter().filter(|disk| disk.would_coalesce());
    let first = busy.next()?;
    let names: Vec<&str> = std::iter::once(first)
        .chain(busy)
        .map(|disk| disk.name.as_str())
        .collect();
    Some(Ok(Advice {
        rule: "coalesce-disk-interrupts",
        what: format!("enable interrupt coalescing for {}", names.join(", ")),
        because: format!(
            "coalescing is off; {} completes {} requests a second with {:.1} in flight and {:.2} \
             interrupts per request",
            first.name,
            first.completions_per_s,
            first.depth_permille as f64 / 1000.0,
            first.interrupts_permille as f64 / 1000.0
        ),
        evidence: "vIC 2011; ADR 10",
        gain: Gain::Published("up to 19 % more I/O a second, up to 17 % less CPU"),
        command: Some(format!(
            "tare set {} {}.coalesce=auto",
            facts.name,
            names.join(".coalesce=auto ")
        )),
        change: Change::None,
    }))
}

/// KVM instead of QEMU's translator.
pub(super) fn translated(facts: &Facts, _: &Runs) -> RuleResult {
    let rule = "kvm-instead-of-translator";
    facts.translated.then_some(())?;
    if !facts.kvm_opens {
        return not_applicable(
            rule,
            "QEMU's translator executes this machine, and KVM cannot be opened here: tare doctor \
             says why",
        );
    }
    if facts.emulated {
        return not_applicable(
            rule,
            "QEMU's translator executes this machine, and this host's KVM emulates ring 0: of \
             unmodified kernels it runs the boot only",
        );
    }
    Some(Ok(Advice {
        rule,
        what: "restart it with KVM (QEMU: -accel kvm -cpu host; libvirt: <domain type='kvm'>)"
            .to_owned(),
        because: "QEMU's translator executes it although /dev/kvm can be opened".to_owned(),
        evidence: "later sources: Tare's runs, in which a translated guest computes 5 times slower than the processor",
        gain: Gain::Unknown,
        command: None,
        change: Change::None,
    }))
}

/// A machine that only its own timers wake waits for no input or output.
pub(super) fn timer_driven(facts: &Facts, _: &Runs) -> RuleResult {
    facts.timer_driven.then_some(())?;
    not_applicable(
        "pin-io-bound",
        "its own timers end its halts, not devices: it waits for the next tick, not for input or \
         output (tare why names the timer)",
    )
}

/// What an emulating KVM hides.
pub(super) fn emulated(facts: &Facts, _: &Runs) -> RuleResult {
    let is_vm = facts.platform.is_some_and(Platform::is_vm);
    (is_vm && facts.emulated).then_some(())?;
    not_applicable(
        "machine-on-emulating-kvm",
        "this host's KVM emulates ring 0: measurements of this machine mostly show the emulation",
    )
}
