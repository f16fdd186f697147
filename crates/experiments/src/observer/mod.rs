//! What watching costs: `tare why`'s observer beside machines that are idle, tick, and
//! storm, as the observer accounts itself and as the guests lose instructions by it.
//!
//! Each round boots the machines of each load anew. A boot is a block: it has a window with the
//! observer and two without, which are the A/A pair, in another order than the boot before. A
//! guest's loss is what it executes for each second of its CPU time in the watched window, against
//! the two others of that boot. Storms are watched once more without the burst in which one that
//! shows itself is counted.

#[cfg(test)]
mod tests;

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tare_control::stats::Stats;
use tare_lab::kit::{
    Bar, Bench, Data, Depth, Entry, Experiment, Figure, Goal, Make, Metric, Record, ReportText,
    RunError, Template, Turn, bars, has_data, metrics, reach, replanned, replanned_ms, rounds, row,
    times,
};
use tare_machines::appliance::Guest;
use tare_machines::observe::CpuReading;
use tare_machines::observe::counters::{activity_between, instructions_between};
use tare_probe::kvm::{FirstBurst, Limits, Observer};
use tare_probe::vm::Vm;

use super::guest_bench::{self, ArmRound};

metrics! {
    COST: less("watch_cost_pct", "%");
    START_MS: less("watch_start_ms", "ms");
    COUNTED: more("counted_pct", "%");
    LOSS: less("guest_loss_pct", "%");
    CONTROL: neither("control_loss_pct", "%");
    BURST_COST: neither("burst_cost_pct", "%");
    UNBURST_COST: less("unburst_cost_pct", "%");
    UNBURST_COUNTED: more("unburst_counted_pct", "%");
}

/// What a load is planned to take beside its windows, for each machine.
const START: Duration = Duration::from_millis(300);
/// Longest silence of an image before it begins.
const SILENCE: Duration = Duration::from_secs(40);

/// Machines with one vCPU that run alike.
#[derive(Clone, Copy, Debug)]
struct Workload {
    name: &'static str,
    about: &'static str,
    cmdline: &'static str,
    /// How many, by depth.
    machines: [usize; 3],
}

const fn load(
    name: &'static str,
    about: &'static str,
    cmdline: &'static str,
    machines: [usize; 3],
) -> Workload {
    Workload {
        name,
        about,
        cmdline,
        machines,
    }
}

const LOADS: [Workload; 5] = [
    load("one", "one idle machine", "mode=quiet", [1; 3]),
    load(
        "ticking",
        "machines that tick at 150 Hz",
        "mode=tick hz=150",
        [8, 30, 30],
    ),
    load("many", "idle machines", "mode=quiet", [30, 100, 300]),
    load(
        "cpuid",
        "one machine that executes CPUID again and again",
        "mode=exit kind=cpuid",
        [1; 3],
    ),
    load(
        "self_ipi",
        "one machine that interrupts itself again and again",
        "mode=exit kind=self_ipi",
        [1; 3],
    ),
];

/// Loads whose guests run all the time: what they lose can be seen.
const STORMS: [&str; 2] = ["cpuid", "self_ipi"];

/// The observer's promise is 2 % of a core, and the guests' loss is to be about that.
const GOALS: &[Goal] = &[
    Goal::on_any_kvm("watch_cost_pct.one", 2.0),
    Goal::on_any_kvm("watch_cost_pct.ticking", 2.0),
    Goal::on_any_kvm("watch_cost_pct.many", 2.0),
    Goal::on_any_kvm("watch_cost_pct.cpuid", 2.0),
    Goal::on_any_kvm("watch_cost_pct.self_ipi", 2.0),
    Goal::on_any_kvm("guest_loss_pct.cpuid", 3.0),
    Goal::on_any_kvm("guest_loss_pct.self_ipi", 3.0),
];

/// Whether a window is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    Alone,
    /// The same once more: must come out equal.
    Same,
    Watched,
    /// A storm that shows itself is not counted in a burst at once.
    WithoutBurst,
}

const WINDOWS: [Window; 4] = [
    Window::Alone,
    Window::Same,
    Window::Watched,
    Window::WithoutBurst,
];

