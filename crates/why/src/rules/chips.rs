//! Timer chips that the VMM's main loop or KVM emulates, and what their timers cost there.

use tare_account::Role;

use crate::load::{Load, Source};
use crate::price::Prices;

/// Chips whose timers a main loop may have.
pub(super) const CHIPS: [Source; 3] = [Source::Hpet, Source::Pit, Source::Rtc];

/// Timers per second that the VMM's main loop has for a chip that it emulates.
pub(super) fn vmm_timer_hz(load: &Load, source: Source) -> f64 {
    let raised = load.raised.get(&source).copied().unwrap_or_default();
    match source {
        Source::Hpet | Source::Pit | Source::Rtc => raised.by_monitor_hz,
        _ => 0.0,
    }
}

/// The same of all chips.
pub(super) fn vmm_timers_hz(load: &Load) -> f64 {
    CHIPS
        .into_iter()
        .map(|source| vmm_timer_hz(load, source))
        .sum()
}

/// Whether KVM's own PIT raises its line.
pub(super) fn kernel_pit_fires(load: &Load) -> bool {
    let raised = load.raised.get(&Source::Pit).copied().unwrap_or_default();
    raised.hz > 0.0 && raised.by_monitor_hz <= 0.0
}

pub(super) fn is_main_loop(role: Role) -> bool {
    matches!(role, Role::Emulator | Role::Other)
}

/// CPU time of the VMM's main loop that timers of `hz` explain: each is a wake-up.
pub(super) fn timers_part(load: &Load, hz: f64, prices: &Prices<'_>) -> f64 {
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
