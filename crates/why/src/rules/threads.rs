//! The VMM's threads other than vCPUs, threads of the kernel that work for it, and
//! processes that do.

use tare_account::Role;

use super::chips::{CHIPS, is_main_loop, kernel_pit_fires, timers_part, vmm_timers_hz};
use super::explained::finding;
use crate::advice;
use crate::finding::{Basis, Breakdown, Cause, Finding};
use crate::load::{Load, Thread};
use crate::price::Prices;
use crate::text::{percent, rate};

/// Threads named in the evidence.
const NAMED: usize = 4;

pub(super) fn findings(load: &Load, prices: &Prices<'_>) -> Vec<Finding> {
    [vmm(load, prices), kernel(load), helpers(load)]
        .into_iter()
        .flatten()
        .collect()
}

fn is_kernels(role: Role) -> bool {
    matches!(role, Role::Kvm | Role::Vhost)
}

fn vmm(load: &Load, prices: &Prices<'_>) -> Option<Finding> {
    let threads = busiest(load, |role| !is_kernels(role) && role != Role::Helper);
    let first = threads.first()?;
    let timers_hz = vmm_timers_hz(load);
    let timers = timers_part(load, timers_hz, prices);
    let parts = Breakdown {
        emulator_threads: (load.threads_in(is_main_loop) - timers).max(0.0),
        io_threads: load.threads_in(|role| matches!(role, Role::Io | Role::Worker)),
        ..Breakdown::default()
    };
    let what = match first.role {
        Role::Emulator => "VMM main loop".to_owned(),
        Role::Io => format!("I/O thread {}", first.name),
        _ => format!("VMM thread {}", first.name),
    };
    let what = format!("{what}, {} wake-ups", rate(first.wakeups));
    let basis = if timers > 0.0 {
        Basis::Estimated
    } else {
        Basis::Measured
    };
    let mut found = finding(load, Cause::EmulatorThread, basis, what, parts);
    let timers_rate = load.raised_rate(&CHIPS, timers_hz);
    let main_loop = load.threads_in(is_main_loop);
    found.share_interval = timers_rate.along(timers).map(|[low, high]| {
        [high, low].map(|timers| (main_loop - timers).max(0.0) + parts.io_threads)
    });
    found.evidence.push(named(&threads));
    if timers > 0.0 {
        found.evidence.push(format!(
            "without {} of the main loop for {} of its timers",
            percent(timers),
            timers_rate.brief()
        ));
    }
    Some(found)
}

/// vhost workers; KVM's PIT has its own finding while it fires.
fn kernel(load: &Load) -> Option<Finding> {
    let fires = kernel_pit_fires(load);
    let is_here = |role| role == Role::Vhost || (role == Role::Kvm && !fires);
    let parts = Breakdown {
        kernel_threads: load.threads_in(is_here),
        ..Breakdown::default()
    };
    let whose = "kernel threads for the VM, most of all";
    outside(load, Cause::KernelThreads, whose, parts, is_here)
}

/// Separate processes, such as passt and vhost-user daemons.
fn helpers(load: &Load) -> Option<Finding> {
    let is_here = |role| role == Role::Helper;
    let parts = Breakdown {
        helpers: load.threads_in(is_here),
        ..Breakdown::default()
    };
    outside(load, Cause::Helpers, "helper process", parts, is_here)
}

/// Threads outside of the VMM's process.
fn outside(
    load: &Load,
    cause: Cause,
    whose: &str,
    parts: Breakdown,
    is_here: impl Fn(Role) -> bool,
) -> Option<Finding> {
    let threads = busiest(load, is_here);
    let first = threads.first()?;
    let what = format!("{whose} {}, {} wake-ups", first.name, rate(first.wakeups));
    let mut found = finding(load, cause, Basis::Measured, what, parts);
    found.remedies = match cause {
        Cause::Helpers => advice::helper(&first.name),
        _ => advice::kernel_thread(first.role, load),
    };
    found.evidence.push(named(&threads));
    Some(found)
}

/// Those that ran, the busiest first.
fn busiest(load: &Load, is: impl Fn(Role) -> bool) -> Vec<&Thread> {
    let mut threads: Vec<&Thread> = load
        .threads
        .iter()
        .filter(|t| is(t.role) && t.cpu > 0.0)
        .collect();
    threads.sort_by(|a, b| b.cpu.total_cmp(&a.cpu));
    threads
}

fn named(threads: &[&Thread]) -> String {
    let named = threads.iter().take(NAMED);
    let named: Vec<_> = named
        .map(|thread| format!("{} {}", thread.name, percent(thread.cpu)))
        .collect();
    named.join(", ")
}