impl Window {
    /// Those of a boot of a load, rotated so that none is always first, and in every other boot in
    /// reverse: by rotation alone most boots have one of two windows after the other, and a guest
    /// that gets slower would make them differ.
    fn of(load: &str, round: usize) -> Vec<Self> {
        let is_storm = STORMS.contains(&load);
        let windows = WINDOWS.into_iter();
        let mut windows: Vec<Self> = windows
            .filter(|window| is_storm || *window != Self::WithoutBurst)
            .collect();
        let by = round / 2 % windows.len();
        windows.rotate_left(by);
        if round % 2 == 1 {
            windows.reverse();
        }
        windows
    }

    /// The name in records.
    const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Same => "same",
            Self::Watched => "watched",
            Self::WithoutBurst => "without_burst",
        }
    }

    /// What an observer is limited to in it; `None` without one.
    fn limits(self) -> Option<Limits> {
        let first_burst = match self {
            Self::Alone | Self::Same => return None,
            Self::Watched => FirstBurst::Counted,
            Self::WithoutBurst => FirstBurst::LeftOut,
        };
        Some(Limits {
            first_burst,
            ..Limits::default()
        })
    }
}

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "observer",
    about: "tare why's own cost: one machine, many, and storms; what the guests lose",
    metrics: METRICS,
    goals: GOALS,
    make: Make::OfImage(|depth, image| Box::new(Observing::new(depth, image))),
};

/// The experiment and what it has measured.
pub(crate) struct Observing {
    depth: Depth,
    image: String,
    /// Boots of each load.
    boots: usize,
    window: Duration,
    /// Whether it is a record of rounds of one boot, as earlier programs wrote.
    is_of_one_boot: bool,
    data: Data,
}

impl Observing {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let (boots, window_s) = depth.of([(2, 1.5), (8, 2.0), (16, 4.0)]);
        Self {
            depth,
            image: image.unwrap_or_else(|| "storm".to_owned()),
            boots,
            window: Duration::from_secs_f64(window_s),
            is_of_one_boot: false,
            data: Data::default(),
        }
    }

    /// One boot of a load: its windows, which are one sample.
    fn boot(
        &mut self,
        bench: &mut Bench<'_>,
        workload: &Workload,
        round: usize,
    ) -> Result<(), RunError> {
        let arm = workload.name;
        let place = ArmRound { arm, round };
        let mut machines = Vec::new();
        for _ in 0..self.depth.of(workload.machines) {
            let spec = place.machine(&self.image, 1, workload.cmdline.to_owned());
            let mut guest = bench.executor.measure(&spec)?;
            guest.record(SILENCE, bench.interrupt)?;
            machines.push(guest);
            bench.progress.done(START);
        }
        let vms: Vec<Vm> = machines.iter().filter_map(|guest| guest.vm()).collect();
        let mut measured = Vec::new();
        for window in Window::of(arm, round) {
            measured.push(self.window(bench, window, &mut machines, &vms)?);
            bench.progress.done(self.window);
        }
        let record = json!({"machines": machines.len(), "windows": measured});
        guest_bench::keep(bench, place, "round", &record)?;
        self.take(arm, round, &record);
        Ok(bench.recorder.flush()?)
    }

    /// One window: what the guests executed and took, and what watching cost.
    fn window(
        &mut self,
        bench: &Bench<'_>,
        window: Window,
        machines: &mut [Box<dyn Guest>],
        vms: &[Vm],
    ) -> Result<Value, RunError> {
        let began = Instant::now();
        // Asking the machines takes this thread's CPU time, which is the observer's cost from
        // its start to its turn.
        let (from, before) = (stats(machines)?, cpu(machines)?);
        let start_ns = tare_probe::clock::thread_cpu_ns();
        let limits = window.limits();
        let mut observer = limits.map(|limits| Observer::within(vms, limits));
        let start_ns = tare_probe::clock::thread_cpu_ns().saturating_sub(start_ns);
        let end = Instant::now() + self.window;
        while Instant::now() < end {
            bench.interrupt.check()?;
            let left = end.saturating_duration_since(Instant::now());
            let pause = observer.as_ref().map_or(left, Observer::next_refresh);
            thread::sleep(left.min(pause).min(Duration::from_millis(250)));
            if let Some(observer) = &mut observer {
                observer.refresh();
            }
        }
        let account = observer.and_then(|mut observer| observer.turn().pop());
        let (to, after) = (stats(machines)?, cpu(machines)?);
        let mut cpu_ns = 0;
        for (before, after) in before.iter().zip(&after) {
            cpu_ns += after.since(before).monitor_ns;
        }
        let mut work = (0.0, 0.0);
        for (from, to) in from.iter().zip(&to) {
            self.data.kvm = to.kvm;
            work.0 += instructions_between(from, to).unwrap_or(0.0);
            work.1 += activity_between(from, to);
        }
        let watched = account.map(|account| {
            json!({
                "window_ns": account.window_ns, "cost": account.observer,
                "counted_share": account.counted_share, "start_ns": start_ns,
                "without_burst": window == Window::WithoutBurst,
            })
        });
        Ok(json!({
            "window": window.name(), "kvm": self.data.kvm,
            "seconds": began.elapsed().as_secs_f64(), "cpu_ns": cpu_ns,
            "instructions": work.0, "activity": work.1, "watched": watched,
        }))
    }

    /// Samples of a round from its record.
    fn take(&mut self, load: &'static str, round: usize, record: &Value) {
        self.data.samples.enter_round(round);
        let windows = record["windows"].as_array().map_or(&[][..], Vec::as_slice);
        // Kept runs of earlier versions have no window without the burst.
        let is_without = |window: &&Value| window["watched"]["without_burst"] == true;
        let mut observed = windows.iter().filter(|window| !window["watched"].is_null());
        let Some(watched) = observed.find(|window| !is_without(window)) else {
            let why = "its machines have no KVM".to_owned();
            return self.data.unavailable(load, Some(why));
        };
        let samples = &mut self.data.samples;
        let mut add = |metric: Metric, value: f64| samples.put(metric, load, value);
        let figures = &watched["watched"];
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let cost = cost_pct(figures);
        if let Some(cost) = cost {
            add(COST, cost);
        }
        if let Some(without) = windows.iter().find(is_without) {
            let without = &without["watched"];
            if let (Some(cost), Some(unburst)) = (cost, cost_pct(without)) {
                add(UNBURST_COST, unburst);
                add(BURST_COST, cost - unburst);
            }
            add(UNBURST_COUNTED, number(&without["counted_share"]) * 100.0);
        }
        add(START_MS, number(&figures["start_ns"]) / 1e6);
        add(COUNTED, number(&figures["counted_share"]) * 100.0);
        if !STORMS.contains(&load) {
            return;
        }
        if let Some((unwatched, watched)) = Unwatched::of(windows).zip(pace(watched)) {
            let [loss, control] = [watched / unwatched.beside, unwatched.same_over_alone];
            self.data.extend(LOSS.name, load, [loss].into_iter());
            self.data.extend(CONTROL.name, load, [control].into_iter());
        }
    }
}

