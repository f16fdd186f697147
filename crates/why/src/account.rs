//! From what was observed to what the rules read.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use tare_account::{
    Account, Device, ExitCount, ExitKind, Injector, InterruptCount, IpiMode, IrqLine, LineCount,
    Role, ThreadAccount, Vcpu as Observed,
};

use crate::command_line::CommandLine;
use crate::exit::Exit;
use crate::load::{
    Awake, Events, Execution, Expired, Load, Margins, Polling, Raised, Source, Taker, Thread,
    Throttled, TimerLine, Vcpu,
};
use crate::monitor::Monitor;

/// Lines with their own meaning on a PC (ACPI connects interrupt 0 to the
/// third pin).
const TIMER_LINES: [u32; 2] = [0, 2];
const RTC_LINE: u32 = 8;
/// The local APIC's registers as MSRs.
const X2APIC: std::ops::RangeInclusive<u32> = 0x800..=0x8ff;
/// How far from their median intervals may be to count as even.
const EVEN: f64 = 0.2;
/// All processes that have ended.
const EXITED: &str = "processes that have exited";

impl From<&Account> for Load {
    fn from(account: &Account) -> Self {
        let (vcpus, others): (Vec<_>, Vec<_>) = account
            .threads
            .iter()
            .partition(|thread| thread.vcpu.is_some());
        let qemu = match account.vm.monitor {
            tare_account::Monitor::Qemu => CommandLine::new(&account.vm.command),
            _ => CommandLine::default(),
        };
        let lines = Lines::of(account, &qemu);
        Self {
            name: account.vm.name.clone(),
            pid: account.vm.pid,
            seconds: account.window_ns as f64 / 1e9,
            monitor: Monitor::of(&account.vm),
            events: if account.counts_events() {
                Events::Counted
            } else {
                Events::Unknown
            },
            counted_seconds: account.window_ns as f64 / 1e9 * account.counted_share,
            timer_line: lines.timer_line(),
            execution: if account.emulated {
                Execution::Emulated
            } else {
                Execution::Hardware
            },
            host_cpus: account.host_cpus,
            vcpus: vcpus
                .into_iter()
                .filter_map(|thread| Some(vcpu(account, &lines, thread, thread.vcpu.as_ref()?)))
                .collect(),
            threads: others.into_iter().map(|t| other(account, t)).collect(),
            raised: raised(account, &lines),
            sent_ipis: sent_ipis(account),
            margins: margins(account, &lines),
            throttled: throttled(account),
            cpusets: account.cpusets.clone(),
            expiries: expired(account),
            qemu,
        }
    }
}

fn expired(account: &Account) -> Vec<Expired> {
    let expiries = account.expiries.iter().map(|expiry| Expired {
        origin: expiry.to_string(),
        thread_name: expiry.thread_name.clone(),
        per_second: account.per_second(expiry.count),
    });
    let mut expired: Vec<_> = expiries.collect();
    expired.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
    expired
}

fn other(account: &Account, thread: &ThreadAccount) -> Thread {
    Thread {
        name: thread.name.clone(),
        role: thread.role,
        cpu: account.share(thread.on_cpu.total_ns),
        wakeups: account.per_second(thread.off_cpu.voluntary_switches),
    }
}

fn vcpu(account: &Account, lines: &Lines, thread: &ThreadAccount, observed: &Observed) -> Vcpu {
    let halts = &observed.halts;
    let interrupts = taken(account, lines, observed.index, Figure::Rate);
    Vcpu {
        index: observed.index,
        tid: thread.tid,
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
        unfinished: account.share(thread.off_cpu.unfinished_delay_ns),
        taken_by: takers(account, thread),
        halts: account.per_second(halts.count),
        halt_median_us: halts.waits.quantile_ns(0.5).map(|ns| ns / 1000),
        awake: awake(account, lines, observed, &interrupts),
        interrupts,
        timer_regularity: timer_regularity(account, observed.index),
        exits: exits(account, observed),
        allowed: thread.allowed_cpus.clone(),
    }
}

/// Who had its CPU while it waited. A CPU that idles has no taker.
fn takers(account: &Account, thread: &ThreadAccount) -> Vec<Taker> {
    let seen_ns = thread.off_cpu.preempted_by.iter().map(|by| by.ran_ns).sum();
    let whole = match account.counted_share {
        all if all >= 1.0 => 1.0,
        _ => whole_wait(thread.off_cpu.run_delay_ns, seen_ns),
    };
    let takers = thread.off_cpu.preempted_by.iter();
    takers
        .filter(|by| by.ran_ns > 0 && by.pid != 0)
        .map(|by| Taker {
            name: match (&by.machine, &by.process) {
                (Some(machine), _) => format!("machine {machine}"),
                (None, Some(process)) => format!("{process} ({})", by.pid),
                (None, None) => EXITED.to_owned(),
            },
            is_own: by.pid == account.vm.pid,
            share: account.share(by.ran_ns) * whole,
        })
        .collect()
}

