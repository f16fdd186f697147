//! A run's figures as one line of JSON.
//!
//! `iops` counts commands that completed while the run counted, of all threads but
//! the committer; times are in ns, within 0.8 %. `interrupts`, `completions` and
//! `notifications` are the driver's own counts in the same time and include the
//! committer's, between the lines `begin` and `end`. `instructions` are not the guest's to know: where KVM counts them,
//! the monitor's statistics have them.

use alloc::format;
use alloc::string::String;

use tare_libos::hal::clock;

use crate::histogram::Histogram;
use crate::run::JobResult;

/// The line.
pub fn line(outcome: &JobResult) -> String {
    let seen = &outcome.seen;
    let ns = ns(outcome.ticks);
    let completed = seen.times.count();
    let error = seen.error.map(|error| format!("\"{error}\""));
    format!(
        "{{\"cif\":{},\"ns\":{ns},\"completed\":{completed},\"iops\":{},\"errors\":{},\"error\":{},\
         \"mismatches\":{},\"interrupts\":{},\"completions\":{},\"notifications\":{},\
         \"waits_for_room\":{},\"latency_ns\":{},\"flush_ns\":{},\"commit_ns\":{}}}",
        outcome.cif,
        per_second(completed, ns),
        seen.errors,
        error.as_deref().unwrap_or("null"),
        seen.mismatches,
        outcome.device.interrupts,
        outcome.device.completions,
        outcome.device.notifications,
        outcome.device.waits_for_room,
        times(&seen.times),
        times(&seen.flushes),
        times(&seen.commits),
    )
}

fn times(times: &Histogram) -> String {
    if times.count() == 0 {
        return "null".into();
    }
    format!(
        "{{\"count\":{},\"mean\":{},\"p50\":{},\"p90\":{},\"p99\":{},\"p999\":{},\"max\":{}}}",
        times.count(),
        ns(times.mean()),
        ns(times.quantile(500)),
        ns(times.quantile(900)),
        ns(times.quantile(990)),
        ns(times.quantile(999)),
        ns(times.max()),
    )
}

fn per_second(count: u64, ns: u64) -> u64 {
    let per_second = u128::from(count) * 1_000_000_000;
    let rounded = (per_second + u128::from(ns / 2)).checked_div(u128::from(ns));
    rounded.unwrap_or(0) as u64
}

fn ns(ticks: u64) -> u64 {
    let per_second = u128::from(clock::ticks_per_s().max(1));
    (u128::from(ticks) * 1_000_000_000 / per_second) as u64
}
