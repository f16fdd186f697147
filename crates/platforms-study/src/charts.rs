//! A workload's time over the size of its place, and what containers cost over CHR.

use std::collections::BTreeSet;

use tare_lab::kit::{Column, Figure, Series, Statistic, course, median, number};
use tare_platform::{Mode, Place, Platform};

use super::analysis::{self, overhead_by_chr};
use super::data::{Data, Run};
use super::model::{HOSTS, Predicted};
use super::observe::{Sched, Stretches};
use super::plan::Arm;

/// CPU-Pinning 2020's abbreviations and ours, in the order of [`Platform::ALL`].
pub(crate) const SHORT: [&str; 5] = ["BM", "CN", "VM", "VMCN", "AP"];
const MODES: [Mode; 2] = [Mode::Vanilla, Mode::Pinned];

/// Lines of a chart: names, and a figure for each column.
type Lines = Vec<(String, Vec<Option<Figure>>)>;

/// Median times over sizes, a line for each platform and mode; nothing with one size.
pub(crate) fn time_over_size(data: &Data, workload: &str, (unit, scale): (&str, f64)) -> String {
    let sizes = analysis::sizes(data, workload);
    let columns = sizes.iter().map(|size| match size {
        1 => "1 CPU".to_owned(),
        size => format!("{size} CPUs"),
    });
    let time = |platform, mode, size| {
        let runs = runs_that_count(data, workload, (platform, mode, size));
        let times: Vec<f64> = runs.filter_map(|run| Some(run.time? * scale)).collect();
        median("", unit, &times)
    };
    let lines = each(&Platform::ALL).map(|(platform, mode)| {
        let of = |size: &u32| time(platform, mode, *size);
        (name(platform, mode), sizes.iter().map(of).collect())
    });
    let description = format!("{workload}: time over CPUs, {unit}");
    drawn(columns.collect(), lines.collect(), &description)
}

/// What containers cost over CHR, by platform and mode; nothing with one CHR.
pub(crate) fn overhead_over_chr(data: &Data, workload: &str) -> String {
    const CONTAINERS: [Platform; 2] = [Platform::Container, Platform::VmContainer];
    let costs = each(&CONTAINERS).map(|(platform, mode)| {
        let costs = overhead_by_chr(data, workload, platform, mode);
        (name(platform, mode), costs)
    });
    let costs: Vec<_> = costs.collect();
    let mut chrs: Vec<f64> = costs
        .iter()
        .flat_map(|(_, costs)| costs.iter().map(|(chr, _)| *chr))
        .collect();
    chrs.sort_by(f64::total_cmp);
    chrs.dedup();
    let lines = costs.into_iter().map(|(name, costs)| {
        let at = |chr: &f64| {
            let cost = costs.iter().find(|(at, _)| at == chr);
            cost.map(|(_, estimate)| estimate.figure("", "x"))
        };
        (name, chrs.iter().map(at).collect())
    });
    let columns = chrs.iter().map(|chr| format!("CHR {}", number(*chr)));
    let description = format!("{workload}: time over bare metal's, over CHR");
    drawn(columns.collect(), lines.collect(), &description)
}

/// Runs of a workload that are compared, on a platform in a mode, at a size.
fn runs_that_count<'a>(
    data: &'a Data,
    workload: &'a str,
    place: (Platform, Mode, u32),
) -> impl Iterator<Item = &'a Run> {
    data.runs.iter().filter(move |run| {
        let Place {
            platform,
            mode,
            size,
            ..
        } = run.cell.place;
        let counts = !run.warm_up && run.time.is_some() && run.cell.arm == Arm::Main;
        counts && run.cell.workload == workload && (platform, mode, size) == place
    })
}

/// Which stretches a chart shows.
type Which = fn(&Sched) -> &Stretches;

/// How long a workload's threads were on a CPU, or off it, at a time, on each platform at the
/// largest size: the share of stretches in each power of two; nothing where none were seen.
pub(crate) fn distributions(data: &Data, workload: &str) -> String {
    let which: [(&str, Which); 2] = [
        ("on a CPU", |sched| &sched.on_cpu),
        ("off a CPU", |sched| &sched.off_cpu),
    ];
    which
        .map(|(what, stretches)| distribution(data, workload, what, stretches))
        .concat()
}

fn distribution(data: &Data, workload: &str, what: &str, which: Which) -> String {
    let size = analysis::sizes(data, workload).pop().unwrap_or(1);
    let seen = each(&Platform::ALL).map(|(platform, mode)| {
        let runs = runs_that_count(data, workload, (platform, mode, size));
        let mut all = Stretches::default();
        for sched in runs.filter_map(|run| run.observed.sched.as_ref()) {
            all.merge(which(sched));
        }
        (name(platform, mode), all)
    });
    let seen: Vec<(String, Stretches)> = seen.filter(|(_, all)| all.count() > 0).collect();
    let classes: BTreeSet<u64> = seen
        .iter()
        .flat_map(|(_, all)| all.0.keys().copied())
        .collect();
    let lines = seen.into_iter().map(|(name, all)| {
        let counted = all.count();
        let share = |class: &u64| {
            let count = all.0.get(class).copied().unwrap_or(0);
            let share = count as f64 * 100.0 / counted as f64;
            Some(Figure::bare(
                "",
                "%",
                share,
                Statistic::Share,
                counted as usize,
            ))
        };
        (name, classes.iter().map(share).collect())
    });
    let columns = classes.iter().map(|ns| match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", number(*ns as f64 / 1e3)),
        _ => format!("{} ms", number(*ns as f64 / 1e6)),
    });
    let description = format!("{workload}, {size} CPUs: stretches {what} by their least length, %");
    drawn(columns.collect(), lines.collect(), &description)
}

