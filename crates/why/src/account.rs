//! From what was observed to what the rules read.

use std::collections::BTreeMap;

use tare_account::Role;
use tare_account::{
    Account, Device, ExitKind, Injector, InterruptCount, IpiMode, IrqLine, LineCount, Preemptor,
    ThreadAccount, Vcpu as Observed,
};

use crate::exit::Exit;
use crate::load::{Execution, Load, Polling, Raised, Source, Thread, Vcpu};
use crate::monitor::Monitor;

/// Lines with a meaning of their own on a PC (ACPI connects interrupt 0 to the
/// third pin).
const TIMER_LINES: [u32; 2] = [0, 2];
const RTC_LINE: u32 = 8;
/// The local APIC's registers as MSRs.
const X2APIC: std::ops::RangeInclusive<u32> = 0x800..=0x8ff;
/// How far from their median intervals may be to count as even.
const EVEN: f64 = 0.2;
/// Names shown of those who took a CPU.
const NAMED: usize = 3;

impl From<&Account> for Load {
    fn from(account: &Account) -> Self {
        let (vcpus, others): (Vec<_>, Vec<_>) = account
            .threads
            .iter()
            .partition(|thread| thread.vcpu.is_some());
        Self {
            monitor: Monitor::of(&account.vm),
            execution: match account.emulated {
                true => Execution::Emulated,
                false => Execution::Hardware,
            },
            host_cpus: account.host_cpus,
            vcpus: vcpus
                .into_iter()
                .filter_map(|thread| Some(vcpu(account, thread, thread.vcpu.as_ref()?)))
                .collect(),
            threads: others.into_iter().map(|t| other(account, t)).collect(),
            raised: raised(account),
        }
    }
}

fn other(account: &Account, thread: &ThreadAccount) -> Thread {
    Thread {
        name: thread.name.clone(),
        role: thread.role,
        cpu: account.share(thread.on_cpu.total_ns),
    }
}

fn vcpu(account: &Account, thread: &ThreadAccount, observed: &Observed) -> Vcpu {
    let halts = &observed.halts;
    let preemptors = thread.off_cpu.preempted_by.iter();
    let preemptors = preemptors.filter(|by| by.ran_ns > 0).take(NAMED);
    Vcpu {
        index: observed.index,
        cpu: account.share(thread.on_cpu.total_ns),
        guest: guest(account, thread, observed),
        polling: Polling {
            won: account.share(halts.poll_success_ns),
            lost: account.share(halts.poll_wasted_ns),
            won_hz: account.per_second(halts.polls_successful),
            lost_hz: account
                .per_second(halts.polls_attempted.saturating_sub(halts.polls_successful)),
        },
        waiting: account.share(thread.off_cpu.run_delay_ns),
        preempted_by: preemptors.map(named).collect(),
        halts: account.per_second(halts.count),
        halt_median_us: halts.waits.quantile_ns(0.5).map(|ns| ns / 1000),
        interrupts: taken(account, observed.index),
        timer_regularity: timer_regularity(account, observed.index),
        exits: exits(account, observed),
        allowed: thread.allowed_cpus.clone(),
    }
}

/// A process that had a CPU, by its machine or its name.
fn named(by: &Preemptor) -> String {
    match (&by.machine, &by.process) {
        (Some(machine), _) => format!("machine {machine}"),
        (None, Some(process)) => format!("{process} ({})", by.pid),
        (None, None) => format!("a process that has exited ({})", by.pid),
    }
}

/// Time in the guest: what timed exits leave of it, else the kernel's account.
fn guest(account: &Account, thread: &ThreadAccount, observed: &Observed) -> Option<f64> {
    let timed: Vec<_> = observed
        .exits
        .iter()
        .filter(|exit| matches!(exit.kind, ExitKind::Hardware { .. }))
        .filter_map(|exit| exit.cost)
        .collect();
    if timed.is_empty() {
        return thread.on_cpu.guest_ns.map(|ns| account.share(ns));
    }
    let served: u64 = timed.iter().map(|cost| cost.total_ns).sum();
    Some(account.share(thread.on_cpu.total_ns.saturating_sub(served)))
}

