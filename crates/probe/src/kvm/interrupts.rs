//! Interrupts of one virtual machine from its counts.

use super::classes::{self, Key};
use super::counts::Counts;
use crate::proc;
use crate::vm::Role;
use tare_account::{Injector, InterruptCount, IpiCount, LineCount, PicCount};

/// Raised lines, most frequent first.
pub(super) fn lines(counts: &Counts, role: &impl Fn(u32) -> Role) -> Vec<LineCount> {
    let mut lines: Vec<_> = counts
        .class(classes::LINE)
        .map(|(key, value)| LineCount {
            line: key.line(),
            injector: injector(key, None, role),
            count: value.count,
            margin: value.margin,
            intervals: counts.histogram(classes::LINE_INTERVAL, |other| {
                other.a == key.a && other.tid == key.tid
            }),
        })
        .collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.count));
    lines
}

/// Raises that the 8259s saw, most frequent first.
pub(super) fn pic(counts: &Counts, role: &impl Fn(u32) -> Role) -> Vec<PicCount> {
    let mut pic: Vec<_> = counts
        .class(classes::PIC)
        .map(|(key, value)| PicCount {
            pin: key.a,
            masked: key.b != 0,
            injector: injector(key, None, role),
            count: value.count,
            margin: value.margin,
        })
        .collect();
    pic.sort_by_key(|count| std::cmp::Reverse(count.count));
    pic
}

/// Accepted interrupts, most frequent first.
pub(super) fn accepted(counts: &Counts, role: &impl Fn(u32) -> Role) -> Vec<InterruptCount> {
    let same = |key: &Key| {
        let (tid, apic_id, vector) = (key.tid, key.a, key.b);
        move |other: &Key| other.tid == tid && other.a == apic_id && other.b >> 32 == vector
    };
    let mut accepted: Vec<_> = counts
        .class(classes::ACCEPT)
        .map(|(key, value)| InterruptCount {
            apic_id: key.a,
            vector: key.b as u8,
            injector: injector(key, Some(key.a), role),
            count: value.count,
            margin: value.margin,
            intervals: counts.histogram(classes::ACCEPT_INTERVAL, same(key)),
        })
        .collect();
    accepted.sort_by_key(|interrupt| std::cmp::Reverse(interrupt.count));
    accepted
}

/// IPIs as sent, most frequent first.
pub(super) fn ipis(counts: &Counts, role: &impl Fn(u32) -> Role) -> Vec<IpiCount> {
    let sent = counts.class(classes::IPI).filter_map(|(key, value)| {
        let Role::Vcpu(sender) = role(key.tid) else {
            return None;
        };
        let (mode, target, vector) = key.ipi();
        Some(IpiCount {
            sender,
            mode,
            target,
            vector,
            count: value.count,
            margin: value.margin,
        })
    });
    let mut ipis: Vec<_> = sent.collect();
    ipis.sort_by_key(|ipi| std::cmp::Reverse(ipi.count));
    ipis
}

/// Who made an interrupt for the vCPU `taker`, or for any.
fn injector(key: &Key, taker: Option<u32>, role: &impl Fn(u32) -> Role) -> Injector {
    if key.tgid == 0 {
        return Injector::Outside {
            tid: key.tid,
            name: proc::comm(&proc::process(key.tid)).unwrap_or_else(|| "(ended)".to_owned()),
        };
    }
    match (role(key.tid), taker) {
        (Role::Vcpu(index), Some(taker)) if index == taker => Injector::OwnVcpu,
        (Role::Vcpu(_), Some(_)) => Injector::OtherVcpu,
        (role, _) => Injector::Thread { tid: key.tid, role },
    }
}
