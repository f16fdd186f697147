//! The rules: a file for each kind of cause, each a function from the load and
//! its attribution to findings. They do not know each other; sorting is the caller's.

mod contention;
mod exits;
mod guest;
mod messages;
mod polling;
mod rest;
mod threads;
mod timers;

use tare_account::Role;

use crate::advice;
use crate::attribution::Attribution;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::{Load, Source};
use crate::price::Prices;

pub(crate) use rest::complete;

/// What all rules find.
pub(crate) fn findings(load: &Load, time: &Attribution, prices: &Prices<'_>) -> Vec<Finding> {
    let mut findings = timers::findings(load, time, prices);
    findings.extend(messages::findings(load, time));
    findings.extend(polling::findings(load));
    findings.extend(exits::findings(load, time, prices));
    findings.extend(threads::findings(load, prices));
    findings.extend(contention::findings(load));
    findings.extend(guest::findings(load, time));
    findings
}

/// A finding that explains these parts of the breakdown, with the remedies of its cause.
fn finding(load: &Load, cause: Cause, basis: Basis, what: String, parts: Breakdown) -> Finding {
    let share = parts.parts().iter().map(|(_, part)| part).sum();
    Finding {
        cause,
        share,
        basis,
        what,
        evidence: Vec::new(),
        parts: Breakdown {
            total: share,
            ..parts
        },
        remedies: advice::for_cause(cause, load),
        remedy: String::new(),
    }
}

/// Part of the breakdown that interrupts are.
fn interrupts(share: f64) -> Breakdown {
    Breakdown {
        interrupts: share,
        ..Breakdown::default()
    }
}

/// Timers per second that the VMM's main loop has for a chip that it emulates.
fn vmm_timer_hz(load: &Load, source: Source) -> f64 {
    let raised = load.raised.get(&source).copied().unwrap_or_default();
    match source {
        Source::Hpet | Source::Pit | Source::Rtc => raised.by_monitor_hz,
        _ => 0.0,
    }
}

/// The same of all chips.
fn vmm_timers_hz(load: &Load) -> f64 {
    [Source::Hpet, Source::Pit, Source::Rtc]
        .into_iter()
        .map(|source| vmm_timer_hz(load, source))
        .sum()
}

/// Whether KVM's own PIT raises its line.
fn kernel_pit_fires(load: &Load) -> bool {
    let raised = load.raised.get(&Source::Pit).copied().unwrap_or_default();
    raised.hz > 0.0 && raised.by_monitor_hz <= 0.0
}

fn is_main_loop(role: Role) -> bool {
    matches!(role, Role::Emulator | Role::Other)
}

/// CPU time of the VMM's main loop that timers of `hz` explain: each is a wake-up.
fn timers_part(load: &Load, hz: f64, prices: &Prices<'_>) -> f64 {
    let all = vmm_timers_hz(load);
    if all <= 0.0 {
        return 0.0;
    }
    let main_loop = load.threads_in(is_main_loop);
    let threads = load.threads.iter().filter(|t| is_main_loop(t.role));
    let wakeups: f64 = threads.map(|thread| thread.wakeups).sum();
    let by_cost = all * prices.built_in.monitor_timer_ns / 1e9;
    let by_wakeups = main_loop * (all / wakeups.max(all)).min(1.0);
    by_cost.max(by_wakeups).min(main_loop) * hz / all
}