/// Part of a wait that must have been seen to say who had the CPU in the rest of it.
pub(crate) const LEAST_SEEN: f64 = 0.5;

/// What those who were seen on the CPU stand for. A slice of time shows a wait only if it begins in the
/// slice and another process leaves the CPU in it: most of a wait as long as a slice is not seen, while
/// the scheduler's clock has all of it.
fn whole_wait(waited_ns: u64, seen_ns: u64) -> f64 {
    let whole = waited_ns as f64 / seen_ns.max(1) as f64;
    if whole * LEAST_SEEN > 1.0 { 1.0 } else { whole }
}

/// Time awake by source: that of the vector that ended the halt; a vector that no trace
/// point named stands for all interrupts of the vCPU.
fn awake(
    account: &Account,
    lines: &Lines,
    observed: &Observed,
    interrupts: &BTreeMap<Source, f64>,
) -> BTreeMap<Source, Awake> {
    let mut awake: BTreeMap<Source, Awake> = BTreeMap::new();
    for stretch in &observed.awake {
        let by_vector = stretch
            .vector
            .map(|vector| of_vector(account, lines, observed.index, vector));
        let parts = by_vector
            .filter(|parts| !parts.is_empty())
            .unwrap_or_else(|| interrupts.clone());
        let all: f64 = parts.values().sum();
        for (source, hz) in parts {
            let part = if all > 0.0 { hz / all } else { 0.0 };
            let entry = awake.entry(source).or_default();
            entry.hz += account.per_second(stretch.count) * part;
            entry.share += account.share(stretch.total_ns) * part;
        }
    }
    awake
}

/// Interrupts per second of one vector on one vCPU, by source.
fn of_vector(account: &Account, lines: &Lines, index: u32, vector: u8) -> BTreeMap<Source, f64> {
    let mut found = BTreeMap::new();
    let interrupts = account.interrupts.iter();
    for count in interrupts.filter(|count| count.apic_id == index && count.vector == vector) {
        for (source, part) in sources(account, lines, count) {
            *found.entry(source).or_default() += account.per_second(count.count) * part;
        }
    }
    found
}

/// Fixed IPIs as their senders wrote them.
fn sent_ipis(account: &Account) -> f64 {
    let fixed = account.ipis.iter().filter(|ipi| ipi.mode == IpiMode::Fixed);
    account.per_second(fixed.map(|ipi| ipi.count).sum())
}

