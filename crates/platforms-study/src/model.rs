//! Hosts that are larger than this one, by simulation (ADR 85): what a vanilla container costs
//! over its CHR. The costs of a context switch and of a migration are measured by workloads
//! of this study, an application's threads, turns and waits by its runs on the bare machine.
//!
//! A model, not a measurement: it has the causes that `tare_simsched` names and no others. Where
//! containers of this host's sizes ran, it is checked against them.

use std::collections::BTreeMap;

use tare_platform::workload::{Cost, Workload};
use tare_platform::{Mode, Place, Platform};
use tare_simsched::{Application, Group, simulate};
use tare_stats::{Interval, Part, half_width, mean};

use super::analysis::{baseline, cell, overhead, sizes};
use super::data::{Data, Run};
use super::estimate::{Estimate, LEAST, extremes};
use super::plan::Arm;
use tare_lab::kit::{Figure, Spread, Statistic, find};

/// Hosts that are simulated, CPUs; the last is CPU-Pinning 2020's.
pub(crate) const HOSTS: [u32; 4] = [16, 32, 64, 112];
/// Most turns of a simulated run: enough for the mean, and for a few periods of the quota.
const MOST_TURNS: u32 = 5_000;
/// Simulated runs of each place, whose mean counts.
const SEEDS: u64 = 4;
/// Threads that one CPU may have at most: more are a damaged record.
const MOST_THREADS: f64 = 1_000.0;

/// What the group of a container costs, ns, with its ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Costs {
    /// A context switch, more than on the bare machine.
    pub(crate) switch: Estimate,
    /// Caches that are cold after a migration.
    pub(crate) migration: Estimate,
}

/// One level of both costs, ns; none is below nothing.
#[derive(Clone, Copy, Debug)]
struct Level {
    switch_ns: f64,
    migration_ns: f64,
}

impl Costs {
    /// From the two workloads that measure them, on the record's only host.
    pub(crate) fn measured(data: &Data, workloads: &[Workload]) -> Option<Self> {
        let of = |cost| workloads.iter().find(|it| it.cost == Some(cost));
        Some(Self {
            switch: switch(data, &of(Cost::Switch)?.name)?,
            migration: migration(data, &of(Cost::Migration)?.name)?,
        })
    }

    /// At the measured values, and at the lower and upper ends of both: of intervals, of few runs of
    /// ranges.
    fn levels(&self) -> [Level; 3] {
        let at = |end: fn(&Estimate) -> f64| Level {
            switch_ns: end(&self.switch).max(0.0),
            migration_ns: end(&self.migration).max(0.0),
        };
        [
            at(|it| it.value),
            at(|it| it.ends().map_or(it.value, |it| it.low)),
            at(|it| it.ends().map_or(it.value, |it| it.high)),
        ]
    }
}

/// A container of the host's size has no limit: what it adds to a switch is its accounting.
fn switch(data: &Data, workload: &str) -> Option<Estimate> {
    let [(host, cpus)] = &data.hosts()[..] else {
        return None;
    };
    let bare = mean(&data.times(host, &cell(workload, baseline(*cpus, *cpus), Arm::Main)))?;
    let container = Place::new(Platform::Container, Mode::Vanilla, *cpus, *cpus);
    Some(overhead(data, workload, container)?.mapped(|ratio| (ratio - 1.0) * bare))
}

/// The bare machine of several CPUs, where each pass follows a migration, less that of one.
fn migration(data: &Data, workload: &str) -> Option<Estimate> {
    let [(host, cpus)] = &data.hosts()[..] else {
        return None;
    };
    let most = sizes(data, workload).into_iter().max()?;
    let times = |size| data.times(host, &cell(workload, baseline(size, *cpus), Arm::Main));
    let (cold, warm) = (times(most), times(1));
    let value = mean(&cold).filter(|_| most > 1)? - mean(&warm)?;
    let parts = Part::of_mean(&cold, 1.0).zip(Part::of_mean(&warm, 1.0));
    let half = parts.and_then(|(cold, warm)| half_width(&[cold, warm]));
    let n = cold.len().min(warm.len());
    let interval = half.filter(|_| n >= LEAST).map(|half| Interval {
        low: value - half,
        high: value + half,
    });
    let range = extremes(&cold).zip(extremes(&warm));
    let range = range.map(|(cold, warm)| Interval {
        low: cold.low - warm.high,
        high: cold.high - warm.low,
    });
    Some(Estimate {
        interval,
        range: range.filter(|_| interval.is_none()),
        ..Estimate::bare(value, Statistic::Model, n)
    })
}

