//! What is measured: a metric has a name, a unit, and a side that is better. A figure is a
//! metric, mostly of an arm: `NAME.ARM`.

use crate::experiments;
use crate::figure::{self, Figure};

/// Which side is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Less: times, CPU, instructions, sizes.
    Less,
    /// More: rates of work done, gains.
    More,
    /// Neither: what describes a run, or is a trade-off.
    Neither,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name: that of its figures before the first dot.
    pub name: &'static str,
    /// Unit of its figures.
    pub unit: &'static str,
    /// Which side is better.
    pub better: Direction,
}

impl Metric {
    /// One of which less is better.
    pub const fn less(name: &'static str, unit: &'static str) -> Self {
        let better = Direction::Less;
        Self { name, unit, better }
    }

    /// One of which more is better.
    pub const fn more(name: &'static str, unit: &'static str) -> Self {
        let better = Direction::More;
        Self { name, unit, better }
    }

    /// One that has no better side.
    pub const fn neither(name: &'static str, unit: &'static str) -> Self {
        let better = Direction::Neither;
        Self { name, unit, better }
    }

    /// The name of its figure of an arm; an empty one is of no arm.
    pub fn of(&self, arm: &str) -> String {
        match arm {
            "" => self.name.to_owned(),
            arm => format!("{}.{arm}", self.name),
        }
    }

    /// Its figure of an arm, if it is there.
    pub fn find<'a>(&self, figures: &'a [Figure], arm: &str) -> Option<&'a Figure> {
        figure::find(figures, &self.of(arm))
    }

    /// The value of its figure of an arm, if it is there.
    pub fn value(&self, figures: &[Figure], arm: &str) -> Option<f64> {
        self.find(figures, arm).map(|figure| figure.value)
    }

    /// The median of an arm's samples, as [`figure::median`].
    pub fn median(&self, arm: &str, samples: &[f64]) -> Option<Figure> {
        figure::median(&self.of(arm), self.unit, samples)
    }

    /// A quantile of an arm's samples in groups, as [`figure::grouped_quantile`].
    pub(crate) fn quantile(&self, arm: &str, groups: &[Vec<f64>], q: f64) -> Option<Figure> {
        figure::grouped_quantile(&self.of(arm), self.unit, groups, q)
    }

    /// The middle of an arm's ratios in pairs, as [`figure::paired_ratio`].
    pub(crate) fn paired(&self, arm: &str, ratios: &[f64]) -> Option<Figure> {
        figure::paired_ratio(&self.of(arm), self.unit, ratios)
    }
}

