//! Which way a figure is better, by its family: the part of its name before the first dot.

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Less: times, CPU, instructions, sizes.
    Less,
    /// More: rates of work done, gains.
    More,
    /// Neither: what describes a run, or is a trade-off.
    Neither,
}

use Direction::{Less, More, Neither};

/// Every family of figures, in the order of the alphabet. A figure that is not here has no
/// direction, and the tests of its experiment fail.
const FAMILIES: &[(&str, Direction)] = &[
    ("aa_difference_pct", Less),
    ("aa_half_width_pct", Less),
    ("aa_pct", Neither),
    ("aa_significant_pct", Less),
    ("again_pct", Less),
    ("again_ratio", Less),
    ("answers_differ", Less),
    ("app_cpu_idle_pct", Less),
    ("app_cpu_us_per_request", Less),
    ("app_first_answer_ms", Less),
    ("app_idle_exits_per_s", Less),
    ("app_image_bytes", Less),
    ("app_memory_beyond_mib", Less),
    ("app_memory_mib", Less),
    ("app_over_linux", More),
    ("app_p50_us", Less),
    ("app_p99_us", Less),
    ("app_per_s", More),
    ("app_rate_ratio", More),
    ("app_times_slower", Less),
    ("boot_insns", Less),
    ("boot_ms", Less),
    ("boot_pct", Less),
    ("boot_rep_iterations", Less),
    ("browsing_insns", Less),
    ("browsing_insns_fastest", Less),
    ("browsing_kernel_insns", Less),
    ("browsing_pct", Less),
    ("browsing_rep_iterations", Less),
    ("bytes_per_s", More),
    ("call_gain_pct", More),
    ("carried_rps", More),
    ("caught_per_message", Neither),
    ("caught_share", Neither),
    ("commit_p50_us", Less),
    ("control_loss_pct", Neither),
    ("counted_pct", More),
    ("cpu_1rps_pct", Less),
    ("cpu_again_over_off", Neither),
    ("cpu_burst_pct", Less),
    ("cpu_gain_pct", More),
    ("cpu_idle_pct", Less),
    ("cpu_share_pct", Less),
    ("cpu_us_per_io", Less),
    ("cpu_vic_over_off", Less),
    ("db_in_flight", Neither),
    ("db_interrupts_per_io", Less),
    ("db_interrupts_per_s", Less),
    ("db_iops", More),
    ("db_latency_ms", Less),
    ("decision_ns", Less),
    ("delivered_per_io", Neither),
    ("delivery_ratio", More),
    ("exit_ns", Less),
    ("exits_per_connection", Less),
    ("exits_per_request", Less),
    ("exits_per_rr", Less),
    ("failed", Less),
    ("finds_5pct_of_100", More),
    ("first_byte_ms", Less),
    ("first_line_ms", Less),
    ("frontier_gap_pct", Less),
    ("fsync_p50_us", Less),
    ("fsync_p99_us", Less),
    ("fsync_plain_over_off", Less),
    ("fsync_vic_over_off", Less),
    ("gain_pct", More),
    ("gbit_per_s", More),
    ("goodput", More),
    ("guest_loss_pct", Less),
    ("guest_rss_kib", Less),
    ("halts_per_message", Less),
    ("idle_exits_per_s", Less),
    ("idle_extra_halts", Less),
    ("idle_extra_pct", Less),
    ("idle_halts", Less),
    ("idle_looks", Less),
    ("image_bytes", Less),
    ("in_flight", Neither),
    ("insns_per_connection", Less),
    ("insns_per_request", Less),
    ("instructions_gain_pct", More),
    ("instructions_per_interrupt", Less),
    ("instructions_per_io", Less),
    ("interrupt_share_pct", Less),
    ("interrupts_per_connection", Less),
    ("interrupts_per_io", Less),
    ("interrupts_per_request", Less),
    ("iops", More),
    ("iops_gain_pct", More),
    ("iops_off_over_again", Neither),
    ("iops_off_over_vic", Less),
    ("ipis_per_message", Less),
    ("ipis_skipped_per_message", More),
    ("kernel_boot_insns", Less),
    ("kernel_boot_pct", Less),
    ("kv_cpu_pct", Neither),
    ("kv_exits_per_get", Less),
    ("kv_exits_per_set", Less),
    ("kv_insns_per_get", Less),
    ("kv_insns_per_set", Less),
    ("kv_ops_per_s", More),
    ("kv_p50_us", Less),
    ("kv_p90_us", Less),
    ("kv_p99_us", Less),
    ("latency_again_over_off", Neither),
    ("latency_p50_us", Less),
    ("latency_p90_us", Less),
    ("latency_p99_again_over_off", Neither),
    ("latency_p99_us", Less),
    ("latency_p99_vic_over_off", Less),
    ("latency_vic_over_off", Less),
    ("monitor_rss_kib", Less),
    ("observer_accounted_pct", Less),
    ("observer_cost_pct", Less),
    ("options", Less),
    ("options_settable", Neither),
    ("passt_cpu_1rps_pct", Less),
    ("passt_cpu_burst_pct", Less),
    ("passt_cpu_idle_pct", Less),
    ("peak_insns", Less),
    ("peak_insns_fastest", Less),
    ("peak_kernel_insns", Less),
    ("peak_rep_iterations", Less),
    ("pin_gain_pct", More),
    ("policy_text_bytes", Less),
    ("poll_share_pct", Less),
    ("polls_per_wake", Neither),
    ("pso_pct", Less),
    ("pto_pct", Less),
    ("ratio", Less),
    ("reachable_gap_pct", Less),
    ("request_of_firecracker_pct", Less),
    ("request_of_firecracker_unhardened_pct", Less),
    ("request_of_unhardened_pct", Less),
    ("request_pct", Less),
    ("response_us", Less),
    ("round_trip_us_p50", Less),
    ("round_trip_us_p99", Less),
    ("rps_max", More),
    ("rr_p99_us", Less),
    ("rr_us", Less),
    ("runs_to_find_5pct", Less),
    ("send_cycles_p50", Less),
    ("settled_ms", Less),
    ("slowdown", Less),
    ("stats_request_us", Less),
    ("step_ns_p50", Less),
    ("syscall_cycles", Less),
    ("syscalls_used", Neither),
    ("tcg_boot_insns", Less),
    ("tcg_insns_per_connection", Less),
    ("tcg_insns_per_request", Less),
    ("timers_per_message", Less),
    ("tps", More),
    ("waiting_pct", Less),
    ("wake_cycles_max", Less),
    ("wake_cycles_min", Less),
    ("wake_cycles_p50", Less),
    ("wake_cycles_p90", Less),
    ("wake_cycles_p99", Less),
    ("wake_p50_us", Less),
    ("wake_poll_to_never", Neither),
    ("wake_ring_3_to_ring_0", Neither),
    ("watch_cost_pct", Less),
    ("watch_start_ms", Less),
    ("worst_cost", Less),
];

