//! A guest benchmark observed from outside: its exits by kind. Observing costs time,
//! so these turns give counts only.

use std::collections::BTreeMap;

use tare_account::{Access, Account, ExitKind, Histogram, Isa, Step, USER_SIGNAL};
use tare_lab::kit::{Bench, RunError};
use tare_machines::appliance::GuestSpec;
use tare_probe::kvm::{Counting, Observer};

use super::{ArmRound, SILENCE, keep};

/// Word for an image to wait so long before it begins and after its end: longer
/// than it takes to load the programs that watch.
pub(crate) const PAUSE: &str = "pause_ms=1200";

/// Runs an image from its `begin` to its `end` (or `done`) under observation; `None` where
/// it has no KVM machine.
pub(crate) fn watch(
    bench: &mut Bench<'_>,
    place: ArmRound,
    spec: &GuestSpec,
) -> Result<Option<Account>, RunError> {
    let mut guest = bench.executor.measure(spec)?;
    let mut observer = None;
    loop {
        let record = guest.record(SILENCE, bench.interrupt)?;
        keep(bench, place, "watched", &record)?;
        if record.get("begin").is_some() {
            observer = guest
                .vm()
                .map(|vm| Observer::counting(&[vm], Counting::Every));
        }
        if record.get("end").is_some() || record.get("done").is_some() {
            let account = observer
                .and_then(|mut watch: Observer| watch.turn().pop())
                .or_else(|| guest.account());
            if let Some(account) = &account {
                let value = serde_json::to_value(account).unwrap_or_default();
                keep(bench, place, "account", &value)?;
            }
            return Ok(account);
        }
    }
}

/// Exits of all vCPUs by name.
pub(crate) fn exits(account: &Account) -> BTreeMap<String, u64> {
    let mut exits = BTreeMap::new();
    for exit in account.exits() {
        *exits.entry(name(&exit.kind)).or_default() += exit.count;
    }
    exits
}

/// Each step of all vCPUs' wake-ups, in order of time.
pub(crate) fn steps(account: &Account) -> Vec<(Step, Histogram)> {
    let mut steps: BTreeMap<Step, Histogram> = BTreeMap::new();
    for (_, vcpu) in account.vcpus() {
        for (step, histogram) in &vcpu.wakeups.steps {
            steps.entry(*step).or_default().merge(histogram);
        }
    }
    steps.into_iter().collect()
}

/// A step in figures.
pub(crate) const fn step_name(step: Step) -> &'static str {
    match step {
        Step::Send => "send",
        Step::Kick => "kick",
        Step::Schedule => "schedule",
        Step::Return => "return",
        Step::Entry => "entry",
        Step::Handler => "handler",
        Step::Total => "total",
    }
}

/// An exit in figures: what was done to what.
fn name(kind: &ExitKind) -> String {
    match kind {
        ExitKind::Msr { index, access } => {
            let verb = match access {
                Access::Read => "rdmsr",
                Access::Write => "wrmsr",
            };
            match msr(*index) {
                Some(name) => format!("{verb}_{name}"),
                None => format!("{verb}_{index:#x}"),
            }
        }
        ExitKind::Port { port, access, .. } => match access {
            Access::Read => format!("in_{port:#x}"),
            Access::Write => format!("out_{port:#x}"),
        },
        ExitKind::Memory { page, access, .. } => match access {
            Access::Read => format!("mmio_read_{page:#x}"),
            Access::Write => format!("mmio_write_{page:#x}"),
        },
        ExitKind::Apic { register, access } => match access {
            Access::Read => format!("apic_read_{register:#x}"),
            Access::Write => format!("apic_write_{register:#x}"),
        },
        ExitKind::Cpuid { .. } => "cpuid".to_owned(),
        ExitKind::Hypercall { number } => format!("hypercall_{number}"),
        ExitKind::UserSpace {
            reason: USER_SIGNAL,
        } => "user_signal".to_owned(),
        ExitKind::UserSpace { reason } => format!("user_{reason}"),
        ExitKind::Halt => "kvm_halt_seen".to_owned(),
        ExitKind::Hardware { isa, reason } => match isa {
            Isa::Vmx => format!("vmx_{reason}"),
            Isa::Svm => format!("svm_{reason:#x}"),
        },
        ExitKind::Various => "various".to_owned(),
    }
}

/// MSRs that a wake-up may write (SDM 4, tables 2-2 and 10-6).
const fn msr(index: u32) -> Option<&'static str> {
    Some(match index {
        0x6e0 => "tsc_deadline",
        0x80b => "eoi",
        0x830 => "icr",
        0x832 => "timer_entry",
        0x838 => "timer_count",
        0x83f => "self_ipi",
        0x4b56_4d04 => "pv_eoi",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_named_by_what_was_done_to_what() {
        let write = |index| ExitKind::Msr {
            index,
            access: Access::Write,
        };
        assert_eq!(name(&write(0x6e0)), "wrmsr_tsc_deadline");
        assert_eq!(name(&write(0x830)), "wrmsr_icr");
        assert_eq!(name(&write(0x10)), "wrmsr_0x10");
        let reason = USER_SIGNAL;
        assert_eq!(name(&ExitKind::UserSpace { reason }), "user_signal");
    }
}
