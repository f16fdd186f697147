//! The monitor's threads other than vCPUs.

use tare_account::Role;

use super::{emulator, finding, monitor_timers_hz, timers_part};
use crate::finding::{Basis, Cause, Finding};
use crate::load::{Load, Thread};
use crate::price::Prices;
use crate::words::{percent, rate};

/// Threads named in the evidence.
const NAMED: usize = 4;

pub(super) fn findings(load: &Load, prices: &Prices<'_>) -> Option<Finding> {
    let mut threads: Vec<&Thread> = load
        .threads
        .iter()
        .filter(|thread| thread.role != Role::Kvm && thread.cpu > 0.0)
        .collect();
    threads.sort_by(|a, b| b.cpu.total_cmp(&a.cpu));
    let busiest = threads.first()?;
    let timers_hz = monitor_timers_hz(load);
    let timers = timers_part(load, timers_hz, prices);
    let all: f64 = threads.iter().map(|thread| thread.cpu).sum();
    let share = (all - timers).max(0.0);
    let what = format!("threads of the monitor, most of all {}", busiest.name);
    let basis = match timers > 0.0 {
        true => Basis::Estimated,
        false => Basis::Measured,
    };
    let mut found = finding(load, Cause::EmulatorThread, share, basis, what);
    let named = threads.iter().take(NAMED);
    let named: Vec<_> = named
        .map(|thread| format!("{} {}", thread.name, percent(thread.cpu)))
        .collect();
    found.evidence.push(named.join(", "));
    if timers > 0.0 {
        found.evidence.push(format!(
            "without {} of the main loop for {} of its timers",
            percent(timers.min(emulator(load))),
            rate(timers_hz)
        ));
    }
    Some(found)
}
