//! The cost of a whole run of `tare why`: no window includes its start and its report.

use std::time::Duration;

use serde::Serialize;
use tare_probe::clock::process_cpu_ns;

use crate::observe::Watch;

/// CPU time of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct RunCost {
    /// Until the window began, ms: finding machines, loading the programs, first readings.
    pub(super) start_cpu_ms: f64,
    /// For all of the run until its report, BPF programs included, ms.
    pub(super) run_cpu_ms: f64,
    /// Length of the run, s.
    pub(super) run_seconds: f64,
    /// CPU time of the run, share of a core over its length.
    pub(super) run_share: f64,
}

impl RunCost {
    /// The cost of this process so far.
    pub(super) fn until_now(watch: &Watch, programs_ns: u64, elapsed: Duration) -> Self {
        Self::of(
            watch.start_cpu_ns(),
            process_cpu_ns().saturating_add(programs_ns),
            elapsed,
        )
    }

    fn of(start_ns: u64, whole_ns: u64, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        Self {
            start_cpu_ms: start_ns as f64 / 1e6,
            run_cpu_ms: whole_ns as f64 / 1e6,
            run_seconds: seconds,
            run_share: whole_ns as f64 / 1e9 / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_a_part_of_the_run() {
        let cost = RunCost::of(80_000_000, 110_000_000, Duration::from_millis(5_500));
        assert_eq!((cost.start_cpu_ms, cost.run_cpu_ms), (80.0, 110.0));
        assert!((cost.run_share - 0.02).abs() < 1e-12, "{cost:?}");
    }
}