/// The paces of a storm's unwatched windows.
struct Unwatched {
    /// What the watched window is held against.
    beside: f64,
    /// Of the A/A pair.
    same_over_alone: f64,
}

impl Unwatched {
    fn of(windows: &[Value]) -> Option<Self> {
        let named = |name| pace(windows.iter().find(|window| window["window"] == name)?);
        if let Some((alone, same)) = named("alone").zip(named("same")) {
            return Some(Self {
                beside: f64::midpoint(alone, same),
                same_over_alone: same / alone,
            });
        }
        // Windows of earlier programs have no name and one order: two before the watched one, and
        // one after it.
        let unwatched = windows.iter().filter(|window| window["watched"].is_null());
        let &[first, second, last] = unwatched.filter_map(pace).collect::<Vec<_>>().as_slice()
        else {
            return None;
        };
        Some(Self {
            beside: f64::midpoint(second, last),
            same_over_alone: second / first,
        })
    }
}

/// A ratio of paces as what is lost, percent.
fn lost(ratio: Figure) -> Figure {
    let lost = |ratio: f64| (1.0 - ratio) * 100.0;
    Figure {
        value: lost(ratio.value),
        low: ratio.high.map(lost),
        high: ratio.low.map(lost),
        ..ratio
    }
}

/// What observing took of a window, percent of a CPU; `None` where the kernel does not say how long
/// the programs in it ran.
fn cost_pct(figures: &Value) -> Option<f64> {
    let spent = |name: &str| figures["cost"][name].as_f64();
    let window = figures["window_ns"].as_f64().filter(|ns| *ns > 0.0)?;
    Some((spent("user_space_ns")? + spent("bpf_ns")?) / window * 100.0)
}

