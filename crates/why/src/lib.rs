//! What burns a machine's CPU time, and what to do about it.
//!
//! [`diagnose`] turns an account (`tare_account`) into findings: pure, no I/O, no
//! clock. `load` is the account in shares and rates, `attribution` divides the
//! vCPUs' time among sources of interrupts, kinds of exits and the guest, `rules`
//! have a file for each kind of cause, `advice` the remedies for each VMM.
//! Every part of the breakdown above 1 % is in a finding (`rules::complete`).
//!
//! What the scheduler's clock gives (threads, polling, waiting) is measured; what
//! is counted and priced, or divided, is marked as an estimate. Where events were counted for a part
//! of the time, `spread` gives each share its interval.

#![forbid(unsafe_code)]

mod account;
mod advice;
mod attribution;
mod command_line;
mod digits;
mod exit;
mod expired;
mod finding;
mod load;
mod measured;
mod monitor;
mod price;
mod rate;
mod remedy;
mod rules;
mod spread;
#[cfg(test)]
mod tests;
pub mod text;

pub use command_line::CommandLine;
pub use exit::Exit;
pub use expired::program_timers;
pub use finding::{Basis, Breakdown, Cause, Diagnosis, Finding};
pub use load::{
    Awake, Events, Execution, Expired, Load, Margins, Polling, Raised, Source, Taker, Thread,
    Throttled, TimerLine, Vcpu,
};
pub use measured::Measured;
pub use monitor::Monitor;
pub use rate::Rate;
pub use remedy::Remedy;

use attribution::Attribution;
use price::Prices;
use spread::{Own, Spread};

/// Share of a core below which a cause is not worth a sentence.
pub const WORTH_SAYING: f64 = 0.002;

/// Says what burns a machine's CPU time, the largest cause first. Exits have the
/// prices that were measured, else those that are built in.
pub fn diagnose(load: &Load, measured: Option<&Measured>) -> Diagnosis {
    let prices = Prices::of(load, measured);
    let attribution = Attribution::of(load, &prices);
    let spread = Spread::of(load, &prices, &attribution);
    let breakdown = breakdown(load, &attribution);
    let breakdown_interval = breakdown_interval(load, &breakdown, &spread);
    let mut findings = rules::findings(load, &attribution, &prices, &spread);
    findings.retain(|finding| finding.share >= WORTH_SAYING);
    rules::complete(load, &breakdown, breakdown_interval.as_ref(), &mut findings);
    for finding in &mut findings {
        finding.doubt(WORTH_SAYING);
    }
    findings.sort_by(|a, b| b.share.total_cmp(&a.share));
    Diagnosis {
        breakdown,
        breakdown_interval,
        findings,
    }
}

/// Parts that are divided by counts have intervals; the scheduler's clock has the others.
fn breakdown_interval(
    load: &Load,
    breakdown: &Breakdown,
    spread: &Spread<'_>,
) -> Option<[Breakdown; 2]> {
    let guest = spread.interval(Own::Rest, Attribution::guest)?;
    let interrupts = spread.interval(Own::Interrupts, |it| it.sources.values().sum())?;
    let exits = spread.interval(Own::Exits, |it| it.exits.values().sum())?;
    let polling = load.all_polls_rate().along(breakdown.polling)?;
    let end = |end: usize| Breakdown {
        guest: guest[end],
        interrupts: interrupts[end],
        exits: exits[end],
        polling: polling[end],
        ..*breakdown
    };
    Some([end(0), end(1)])
}

fn breakdown(load: &Load, attribution: &Attribution) -> Breakdown {
    use tare_account::Role;
    let io_threads = load.threads_in(|role| matches!(role, Role::Io | Role::Worker));
    let kernel_threads = load.threads_in(|role| matches!(role, Role::Vhost | Role::Kvm));
    let helpers = load.threads_in(|role| role == Role::Helper);
    Breakdown {
        total: load.cpu(),
        guest: attribution.guest(),
        polling: load.sum(|vcpu| vcpu.polling.share()),
        interrupts: attribution.sources.values().sum(),
        exits: attribution.exits.values().sum(),
        io_threads,
        kernel_threads,
        helpers,
        unknown: attribution.unknown,
        emulator_threads: load.threads_in(|_| true) - io_threads - kernel_threads - helpers,
    }
}