/// Metrics of an experiment as constants, `NAME: better("name", "unit");`, and all of them as
/// `METRICS`.
macro_rules! metrics {
    ($($(#[$about:meta])* $name:ident: $better:ident($metric:literal, $unit:literal);)*) => {
        $($(#[$about])* pub(super) const $name: crate::metric::Metric =
            crate::metric::Metric::$better($metric, $unit);)*
        pub(crate) const METRICS: &[crate::metric::Metric] = &[$($name),*];
    };
}
pub(crate) use metrics;

/// Metrics of experiments in other crates, and of earlier versions: of figures in stored runs.
const ELSEWHERE: &[Metric] = &[
    Metric::less("aa_difference_pct", ""),
    Metric::less("aa_half_width_pct", ""),
    Metric::neither("aa_pct", ""),
    Metric::less("aa_significant_pct", ""),
    Metric::more("bytes_per_s", ""),
    Metric::more("carried_rps", ""),
    Metric::less("commit_p50_us", ""),
    Metric::less("cpu_1rps_pct", ""),
    Metric::neither("cpu_again_over_off", ""),
    Metric::less("cpu_burst_pct", ""),
    Metric::more("cpu_gain_pct", ""),
    Metric::less("cpu_idle_pct", ""),
    Metric::less("cpu_us_per_io", ""),
    Metric::less("cpu_vic_over_off", ""),
    Metric::neither("db_in_flight", ""),
    Metric::less("db_interrupts_per_io", ""),
    Metric::less("db_interrupts_per_s", ""),
    Metric::more("db_iops", ""),
    Metric::less("db_latency_ms", ""),
    Metric::less("decision_ns", ""),
    Metric::neither("delivered_per_io", ""),
    Metric::more("delivery_ratio", ""),
    Metric::less("exits_per_connection", ""),
    Metric::less("exits_per_request", ""),
    Metric::more("finds_5pct_of_100", ""),
    Metric::less("first_byte_ms", ""),
    Metric::less("first_line_ms", ""),
    Metric::less("fsync_p50_us", ""),
    Metric::less("fsync_p99_us", ""),
    Metric::less("fsync_plain_over_off", ""),
    Metric::less("fsync_vic_over_off", ""),
    Metric::more("gbit_per_s", ""),
    Metric::less("idle_exits_per_s", ""),
    Metric::neither("in_flight", ""),
    Metric::less("insns_per_connection", ""),
    Metric::less("insns_per_request", ""),
    Metric::more("instructions_gain_pct", ""),
    Metric::less("instructions_per_interrupt", ""),
    Metric::less("instructions_per_io", ""),
    Metric::less("interrupt_share_pct", ""),
    Metric::less("interrupts_per_connection", ""),
    Metric::less("interrupts_per_io", ""),
    Metric::less("interrupts_per_request", ""),
    Metric::more("iops", ""),
    Metric::more("iops_gain_pct", ""),
    Metric::neither("iops_off_over_again", ""),
    Metric::less("iops_off_over_vic", ""),
    Metric::neither("latency_again_over_off", ""),
    Metric::less("latency_p50_us", ""),
    Metric::less("latency_p90_us", ""),
    Metric::neither("latency_p99_again_over_off", ""),
    Metric::less("latency_p99_us", ""),
    Metric::less("latency_p99_vic_over_off", ""),
    Metric::less("latency_vic_over_off", ""),
    Metric::less("monitor_rss_kib", ""),
    Metric::less("observer_accounted_pct", ""),
    Metric::less("observer_cost_pct", ""),
    Metric::less("passt_cpu_1rps_pct", ""),
    Metric::less("passt_cpu_burst_pct", ""),
    Metric::less("passt_cpu_idle_pct", ""),
    Metric::more("pin_gain_pct", ""),
    Metric::less("policy_text_bytes", ""),
    Metric::less("pso_pct", ""),
    Metric::less("pto_pct", ""),
    Metric::less("ratio", ""),
    Metric::less("runs_to_find_5pct", ""),
    Metric::less("settled_ms", ""),
    Metric::less("stats_request_us", ""),
    Metric::less("tcg_boot_insns", ""),
    Metric::less("tcg_insns_per_connection", ""),
    Metric::less("tcg_insns_per_request", ""),
    Metric::more("tps", ""),
    Metric::less("worst_cost", ""),
];

/// The better side of a figure; `None` for one of no known metric.
pub(crate) fn known(figure: &str) -> Option<Direction> {
    let name = figure.split('.').next().unwrap_or_default();
    let here = experiments::ALL.iter().flat_map(|entry| entry.metrics);
    let mut all = here.chain(ELSEWHERE);
    all.find(|metric| metric.name == name)
        .map(|metric| metric.better)
}

/// The better side of a figure; neither for one of no known metric.
pub(crate) fn better(figure: &str) -> Direction {
    known(figure).unwrap_or(Direction::Neither)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use Direction::{Less, More, Neither};

    use super::*;

    #[test]
    fn every_figure_of_a_kept_run_has_a_direction() {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/runs");
        let mut seen = 0;
        for (run, summary) in crate::stored_runs::all(&[&runs]) {
            for figure in summary.figures {
                assert!(known(&figure.name).is_some(), "{run}: {}", figure.name);
                seen += 1;
            }
        }
        assert!(seen > 1_000, "{seen} figures");
    }

    #[test]
    fn rates_of_work_are_better_high_and_a_name_has_one_better_side() {
        for (figure, direction) in [
            ("ipis_skipped_per_message.spin", More),
            ("iops_off_over_vic.cif32", Less),
            ("interrupts_per_io.cif32.vic", Less),
            ("db_iops.vic", More),
            ("in_flight.cif1", Neither),
        ] {
            assert_eq!(known(figure), Some(direction), "{figure}");
        }
        assert_eq!((known("iopsx.vic"), better("iopsx.vic")), (None, Neither));
        let all = experiments::ALL.iter().flat_map(|entry| entry.metrics);
        for metric in all.chain(ELSEWHERE) {
            assert_eq!(known(metric.name), Some(metric.better), "{}", metric.name);
        }
    }
}