/// What an application asks of a scheduler, by its runs on the bare machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Demand {
    /// CPUs, and mean threads that lived there.
    threads: Vec<(f64, f64)>,
    /// At the largest size.
    turns: f64,
    turn_ns: f64,
    wait_ns: f64,
}

impl Demand {
    /// `None` without runs that the scheduler's observer saw.
    pub(crate) fn measured(data: &Data, workload: &str) -> Option<Self> {
        let mut threads = Vec::new();
        let mut largest = None;
        for size in sizes(data, workload) {
            let seen = seen(data, workload, size);
            let mean_of = |value: fn(&Seen) -> f64| {
                mean(&seen.iter().map(value).collect::<Vec<_>>()).filter(|mean| mean.is_finite())
            };
            let Some(lived) = mean_of(|it| (it.on_cpu_ns + it.off_cpu_ns) / it.wall_ns) else {
                continue;
            };
            threads.push((f64::from(size), lived));
            largest = Some((
                mean_of(|it| it.turns)?,
                mean_of(|it| it.on_cpu_ns / it.turns)?,
                mean_of(|it| (it.off_cpu_ns - it.ready_ns).max(0.0) / it.turns)?,
            ));
        }
        let (turns, turn_ns, wait_ns) = largest?;
        Some(Self {
            threads,
            turns,
            turn_ns,
            wait_ns,
        })
    }

    /// Threads on a number of CPUs: the line of least squares through the measured sizes, or their
    /// number at the only one.
    fn threads_on(&self, cpus: u32) -> u32 {
        let (sizes, lived): (Vec<f64>, Vec<f64>) = self.threads.iter().copied().unzip();
        let (middle, level) = (mean(&sizes).unwrap_or(1.0), mean(&lived).unwrap_or(1.0));
        let spread: f64 = sizes.iter().map(|size| (size - middle).powi(2)).sum();
        let together = self
            .threads
            .iter()
            .map(|(size, lived)| (size - middle) * (lived - level));
        let slope = if spread > 0.0 {
            // An application has no fewer threads for more CPUs.
            (together.sum::<f64>() / spread).max(0.0)
        } else {
            0.0
        };
        let most = MOST_THREADS * f64::from(cpus);
        (level + slope * (f64::from(cpus) - middle))
            .round()
            .clamp(1.0, most) as u32
    }

    fn on(&self, cpus: u32) -> Application {
        Application {
            threads: self.threads_on(cpus),
            turns: self.turns.clamp(1.0, f64::from(MOST_TURNS)) as u32,
            turn_ns: self.turn_ns,
            wait_ns: self.wait_ns,
        }
    }
}

/// An application at a size on the bare machine, with which containers on every host are compared.
struct Bare {
    application: Application,
    size: u32,
    /// Costs, with the time of each simulated run, ns.
    levels: [(Level, Vec<f64>); 3],
}

impl Bare {
    fn new(demand: &Demand, costs: &Costs, size: u32) -> Self {
        let application = demand.on(size);
        let levels = costs.levels().map(|level| {
            let group = Group {
                cpus: size,
                quota_cpus: None,
                switch_ns: 0.0,
                migration_ns: level.migration_ns,
            };
            (level, times(&application, &group))
        });
        Self {
            application,
            size,
            levels,
        }
    }