fn throttled(account: &Account) -> Vec<Throttled> {
    let quotas = account.quotas.iter();
    quotas
        .filter(|quota| quota.throttled_ns > 0 || quota.throttled_periods > 0)
        .map(|quota| Throttled {
            directory: quota.directory.clone(),
            version: quota.version,
            cpus: quota.cpus,
            period_us: quota.period_us,
            share: account.share(quota.throttled_ns),
            periods: quota.throttled_periods,
            threads: quota.threads.clone(),
        })
        .collect()
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

/// Which figure of a count is read.
#[derive(Clone, Copy, Debug)]
enum Figure {
    Rate,
    /// By how much it may be off.
    Margin,
}

impl Figure {
    /// Per second.
    fn of(self, account: &Account, count: u64, margin: Option<u64>) -> f64 {
        match (self, margin) {
            (Self::Rate, _) => account.per_second(count),
            (Self::Margin, _) if account.counted_share >= 1.0 => 0.0,
            (Self::Margin, Some(margin)) => account.per_second(margin),
            (Self::Margin, None) => f64::INFINITY,
        }
    }
}

/// Margins of sums are sums: what makes one count too large may make another one too.
fn margins(account: &Account, lines: &Lines) -> Margins {
    let mut margins = Margins::default();
    let of = |count, margin| Figure::Margin.of(account, count, margin);
    for (_, vcpu) in account.vcpus() {
        let (rates, own) = (exits(account, vcpu), by_exit(account, vcpu, Figure::Margin));
        for exit in rates.keys() {
            // Doorbells were accesses to a device that is not known.
            let mut accesses = own.iter().filter(|(other, _)| other.is_at(exit));
            let margin = accesses.next().map_or(0.0, |(_, margin)| *margin);
            *margins.exits.entry(*exit).or_default() += margin;
        }
        for (source, margin) in taken(account, lines, vcpu.index, Figure::Margin) {
            *margins.taken.entry(source).or_default() += margin;
        }
        margins.halts += of(vcpu.halts.count, vcpu.halts.margin);
        margins.polls += of(vcpu.halts.polls_attempted, vcpu.halts.polls_margin);
    }
    for line in &account.lines {
        let margin = of(line.count, line.margin);
        *margins.raised.entry(lines.of_raise(line)).or_default() += margin;
    }
    let fixed = account.ipis.iter().filter(|ipi| ipi.mode == IpiMode::Fixed);
    margins.sent_ipis = fixed.map(|ipi| of(ipi.count, ipi.margin)).sum();
    margins
}

/// What a vCPU did, per second.
fn exits(account: &Account, observed: &Observed) -> BTreeMap<Exit, f64> {
    let mut exits = by_exit(account, observed, Figure::Rate);
    let returned = observed
        .exits
        .iter()
        .filter(|exit| matches!(exit.kind, ExitKind::UserSpace { .. }));
    let returned = account.per_second(returned.map(|exit| exit.count).sum());
    doorbells(returned, &mut exits);
    exits
}

/// Each kind once: several trace points report a register of the local APIC.
fn by_exit(account: &Account, observed: &Observed, figure: Figure) -> BTreeMap<Exit, f64> {
    let mut exits: BTreeMap<Exit, f64> = BTreeMap::new();
    let mut apic: BTreeMap<Exit, [f64; 2]> = BTreeMap::new();
    for count in &observed.exits {
        let hz = figure.of(account, count.count, count.margin);
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

/// Part of the accesses that must return to user space for a device to be emulated there.
const EMULATED: f64 = 0.5;

/// Accesses that never return to user space are not the monitor's: KVM passes them to an
/// eventfd (ioeventfd), as it does with virtio's doorbells.
fn doorbells(mut returned: f64, exits: &mut BTreeMap<Exit, f64>) {
    let mut accesses: Vec<(Exit, f64)> = exits
        .iter()
        .filter(|(exit, _)| exit.is_monitors())
        .map(|(exit, hz)| (*exit, *hz))
        .collect();
    // Devices that are surely emulated account for returns first.
    accesses.sort_by(|a, b| {
        (may_ring(&a.0), a.1)
            .partial_cmp(&(may_ring(&b.0), b.1))
            .unwrap_or(Ordering::Equal)
    });
    for (exit, hz) in accesses {
        if !may_ring(&exit) || returned >= hz * EMULATED {
            returned = (returned - hz).max(0.0);
            continue;
        }
        exits.remove(&exit);
        let device = Device::Doorbell;
        let doorbell = match exit {
            Exit::Port { port, .. } => Exit::Port { port, device },
            Exit::Memory { page, .. } => Exit::Memory { page, device },
            other => other,
        };
        *exits.entry(doorbell).or_default() += hz;
    }
}

/// Whether a device behind this address may have an eventfd.
fn may_ring(exit: &Exit) -> bool {
    matches!(exit.device(), Some(Device::Virtio | Device::Unknown))
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
fn taken(account: &Account, lines: &Lines, index: u32, figure: Figure) -> BTreeMap<Source, f64> {
    let mut taken = BTreeMap::new();
    let own = |count: &&InterruptCount| count.apic_id == index;
    for count in account.interrupts.iter().filter(own) {
        let hz = figure.of(account, count.count, count.margin);
        for (source, part) in sources(account, lines, count) {
            *taken.entry(source).or_default() += hz * part;
        }
    }
    if index == 0 {
        through_pic(account, lines, figure, &mut taken);
    }
    taken
}

/// The 8259s interrupt the first vCPU, past the local APIC's acceptance.
fn through_pic(
    account: &Account,
    lines: &Lines,
    figure: Figure,
    taken: &mut BTreeMap<Source, f64>,
) {
    let mut delivered: BTreeMap<Source, f64> = BTreeMap::new();
    for count in account.pic.iter().filter(|count| !count.masked) {
        let source = lines.source(IrqLine::Gsi(count.pin), &count.injector);
        let hz = figure.of(account, count.count, count.margin);
        *delivered.entry(source).or_default() += hz;
    }
    for (source, hz) in delivered {
        let known = taken.entry(source).or_default();
        *known = known.max(hz);
    }
}

/// Who made an interrupt, in parts if its thread makes several kinds.
fn sources(account: &Account, lines: &Lines, interrupt: &InterruptCount) -> Vec<(Source, f64)> {
    let is_ipi = account
        .ipis
        .iter()
        .any(|ipi| ipi.vector == interrupt.vector && ipi.mode == IpiMode::Fixed);
    match &interrupt.injector {
        Injector::OwnVcpu if is_ipi => vec![(Source::SelfIpi, 1.0)],
        Injector::OtherVcpu if is_ipi => vec![(Source::Ipi, 1.0)],
        Injector::OwnVcpu => vec![(Source::Timer, 1.0)],
        injector => by_lines(account, lines, injector),
    }
}

/// What a thread raises, by its lines.
fn by_lines(account: &Account, lines: &Lines, injector: &Injector) -> Vec<(Source, f64)> {
    let mut counts: BTreeMap<Source, u64> = BTreeMap::new();
    let raised = account.lines.iter();
    for line in raised.filter(|line| line.injector == *injector) {
        *counts.entry(lines.of_raise(line)).or_default() += line.count;
    }
    let all: u64 = counts.values().sum();
    if all == 0 {
        return vec![(Source::Device, 1.0)];
    }
    let part = |count: u64| count as f64 / all as f64;
    counts.into_iter().map(|(s, n)| (s, part(n))).collect()
}

/// Which timers a machine has behind the line of the PIT.
struct Lines {
    /// KVM has the PIT: only an HPET in its place raises the line from the VMM.
    kernel_pit: bool,
    may_have_hpet: bool,
    /// The guest touched the HPET in this window.
    uses_hpet: bool,
}

impl Lines {
    fn of(account: &Account, qemu: &CommandLine) -> Self {
        let is_hpet = |exit: &ExitCount| {
            let Exit::Memory { device, .. } = single(&exit.kind)? else {
                return None;
            };
            (device == Device::Hpet).then_some(())
        };
        Self {
            kernel_pit: account.threads.iter().any(|thread| is_pit(&thread.name)),
            may_have_hpet: !qemu.has_no_hpet(),
            uses_hpet: account.exits().iter().any(|exit| is_hpet(exit).is_some()),
        }
    }

    fn timer_line(&self) -> TimerLine {
        if !self.kernel_pit && self.may_have_hpet && !self.uses_hpet {
            TimerLine::PitOrHpet
        } else {
            TimerLine::Certain
        }
    }

    fn of_raise(&self, line: &LineCount) -> Source {
        self.source(line.line, &line.injector)
    }

    /// The kernel's PIT has a thread of the kernel; a timer line that the VMM raises
    /// beside it is the HPET's in place of it.
    fn source(&self, line: IrqLine, injector: &Injector) -> Source {
        match line {
            IrqLine::Gsi(gsi) if TIMER_LINES.contains(&gsi) => match injector {
                Injector::Thread {
                    role: Role::Kvm, ..
                } => Source::Pit,
                Injector::Outside { name, .. } if is_pit(name) => Source::Pit,
                _ if self.kernel_pit || (self.may_have_hpet && self.uses_hpet) => Source::Hpet,
                _ => Source::Pit,
            },
            IrqLine::Gsi(RTC_LINE) => Source::Rtc,
            _ => Source::Device,
        }
    }
}

/// KVM's thread for its PIT.
fn is_pit(name: &str) -> bool {
    name.starts_with("kvm-pit")
}

fn raised(account: &Account, lines: &Lines) -> BTreeMap<Source, Raised> {
    let mut raised: BTreeMap<Source, Raised> = BTreeMap::new();
    for line in &account.lines {
        let hz = account.per_second(line.count);
        let entry = raised.entry(lines.of_raise(line)).or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(page: u64, device: Device) -> Exit {
        Exit::Memory { page, device }
    }

    #[test]
    fn takers_of_whom_a_part_was_seen_had_the_whole_wait() {
        // A neighbour for 360 of 610 ms, and another one for 40.
        let whole = whole_wait(610, 360 + 40);
        assert!((360.0 * whole - 549.0).abs() < 1e-6, "{whole}");
        // Estimates may be too high too.
        assert!(whole_wait(610, 700) < 1.0);
        // Too little to say anything of the rest.
        assert_eq!(whole_wait(610, 300), 1.0);
        assert_eq!(whole_wait(610, 0), 1.0);
    }

    #[test]
    fn accesses_that_never_return_to_the_vmm_are_doorbells() {
        let hpet = memory(0xfed0_0000, Device::Hpet);
        let bar = memory(0xfebf_b000, Device::Unknown);
        let rung = |returned| {
            let mut exits = BTreeMap::from([(hpet, 100.0), (bar, 2_000.0)]);
            doorbells(returned, &mut exits);
            exits.contains_key(&memory(0xfebf_b000, Device::Doorbell))
        };
        assert!(rung(0.0));
        // The HPET's accesses return.
        assert!(rung(110.0));
        assert!(!rung(2_100.0));
    }
}
