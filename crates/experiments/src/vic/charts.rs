//! R over time and R's distribution, as vIC 2011 draws them for its
//! database run, from the data of [`tare_control::live`].

use tare_control::live::{DiskInterval, RatioShare};
use tare_lab::kit::{Bar, Panel, Timeline, bars};
use tare_lab::kit::{Figure, Statistic};

/// R over time, a panel for each arm: its title and what its disk did.
pub(crate) fn ratio_over_time(arms: &[(&str, &[DiskInterval])]) -> String {
    let panel = |(title, intervals): &(&str, &[DiskInterval])| {
        let start_s = intervals.first().map_or(0.0, |first| first.from_s);
        let busy = intervals.iter().filter(|it| it.completions > 0);
        Panel {
            title: (*title).to_owned(),
            windows: busy
                .map(|it| (it.from_s - start_s, it.to_s - start_s, it.r * 100.0))
                .collect(),
        }
    };
    let panels: Vec<_> = arms.iter().map(panel).collect();
    let ends = panels.iter().flat_map(|it| it.windows.iter().map(|w| w.1));
    let timeline = Timeline {
        end: ends.fold(0.0, f64::max),
        axis: "time, s",
        bands: Vec::new(),
        panels,
    };
    timeline.figure("Completions that were delivered, in percent, over time")
}

/// R's distribution: the share of completions in epochs of each R.
pub(crate) fn ratio_distribution(shares: &[RatioShare], series: usize) -> String {
    let all: u64 = shares.iter().map(|share| share.completions).sum();
    let columns: Vec<_> = shares
        .iter()
        .map(|share| {
            let percent = share.completions as f64 * 100.0 / all.max(1) as f64;
            Bar {
                label: format!("R = {:.2}", share.r),
                figure: Figure::bare(
                    "",
                    "%",
                    percent,
                    Statistic::Share,
                    usize::try_from(share.completions).unwrap_or(usize::MAX),
                ),
                series,
            }
        })
        .collect();
    bars(
        &columns,
        "% of completions",
        None,
        "Share of the completions in epochs of each ratio",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(from_s: f64, completions: u64, r: f64) -> DiskInterval {
        DiskInterval {
            disk: "disk0".to_owned(),
            from_s,
            to_s: from_s + 1.0,
            completions,
            iops: completions as f64,
            in_flight: 32.0,
            r,
            interrupts_per_io: r,
        }
    }

    #[test]
    fn time_begins_with_the_first_interval_and_idle_ones_are_a_gap() {
        let arm = [
            interval(100.0, 10, 1.0),
            interval(101.0, 0, 0.0),
            interval(102.0, 10, 0.25),
        ];
        let chart = ratio_over_time(&[("vic", &arm), ("off", &arm[..1])]);
        assert!(
            chart.contains("vic") && chart.contains("time, s"),
            "{chart}"
        );
        assert!(!chart.contains("NaN"), "{chart}");
        assert!(!chart.contains(">100</text>"), "time from zero: {chart}");
    }

    #[test]
    fn the_distribution_is_in_percent_of_all_completions() {
        let share = |r, completions| RatioShare { r, completions };
        let chart = ratio_distribution(&[share(1.0, 100), share(0.25, 300)], 0);
        assert!(
            chart.contains("R = 0.25") && chart.contains(">75<"),
            "{chart}"
        );
        assert_eq!(ratio_distribution(&[], 0), "");
    }
}