    /// How much longer a vanilla container of the size takes on a host, percent. Its ends are a
    /// range, what the ends of the costs' intervals give: what the model leaves out is in neither.
    fn overhead(&self, host_cpus: u32, name: &str) -> Figure {
        let size = self.size;
        let [value, low, high] = self.levels.each_ref().map(|(level, bare)| {
            let container = Group {
                cpus: host_cpus,
                quota_cpus: (size < host_cpus).then_some(size),
                switch_ns: level.switch_ns,
                migration_ns: level.migration_ns,
            };
            let container = times(&self.application, &container);
            let ratios = container.iter().zip(bare).map(|(time, bare)| time / bare);
            (ratios.sum::<f64>() / SEEDS as f64 - 1.0) * 100.0
        });
        Figure {
            low: Some(low.min(high).min(value)),
            high: Some(low.max(high).max(value)),
            spread: Spread::Range,
            ..Figure::bare(name, "%", value, Statistic::Model, SEEDS as usize)
        }
    }
}

fn times(application: &Application, group: &Group) -> Vec<f64> {
    let time = |seed| simulate(application, group, seed).time_ns as f64;
    (0..SEEDS).map(time).collect()
}

/// What the observer saw of a run, ns.
struct Seen {
    wall_ns: f64,
    on_cpu_ns: f64,
    off_cpu_ns: f64,
    /// Of it, waiting for a CPU.
    ready_ns: f64,
    /// Times that a thread stopped to wait.
    turns: f64,
}

fn seen(data: &Data, workload: &str, size: u32) -> Vec<Seen> {
    let is_of = |run: &&Run| {
        let place = baseline(size, run.host_cpus);
        !run.warm_up && run.time.is_some() && run.cell == cell(workload, place, Arm::Main)
    };
    let of_run = |run: &Run| {
        let sched = run.observed.sched.as_ref()?;
        let off = |cause: Option<&str>| {
            let causes = sched.off_cpu_ns.iter();
            let counted = causes.filter(|(name, _)| cause.is_none_or(|cause| *name == cause));
            counted.map(|(_, ns)| *ns as f64).sum::<f64>()
        };
        (sched.voluntary > 0 && run.wall_s > 0.0).then(|| Seen {
            wall_ns: run.wall_s * 1e9,
            on_cpu_ns: sched.on_cpu_ns as f64,
            off_cpu_ns: off(None),
            ready_ns: off(Some(super::observe::WAITING_FOR_A_CPU)),
            turns: sched.voluntary as f64,
        })
    };
    data.runs.iter().filter(is_of).filter_map(of_run).collect()
}

/// A place of the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Predicted {
    pub(crate) workload: String,
    pub(crate) host_cpus: u32,
    pub(crate) size: u32,
    /// Percent over the bare machine of the size.
    pub(crate) overhead: Figure,
    /// What was measured there, percent.
    pub(crate) measured: Option<Estimate>,
}

impl Predicted {
    /// In words.
    pub(crate) fn place(&self) -> String {
        let Self {
            workload,
            host_cpus,
            size,
            ..
        } = self;
        format!("{workload}, {size} of {host_cpus} CPUs")
    }

    /// CPUs of the container over those of its host.
    pub(crate) fn chr(&self) -> f64 {
        f64::from(self.size) / f64::from(self.host_cpus)
    }

    /// What the measurement of this place says of the model.
    pub(crate) fn check(&self) -> Check {
        let measured = self.measured.and_then(|it| it.interval);
        let Some((measured, (low, high))) = measured.zip(self.overhead.ends()) else {
            return Check::Undecided;
        };
        if measured.low > high || low > measured.high {
            return Check::Differs;
        }
        if self.size == self.host_cpus {
            Check::Trivial
        } else {
            Check::Overlaps
        }
    }
}

/// What a measured size says of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Overlaps,
    /// They overlap at the host's size, where nothing limits a container: the model has little to
    /// be wrong in.
    Trivial,
    Differs,
    /// One has no interval.
    Undecided,
}

/// How many of the sizes that say something of the model it misses: a sentence.
pub(crate) fn misses(checked: &[Predicted]) -> String {
    let decide = |it: &&Predicted| matches!(it.check(), Check::Overlaps | Check::Differs);
    let all = checked.iter().filter(decide).count();
    let missed: Vec<String> = checked
        .iter()
        .filter(|it| it.check() == Check::Differs)
        .map(Predicted::place)
        .collect();
    match (missed.len(), all) {
        (_, 0) => "No size of this host could be checked.".to_owned(),
        (0, all) => format!("It misses none of {all} sizes."),
        (count, all) => format!(
            "It misses {count} of {all} sizes ({}), so that larger hosts are left out for these \
             workloads.",
            missed.join("; ")
        ),
    }
}

