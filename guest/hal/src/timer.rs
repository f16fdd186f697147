//! One deadline for each CPU, by TSC deadline or a one-shot count. There is no
//! periodic timer.

use core::sync::atomic::Ordering;

use crate::percpu::{self, Cpu, EXPIRED, NOTHING};
use crate::{apic, clock};

/// Whether the timer was set, which costs an exit, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// It was not: the armed deadline is not later.
    Already,
    /// The deadline is the first, or nearer than what was armed.
    Nearer,
    /// What was armed has just come, and was no longer the last one.
    Again,
}

/// Interrupts this CPU at `deadline_ns` of the clock. A deadline that is armed
/// already and not later stays, unless [`put_off`] is called: it only ends a halt early,
/// and re-arming costs an exit. With that rule a deadline that keeps moving away, as those of
/// retransmissions do, is armed once for many.
pub fn arm(deadline_ns: u64) -> Armed {
    let cpu = percpu::current();
    let armed_ns = cpu.armed_ns.load(Ordering::Relaxed);
    if deadline_ns >= armed_ns {
        return Armed::Already;
    }
    cpu.armed_ns.store(deadline_ns, Ordering::Relaxed);
    set(cpu, deadline_ns);
    match armed_ns {
        EXPIRED => Armed::Again,
        _ => Armed::Nearer,
    }
}

/// Whether an interrupt at `deadline_ns` or before is still to come.
pub fn is_armed(deadline_ns: u64) -> bool {
    percpu::current().armed_ns.load(Ordering::Relaxed) <= deadline_ns
}

/// This CPU halts without a deadline: the next one is the first.
pub fn rest() {
    let armed_ns = &percpu::current().armed_ns;
    if armed_ns.load(Ordering::Relaxed) == EXPIRED {
        armed_ns.store(NOTHING, Ordering::Relaxed);
    }
}

/// When the interrupt that is still to come is armed for, if there is one.
pub fn armed_at() -> Option<u64> {
    let armed_ns = percpu::current().armed_ns.load(Ordering::Relaxed);
    (armed_ns < EXPIRED).then_some(armed_ns)
}

/// Interrupts this CPU at `deadline_ns` and not before, or not at all; costs an exit.
pub fn put_off(deadline_ns: Option<u64>) {
    let cpu = percpu::current();
    let armed_ns = deadline_ns.unwrap_or(NOTHING);
    cpu.armed_ns.store(armed_ns, Ordering::Relaxed);
    match deadline_ns {
        Some(deadline_ns) => set(cpu, deadline_ns),
        None if clock::timer_takes_deadlines() => apic::arm_tsc(0),
        None => apic::arm_ticks(0),
    }
}

fn set(cpu: &Cpu, deadline_ns: u64) {
    match clock::timer_count_until(deadline_ns) {
        None => apic::arm_tsc(clock::ticks_at(deadline_ns)),
        Some(count) => apic::arm_count(cpu, count),
    }
}
