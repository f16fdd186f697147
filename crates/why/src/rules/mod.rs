//! The rules: a file for each kind of cause, each a function from the load and
//! its attribution to findings. None knows of another; sorting is the caller's.

mod contention;
mod exits;
mod guest;
mod messages;
mod polling;
mod threads;
mod timers;

use crate::attribution::Attribution;
use crate::finding::{Basis, Cause, Finding};
use crate::load::Load;
use crate::price::Prices;
use crate::remedy;

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

/// A finding with the remedy of its cause.
fn finding(load: &Load, cause: Cause, share: f64, basis: Basis, what: String) -> Finding {
    Finding {
        cause,
        share,
        basis,
        what,
        evidence: Vec::new(),
        remedy: remedy::remedy(cause, load.monitor).to_owned(),
    }
}

/// Interrupts per second of wherever a timer of the monitor is the source.
fn monitor_timers_hz(load: &Load) -> f64 {
    use crate::load::Source::{Hpet, Rtc};
    let of = |source| match load.raised.get(&source) {
        Some(raised) if raised.by_monitor_hz > 0.0 => load.taken(source),
        _ => 0.0,
    };
    of(Hpet) + of(Rtc)
}

/// The monitor's main loop, share of a core.
fn emulator(load: &Load) -> f64 {
    use tare_account::Role;
    load.threads_in(|role| matches!(role, Role::Emulator | Role::Other))
}

/// CPU time of the monitor's main loop that so many timers explain.
fn timers_part(load: &Load, hz: f64, prices: &Prices<'_>) -> f64 {
    let all = monitor_timers_hz(load);
    if all <= 0.0 {
        return 0.0;
    }
    let explained = (all * prices.built_in.monitor_timer_ns / 1e9).min(emulator(load));
    explained * hz / all
}