fn name(workload: &str, host_cpus: u32, size: u32) -> String {
    format!("model_pct.{workload}.{size}of{host_cpus}")
}

fn applications(workloads: &[Workload]) -> impl Iterator<Item = &str> {
    let applications = workloads.iter().filter(|it| it.cost.is_none());
    applications.map(|workload| workload.name.as_str())
}

/// Host and size of each place on larger hosts.
fn larger(cpus: u32) -> impl Iterator<Item = (u32, u32)> {
    let larger = HOSTS.into_iter().filter(move |host_cpus| *host_cpus > cpus);
    larger.flat_map(|host_cpus| {
        let doubling = std::iter::successors(Some(2), |size| Some(size * 2));
        let smaller = doubling.take_while(move |size| *size <= host_cpus);
        smaller.map(move |size| (host_cpus, size))
    })
}

/// What the model says, by simulation; nothing unless both costs were measured, on one host. Of
/// larger hosts it says nothing for a workload of which it misses a size of this one.
pub(crate) fn figures(data: &Data, workloads: &[Workload]) -> Vec<Figure> {
    let hosts = data.hosts();
    let (Some(costs), [(_, cpus)]) = (Costs::measured(data, workloads), &hosts[..]) else {
        return Vec::new();
    };
    let mut figures = Vec::new();
    for workload in applications(workloads) {
        let Some(demand) = Demand::measured(data, workload) else {
            continue;
        };
        let mut bare: BTreeMap<u32, Bare> = BTreeMap::new();
        let mut says = |(host_cpus, size)| {
            let bare = bare.entry(size);
            let bare = bare.or_insert_with(|| Bare::new(&demand, &costs, size));
            bare.overhead(host_cpus, &name(workload, host_cpus, size))
        };
        let here = sizes(data, workload).into_iter();
        figures.extend(here.map(|size| says((*cpus, size))));
        let checked = checked(data, workload, *cpus, &figures);
        if checked.iter().all(|it| it.check() != Check::Differs) {
            figures.extend(larger(*cpus).map(says));
        }
    }
    figures
}

/// What the model says of this host's sizes at which containers of a workload ran.
fn checked(data: &Data, workload: &str, cpus: u32, figures: &[Figure]) -> Vec<Predicted> {
    let here = sizes(data, workload).into_iter().filter_map(|size| {
        let container = Place::new(Platform::Container, Mode::Vanilla, size, cpus);
        let measured = overhead(data, workload, container)?.percent();
        predicted_at(workload, (cpus, size), figures, Some(measured))
    });
    here.collect()
}

fn predicted_at(
    workload: &str,
    (host_cpus, size): (u32, u32),
    figures: &[Figure],
    measured: Option<Estimate>,
) -> Option<Predicted> {
    Some(Predicted {
        workload: workload.to_owned(),
        host_cpus,
        size,
        overhead: find(figures, &name(workload, host_cpus, size))?.clone(),
        measured,
    })
}