/// The direction of a figure; `None` for a family that is not known.
pub(crate) fn known(figure: &str) -> Option<Direction> {
    let family = figure.split('.').next().unwrap_or_default();
    let found = FAMILIES.iter().find(|(name, _)| *name == family);
    found.map(|(_, direction)| *direction)
}

/// The direction of a figure; neither for a family that is not known.
pub(crate) fn of(figure: &str) -> Direction {
    known(figure).unwrap_or(Neither)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_figure_of_a_kept_run_has_a_direction() {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs");
        let mut seen = 0;
        for dir in std::fs::read_dir(runs).unwrap() {
            let Ok(summary) =
                crate::stored_runs::summary(&dir.unwrap().path().join("summary.json"))
            else {
                continue;
            };
            for figure in summary.figures {
                assert!(
                    known(&figure.name).is_some(),
                    "{} is in no family",
                    figure.name
                );
                seen += 1;
            }
        }
        assert!(seen > 1_000, "{seen} figures");
    }

    #[test]
    fn families_are_sorted_and_rates_of_work_are_better_high() {
        assert!(FAMILIES.is_sorted_by(|a, b| a.0 < b.0));
        for (figure, direction) in [
            ("ipis_skipped_per_message.spin", More),
            ("iops_off_over_vic.cif32", Less),
            ("interrupts_per_io.cif32.vic", Less),
            ("db_iops.vic", More),
            ("in_flight.cif1", Neither),
        ] {
            assert_eq!(known(figure), Some(direction), "{figure}");
        }
        assert_eq!((known("iopsx.vic"), of("iopsx.vic")), (None, Neither));
    }
}