/// What guests execute for each second of their CPU time: instructions where KVM emulates
/// them, exits elsewhere.
fn pace(window: &Value) -> Option<f64> {
    let number = |name: &str| window[name].as_f64().filter(|value| *value > 0.0);
    let work = number("instructions").or_else(|| number("activity"))?;
    Some(work / number("cpu_ns")? * 1e9)
}

fn stats(machines: &mut [Box<dyn Guest>]) -> Result<Vec<Stats>, RunError> {
    let mut all = Vec::new();
    for guest in machines {
        all.extend(guest.stats()?);
    }
    Ok(all)
}

fn cpu(machines: &mut [Box<dyn Guest>]) -> Result<Vec<CpuReading>, RunError> {
    let readings = machines.iter_mut().map(|guest| guest.cpu());
    Ok(readings.collect::<Result<_, _>>()?)
}

impl Experiment for Observing {
    has_data!();

    /// Machines and windows report their progress by themselves.
    fn planned(&self) -> Duration {
        let machines = LOADS.iter().map(|load| self.depth.of(load.machines));
        let windows = LOADS.iter().map(|load| Window::of(load.name, 0).len());
        let boot = times(self.window, windows.sum()) + times(START, machines.sum());
        times(boot, self.boots)
    }

    fn plan(&self) -> Value {
        let loads = LOADS.map(|load| {
            json!({
                "name": load.name, "about": load.about, "cmdline": load.cmdline,
                "machines": self.depth.of(load.machines),
            })
        });
        json!({
            "depth": self.depth.name(), "image": self.image, "boots": self.boots,
            "window_ms": self.window.as_millis() as u64, "loads": loads,
        })
    }

    fn replan(&mut self, plan: &Value) {
        self.is_of_one_boot = plan.get("boots").is_none();
        for name in ["rounds", "boots"] {
            replanned(plan, name, &mut self.boots);
        }
        replanned_ms(plan, "window_ms", &mut self.window);
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        for load in LOADS {
            let rounds = record.of("round").filter(|line| line["arm"] == load.name);
            for line in rounds {
                let record = &line["record"];
                let kvm = record["windows"][0]["kvm"].clone();
                self.data.kvm = serde_json::from_value(kvm).unwrap_or(self.data.kvm);
                let round = line["round"].as_u64().unwrap_or(0);
                self.take(load.name, round as usize, record);
            }
        }
        Ok(())
    }

    fn turns(&self) -> Vec<Turn> {
        let turn = |_, index: usize, _| Some(Turn::new(index, LOADS[index].name, Duration::ZERO));
        rounds(self.boots, &[LOADS.len()], 1, turn)
    }

    fn take_turn(&mut self, bench: &mut Bench<'_>, turn: &Turn) -> Result<(), RunError> {
        self.boot(bench, &LOADS[turn.index], turn.round)
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = self.data.samples.figures();
        for metric in [LOSS, CONTROL] {
            let of = |load| {
                let ratios = self.data.of(metric.name, load);
                // The figures of earlier programs stay what their summaries say.
                if self.is_of_one_boot {
                    return metric.median(load, &ratios);
                }
                metric.paired(load, &ratios)
            };
            figures.extend(STORMS.into_iter().filter_map(of).map(lost));
        }
        figures
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        let text = Template::new(include_str!("report.md"), METRICS, figures)
            .set("image", &self.image)
            .set("boots", self.boots)
            .set("window_ms", self.window.as_millis())
            .only_if("booted", !self.is_of_one_boot)
            .only_if("one_boot", self.is_of_one_boot);
        let loads = LOADS.iter().map(|load| {
            let machines = self.depth.of(load.machines).to_string();
            row([
                ("about", load.about),
                ("load", load.name),
                ("machines", &machines),
            ])
        });
        let losses = STORMS.iter().enumerate().filter_map(|(series, load)| {
            Some(Bar {
                label: (*load).to_owned(),
                figure: LOSS.find(figures, load)?.clone(),
                series,
            })
        });
        let controls = STORMS.iter();
        let same = reach(controls.filter_map(|load| CONTROL.find(figures, load)));
        let about = "What the guests lose while they are watched";
        let chart = bars(&losses.collect::<Vec<_>>(), "% less", same, about);
        text.report_with(loads, [text.section("losses", chart)], &self.data.missing)
    }
}