/// The same beside what was measured.
pub(crate) fn predicted(data: &Data, workloads: &[Workload], figures: &[Figure]) -> Vec<Predicted> {
    let hosts = data.hosts();
    let [(_, cpus)] = &hosts[..] else {
        return Vec::new();
    };
    let of = |workload| {
        let larger = larger(*cpus).filter_map(|place| predicted_at(workload, place, figures, None));
        let here = checked(data, workload, *cpus, figures);
        here.into_iter().chain(larger.collect::<Vec<_>>())
    };
    applications(workloads).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::observe::{Sched, WAITING_FOR_A_CPU};
    use super::super::tests::run;
    use super::*;

    fn workload(name: &str, more: &str) -> Workload {
        let text = format!(
            "about = \"x\"\nkind = \"cpu\"\n{more}timeout_s = 5\nfull = {{ N = \"1\" }}\n\
             run = \"true\"\ncheck = \"true\"\n\
             [metric]\nunit = \"s\"\ndirection = \"lower\"\nsource = \"wall\"\n"
        );
        tare_platform::workload::parse(name, "x.toml".as_ref(), &text).unwrap()
    }

    fn workloads() -> [Workload; 3] {
        [
            workload("s", "cost = \"switch\"\n"),
            workload("m", "cost = \"migration\"\n"),
            workload("w", ""),
        ]
    }

    /// Six runs a little apart around a time.
    fn add(data: &mut Data, workload: &str, platform: Platform, size: u32, time: f64) {
        for part in [0.998, 0.999, 1.0, 1.0, 1.001, 1.002] {
            let place = Place::new(platform, Mode::Vanilla, size, 8);
            data.runs
                .push(run("a", workload, place, Arm::Main, time * part));
        }
    }

    /// A switch costs 200 ns in a container, a migration 30 us; `w` has two threads a CPU that
    /// take turns of 1 ms and wait 3 ms.
    fn made() -> Data {
        let mut data = Data::default();
        add(&mut data, "s", Platform::Bare, 8, 1_000.0);
        add(&mut data, "s", Platform::Container, 8, 1_200.0);
        add(&mut data, "m", Platform::Bare, 1, 10_000.0);
        add(&mut data, "m", Platform::Bare, 8, 40_000.0);
        for size in [1, 2, 8] {
            add(&mut data, "w", Platform::Bare, size, 8.0 / f64::from(size));
            add(
                &mut data,
                "w",
                Platform::Container,
                size,
                8.0 / f64::from(size),
            );
        }
        for run in data.runs.iter_mut().filter(|run| run.cell.workload == "w") {
            let threads_ns = 2.0 * f64::from(run.cell.place.size) * run.wall_s * 1e9;
            let waits = [("events", 0.75), (WAITING_FOR_A_CPU, 0.0)];
            run.observed.sched = Some(Sched {
                on_cpu_ns: (threads_ns * 0.25) as u64,
                off_cpu_ns: waits
                    .map(|(name, part)| (name.to_owned(), (threads_ns * part) as u64))
                    .into(),
                voluntary: (threads_ns * 0.25 / 1e6) as u64,
                ..Sched::default()
            });
        }
        data
    }

    #[test]
    fn costs_are_what_a_container_and_a_move_add() {
        let costs = Costs::measured(&made(), &workloads()).unwrap();
        assert!((costs.switch.value - 200.0).abs() < 1.0, "{costs:?}");
        assert!((costs.migration.value - 30_000.0).abs() < 50.0, "{costs:?}");
        let interval = costs.migration.interval.unwrap();
        assert!(interval.low < 30_000.0 && interval.high > 30_000.0);
    }

    #[test]
    fn an_application_asks_for_what_its_runs_showed() {
        let demand = Demand::measured(&made(), "w").unwrap();
        assert!((demand.turn_ns - 1e6).abs() < 1e3, "{demand:?}");
        assert!((demand.wait_ns - 3e6).abs() < 1e4, "{demand:?}");
        assert_eq!([1, 8, 64].map(|cpus| demand.threads_on(cpus)), [2, 16, 128]);
        let mut one_size = made();
        one_size.runs.retain(|run| run.cell.place.size == 8);
        let demand = Demand::measured(&one_size, "w").unwrap();
        assert_eq!([1, 64].map(|cpus| demand.threads_on(cpus)), [16, 16]);
        assert_eq!(Demand::measured(&made(), "s"), None, "without an observer");
    }

    /// The same with containers of `w` that take as long as the model says.
    fn as_the_model_says() -> Data {
        let mut data = made();
        let figures = figures(&data, &workloads());
        for run in data.runs.iter_mut().filter(|run| run.cell.workload == "w") {
            let Place { platform, size, .. } = run.cell.place;
            if platform == Platform::Container {
                let overhead = find(&figures, &name("w", 8, size)).unwrap().value;
                run.time = run.time.map(|time| time * (1.0 + overhead / 100.0));
            }
        }
        data
    }

    #[test]
    fn a_model_that_misses_a_size_says_so_and_nothing_of_larger_hosts() {
        let (mut data, workloads) = (as_the_model_says(), workloads());
        for run in &mut data.runs {
            let Place { platform, size, .. } = run.cell.place;
            if (run.cell.workload.as_str(), platform, size) == ("w", Platform::Container, 2) {
                run.time = run.time.map(|time| time * 2.0);
            }
        }
        let figures = figures(&data, &workloads);
        let names: Vec<&str> = figures.iter().map(|it| it.name.as_str()).collect();
        let here = ["model_pct.w.1of8", "model_pct.w.2of8", "model_pct.w.8of8"];
        assert_eq!(names, here);
        let all = predicted(&data, &workloads, &figures);
        assert_eq!(
            misses(&all),
            "It misses 1 of 2 sizes (w, 2 of 8 CPUs), so that larger hosts are left out for these \
             workloads."
        );
        // At the host's size alone nothing was checked.
        data.runs.retain(|run| {
            let Place { platform, size, .. } = run.cell.place;
            platform != Platform::Container || size == 8
        });
        let figures = super::figures(&data, &workloads);
        let all = predicted(&data, &workloads, &figures);
        assert_eq!(misses(&all), "No size of this host could be checked.");
    }

    #[test]
    fn larger_hosts_come_after_this_ones_sizes_which_are_compared() {
        let (data, workloads) = (as_the_model_says(), workloads());
        let figures = figures(&data, &workloads);
        let all = predicted(&data, &workloads, &figures);
        assert_eq!(figures.len(), all.len());
        let (here, beyond): (Vec<_>, Vec<_>) = all.iter().partition(|it| it.host_cpus == 8);
        let sizes: Vec<u32> = here.iter().map(|it| it.size).collect();
        assert_eq!(sizes, [1, 2, 8]);
        let checks: Vec<Check> = here.iter().map(|it| it.check()).collect();
        // At the host's size nothing is limited.
        assert_eq!(checks, [Check::Overlaps, Check::Overlaps, Check::Trivial]);
        let here: Vec<Predicted> = here.into_iter().cloned().collect();
        assert_eq!(misses(&here), "It misses none of 2 sizes.");
        // 2 to 16 of 16, to 32 of 32, to 64 of 64 and of 112.
        assert_eq!(beyond.len(), 4 + 5 + 6 + 6);
        let last = beyond.last().unwrap();
        assert_eq!((last.host_cpus, last.size, last.measured), (112, 64, None));
        assert_eq!(last.overhead.name, "model_pct.w.64of112");
        for it in &all {
            let (low, high) = it.overhead.ends().unwrap();
            assert!(low <= it.overhead.value && it.overhead.value <= high);
            // No interval: it has the costs' errors, not the model's.
            assert_eq!(it.overhead.interval(), None);
            // Two threads a CPU at a quarter of the time each: a quota seldom stops one, and
            // where one CPU would make them queue, more CPUs do not.
            assert!(it.overhead.value.abs() < 30.0, "{it:?}");
        }
    }

    #[test]
    fn a_container_that_costs_nothing_and_is_not_stopped_takes_as_long() {
        let demand = Demand {
            threads: vec![(1.0, 1.0)],
            turns: 500.0,
            turn_ns: 1e6,
            wait_ns: 1e6,
        };
        let nothing = Estimate::bare(0.0, Statistic::Model, 1);
        let costs = Costs {
            switch: nothing,
            migration: nothing,
        };
        let overhead = |costs| Bare::new(&demand, &costs, 4).overhead(112, "x").value;
        assert_eq!(overhead(costs), 0.0);
        let switch = Estimate {
            value: 1e5,
            ..nothing
        };
        // A turn and its wait take 2 ms, one switch with them 0.1 ms.
        let higher = overhead(Costs { switch, ..costs });
        assert!((0.0..=5.5).contains(&higher), "{higher}");
    }

    #[test]
    fn without_both_costs_of_one_host_there_is_no_model() {
        for without in ["s", "m"] {
            let mut data = made();
            data.runs.retain(|run| run.cell.workload != without);
            assert_eq!(figures(&data, &workloads()), []);
        }
        let mut two = made();
        two.runs[0].host = "b".to_owned();
        let two = (
            figures(&two, &workloads()),
            predicted(&two, &workloads(), &[]),
        );
        assert_eq!(two, (Vec::new(), Vec::new()));
    }
}