/// Each kind once: a register of the local APIC is told by several trace points.
fn exits(account: &Account, observed: &Observed) -> BTreeMap<Exit, f64> {
    let mut exits: BTreeMap<Exit, f64> = BTreeMap::new();
    let mut apic: BTreeMap<Exit, [f64; 2]> = BTreeMap::new();
    for count in &observed.exits {
        let hz = account.per_second(count.count);
        match count.kind {
            ExitKind::Apic { register, .. } => {
                apic.entry(Exit::Apic { register }).or_default()[0] += hz;
            }
            ExitKind::Msr { index, .. } if X2APIC.contains(&index) => {
                let register = (index - X2APIC.start()) << 4;
                apic.entry(Exit::Apic { register }).or_default()[1] += hz;
            }
            _ => {
                if let Some(exit) = single(&count.kind) {
                    *exits.entry(exit).or_default() += hz;
                }
            }
        }
    }
    // Where they are MSRs, an access is one `kvm_msr` and sometimes two `kvm_apic`.
    let apic = apic.into_iter();
    exits.extend(apic.map(|(exit, [apic, msr])| (exit, if msr > 0.0 { msr } else { apic })));
    exits
}

/// Kinds that no other kind counts again.
fn single(kind: &ExitKind) -> Option<Exit> {
    Some(match *kind {
        ExitKind::Port { port, device, .. } => Exit::Port { port, device },
        ExitKind::Memory {
            device: Device::LocalApic,
            ..
        } => return None,
        ExitKind::Memory { page, device, .. } => Exit::Memory { page, device },
        ExitKind::Msr { index, .. } => Exit::Msr { index },
        ExitKind::Cpuid { .. } => Exit::Cpuid,
        ExitKind::Hypercall { .. } => Exit::Hypercall,
        ExitKind::Various => Exit::Various,
        _ => return None,
    })
}

/// Interrupts per second that one vCPU took, by source.
fn taken(account: &Account, index: u32) -> BTreeMap<Source, f64> {
    let mut taken = BTreeMap::new();
    let own = |count: &&InterruptCount| count.apic_id == index;
    for count in account.interrupts.iter().filter(own) {
        let hz = account.per_second(count.count);
        for (source, part) in sources(account, count) {
            *taken.entry(source).or_default() += hz * part;
        }
    }
    taken
}

/// Who made an interrupt, in parts if its thread makes several kinds.
fn sources(account: &Account, interrupt: &InterruptCount) -> Vec<(Source, f64)> {
    let is_ipi = account
        .ipis
        .iter()
        .any(|ipi| ipi.vector == interrupt.vector && ipi.mode == IpiMode::Fixed);
    match &interrupt.injector {
        Injector::OwnVcpu | Injector::OtherVcpu if is_ipi => vec![(Source::Ipi, 1.0)],
        Injector::OwnVcpu => vec![(Source::Timer, 1.0)],
        injector => by_lines(account, injector),
    }
}

/// What a thread raises, by its lines.
fn by_lines(account: &Account, injector: &Injector) -> Vec<(Source, f64)> {
    let mut counts: BTreeMap<Source, u64> = BTreeMap::new();
    let lines = account.lines.iter();
    for line in lines.filter(|line| line.injector == *injector) {
        *counts.entry(of_line(line)).or_default() += line.count;
    }
    let all: u64 = counts.values().sum();
    if all == 0 {
        return vec![(Source::Device, 1.0)];
    }
    let part = |count: u64| count as f64 / all as f64;
    counts.into_iter().map(|(s, n)| (s, part(n))).collect()
}

/// The kernel's PIT has a thread of the kernel; a timer line that somebody else
/// raises is the HPET's in place of it.
fn of_line(line: &LineCount) -> Source {
    match line.line {
        IrqLine::Gsi(gsi) if TIMER_LINES.contains(&gsi) => match &line.injector {
            Injector::Thread {
                role: Role::Kvm, ..
            } => Source::Pit,
            Injector::Outside { name, .. } if name.starts_with("kvm-pit") => Source::Pit,
            _ => Source::Hpet,
        },
        IrqLine::Gsi(RTC_LINE) => Source::Rtc,
        _ => Source::Device,
    }
}

fn raised(account: &Account) -> BTreeMap<Source, Raised> {
    let mut raised: BTreeMap<Source, Raised> = BTreeMap::new();
    for line in &account.lines {
        let hz = account.per_second(line.count);
        let entry = raised.entry(of_line(line)).or_default();
        entry.hz += hz;
        if is_monitors(&line.injector) {
            entry.by_monitor_hz += hz;
        }
    }
    raised
}

fn is_monitors(injector: &Injector) -> bool {
    let Injector::Thread { role, .. } = injector else {
        return false;
    };
    matches!(role, Role::Emulator | Role::Io | Role::Worker | Role::Other)
}

fn timer_regularity(account: &Account, index: u32) -> f64 {
    account
        .interrupts
        .iter()
        .filter(|count| count.apic_id == index && count.injector == Injector::OwnVcpu)
        .max_by_key(|count| count.count)
        .map_or(0.0, |count| count.intervals.regularity(EVEN))
}