/// What the model says of larger hosts over CHR, a line for each.
pub(crate) fn model_over_chr(predicted: &[Predicted]) -> String {
    let Some(workload) = predicted.first().map(|it| &it.workload) else {
        return String::new();
    };
    let mut chrs: Vec<f64> = predicted.iter().map(Predicted::chr).collect();
    chrs.sort_by(f64::total_cmp);
    chrs.dedup();
    let line = |host_cpus: u32| {
        let at = |chr: &f64| {
            let mut of_host = predicted.iter().filter(|it| it.host_cpus == host_cpus);
            of_host
                .find(|it| it.chr() == *chr)
                .map(|it| it.overhead.clone())
        };
        (format!("{host_cpus} CPUs"), chrs.iter().map(at).collect())
    };
    let columns = chrs.iter().map(|chr| format!("CHR {}", number(*chr)));
    let description = format!("{workload}: overhead by the model over CHR, %");
    drawn(columns.collect(), HOSTS.map(line).into(), &description)
}

fn each(platforms: &[Platform]) -> impl Iterator<Item = (Platform, Mode)> {
    let with_modes = |platform: &Platform| MODES.map(|mode| (*platform, mode));
    platforms.iter().flat_map(with_modes)
}

fn name(platform: Platform, mode: Mode) -> String {
    let mut named = Platform::ALL.iter().zip(SHORT);
    let short = named.find(|(of, _)| **of == platform);
    format!("{} {}", short.map_or("", |it| it.1), mode.name())
}

/// The lines that have a figure.
fn drawn(labels: Vec<String>, mut lines: Lines, description: &str) -> String {
    if labels.len() < 2 {
        return String::new();
    }
    lines.retain(|(_, figures)| figures.iter().any(Option::is_some));
    let column = |label| Column {
        label,
        continues: true,
    };
    let columns: Vec<Column> = labels.into_iter().map(column).collect();
    let series = lines.iter().map(|(name, figures)| Series {
        name,
        figures: figures.iter().map(Option::as_ref).collect(),
    });
    let caption = format!("<p>{}</p>\n", tare_lab::kit::escape(description));
    caption + &course(&columns, &series.collect::<Vec<_>>(), description)
}

#[cfg(test)]
mod tests {
    use super::super::tests::made;
    use super::*;

    #[test]
    fn each_platform_has_a_line_over_sizes_and_containers_one_over_chr() {
        let data = made(&[("a", 10.0), ("b", 15.0)]);
        let chart = time_over_size(&data, "w", ("s", 1.0));
        for text in ["1 CPU", "8 CPUs", "BM vanilla", "VM vanilla", "CN pinned"] {
            assert!(chart.contains(&format!(">{text}<")), "{text}: {chart}");
        }
        assert!(!chart.contains("VMCN"), "{chart}");
        let chart = overhead_over_chr(&data, "w");
        for text in ["CHR 0.125", "CHR 1", "CN vanilla", "CN pinned"] {
            assert!(chart.contains(&format!(">{text}<")), "{text}: {chart}");
        }
        assert!(!chart.contains("BM vanilla"), "{chart}");
    }

    #[test]
    fn stretches_of_each_platform_are_drawn_at_the_largest_size() {
        let mut data = made(&[("a", 10.0)]);
        assert_eq!(distributions(&data, "w"), "");
        for run in &mut data.runs {
            let mut on_cpu = Stretches::default();
            let longer = u64::from(run.cell.place.size == 8);
            (0..3).for_each(|octave| on_cpu.add(4_096 << (octave + longer), 2));
            run.observed.sched = Some(Sched {
                on_cpu,
                ..Sched::default()
            });
        }
        let chart = distributions(&data, "w");
        for text in [
            "8.192 us",
            "32.77 us",
            "BM vanilla",
            "VM vanilla",
            "CN pinned",
        ] {
            assert!(chart.contains(text), "{text}: {chart}");
        }
        assert!(!chart.contains("4.096 us"), "of another size: {chart}");
        assert!(
            chart.contains("on a CPU") && !chart.contains("off a CPU"),
            "{chart}"
        );
    }

    #[test]
    fn one_size_makes_no_chart() {
        let mut data = made(&[("a", 10.0)]);
        data.runs.retain(|run| run.cell.place.size == 8);
        assert_eq!(time_over_size(&data, "w", ("s", 1.0)), "");
        assert_eq!(overhead_over_chr(&data, "w"), "");
    }
}
