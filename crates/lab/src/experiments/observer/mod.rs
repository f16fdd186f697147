//! What watching costs: `tare why`'s observer beside machines that are idle, tick, and
//! storm, as the observer accounts itself and as the guests lose instructions by it.
//!
//! The machines of a load run through windows, in turns without and with the observer, and
//! two without in each round (the A/A pair). A guest's loss is what it executes for each
//! second of its CPU time in a watched window, against the windows before and after.

mod report;
#[cfg(test)]
mod tests;

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tare_control::stats::{Kvm, Stats};
use tare_probe::kvm::Observer;
use tare_probe::vm::Vm;

use super::guest_bench::{self, ArmRound, Data};
use crate::appliance::{ApplianceError, Guest};
use crate::bench::{Bench, RunError};
use crate::experiment::Experiment;
use crate::figure::Figure;
use crate::goal::Goal;
use crate::observe::counters::{activity_between, instructions_between};
use crate::replay::Record;
use crate::report::ReportText;
use crate::request::Depth;

/// What a load is planned to take beside its windows, for each machine.
const START: Duration = Duration::from_millis(300);
/// Longest silence of an image before it begins.
const SILENCE: Duration = Duration::from_secs(40);

/// Machines that run alike.
#[derive(Clone, Copy, Debug)]
struct Workload {
    name: &'static str,
    about: &'static str,
    cmdline: &'static str,
    cpus: u8,
    machines: fn(Depth) -> usize,
}

const LOADS: [Workload; 5] = [
    Workload {
        name: "one",
        about: "one idle machine",
        cmdline: "mode=quiet",
        cpus: 1,
        machines: |_| 1,
    },
    Workload {
        name: "ticking",
        about: "machines that tick at 150 Hz",
        cmdline: "mode=tick hz=150",
        cpus: 1,
        machines: |depth| match depth {
            Depth::Quick => 8,
            Depth::Standard | Depth::Full => 30,
        },
    },
    Workload {
        name: "many",
        about: "idle machines",
        cmdline: "mode=quiet",
        cpus: 1,
        machines: |depth| match depth {
            Depth::Quick => 30,
            Depth::Standard => 100,
            Depth::Full => 300,
        },
    },
    Workload {
        name: "cpuid",
        about: "one machine that executes CPUID again and again",
        cmdline: "mode=exit kind=cpuid",
        cpus: 1,
        machines: |_| 1,
    },
    Workload {
        name: "self_ipi",
        about: "one machine that interrupts itself again and again",
        cmdline: "mode=exit kind=self_ipi",
        cpus: 1,
        machines: |_| 1,
    },
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
    Watched,
}

/// A round: each watched window has one alone before and after it, and the first two are the
/// A/A pair.
const ROUND: [Window; 4] = [Window::Alone, Window::Alone, Window::Watched, Window::Alone];

/// The experiment and what it has measured.
pub(crate) struct Observing {
    depth: Depth,
    image: String,
    rounds: usize,
    window: Duration,
    data: Data,
}

impl Observing {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(depth: Depth, image: Option<String>) -> Self {
        let (rounds, window_s) = match depth {
            Depth::Quick => (2, 1.5),
            Depth::Standard => (8, 2.0),
            Depth::Full => (16, 4.0),
        };
        Self {
            depth,
            image: image.unwrap_or_else(|| "storm".to_owned()),
            rounds,
            window: Duration::from_secs_f64(window_s),
            data: Data::default(),
        }
    }

    fn workload(&mut self, bench: &mut Bench<'_>, workload: &Workload) -> Result<(), RunError> {
        let mut machines = Vec::new();
        for round in 0..(workload.machines)(self.depth) {
            let arm = workload.name;
            let place = ArmRound { arm, round };
            let spec = place.machine(&self.image, workload.cpus, workload.cmdline.to_owned());
            let mut guest = bench.executor.measure(&spec)?;
            guest
                .record(SILENCE, bench.interrupt)?
                .ok_or(ApplianceError::Silent(Duration::ZERO))?;
            machines.push(guest);
            bench.progress.done(START);
        }
        let vms: Vec<Vm> = machines.iter().filter_map(|guest| guest.vm()).collect();
        for round in 0..self.rounds {
            guest_bench::announce(bench, round, self.rounds, workload.name);
            let mut measured = Vec::new();
            for window in ROUND {
                measured.push(self.window(bench, window, &mut machines, &vms)?);
                bench.progress.done(self.window);
            }
            let place = ArmRound {
                arm: workload.name,
                round,
            };
            let record = json!({"machines": machines.len(), "windows": measured});
            guest_bench::keep(bench, place, "round", &record)?;
            self.take(workload.name, &record);
            bench.recorder.flush()?;
        }
        Ok(())
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
        let mut observer = (window == Window::Watched).then(|| Observer::start(vms));
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
            })
        });
        Ok(json!({
            "kvm": self.data.kvm, "seconds": began.elapsed().as_secs_f64(), "cpu_ns": cpu_ns,
            "instructions": work.0, "activity": work.1, "watched": watched,
        }))
    }

    /// Samples of a round from its record.
    fn take(&mut self, load: &'static str, record: &Value) {
        let windows = record["windows"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(watched) = windows.iter().find(|window| !window["watched"].is_null()) else {
            let missing = format!("{load}: its machines have no KVM");
            if !self.data.missing.contains(&missing) {
                self.data.missing.push(missing);
            }
            return;
        };
        let mut add = |name: &str, unit: &'static str, value: f64| {
            self.data
                .samples
                .add(&format!("{name}.{load}"), unit, value);
        };
        let figures = &watched["watched"];
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let cost = &figures["cost"];
        let spent = number(&cost["user_space_ns"]) + number(&cost["bpf_ns"]);
        let window_ns = number(&figures["window_ns"]).max(1.0);
        add("watch_cost_pct", "%", spent / window_ns * 100.0);
        add("watch_start_ms", "ms", number(&figures["start_ns"]) / 1e6);
        add(
            "counted_pct",
            "%",
            number(&figures["counted_share"]) * 100.0,
        );
        if !STORMS.contains(&load) {
            return;
        }
        let alone: Vec<f64> = windows
            .iter()
            .filter(|window| window["watched"].is_null())
            .filter_map(pace)
            .collect();
        if let (&[first, second, last], Some(watched)) = (alone.as_slice(), pace(watched)) {
            let beside = f64::midpoint(second, last);
            add("guest_loss_pct", "%", (1.0 - watched / beside) * 100.0);
            add("control_loss_pct", "%", (1.0 - second / first) * 100.0);
        }
    }
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

fn cpu(machines: &mut [Box<dyn Guest>]) -> Result<Vec<crate::observe::CpuReading>, RunError> {
    let readings = machines.iter_mut().map(|guest| guest.cpu());
    Ok(readings.collect::<Result<_, _>>()?)
}

impl Experiment for Observing {
    fn planned(&self) -> Duration {
        let windows = u32::try_from(self.rounds * ROUND.len()).unwrap_or(u32::MAX);
        let machines: usize = LOADS.iter().map(|load| (load.machines)(self.depth)).sum();
        self.window * windows * LOADS.len() as u32
            + START * u32::try_from(machines).unwrap_or(u32::MAX)
    }

    fn plan(&self) -> Value {
        let loads = LOADS.map(|load| {
            json!({
                "name": load.name, "about": load.about, "cmdline": load.cmdline,
                "machines": (load.machines)(self.depth),
            })
        });
        json!({
            "depth": self.depth.name(), "image": self.image, "rounds": self.rounds,
            "window_ms": self.window.as_millis() as u64, "loads": loads,
        })
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        for load in LOADS {
            let rounds = record.of("round").filter(|line| line["arm"] == load.name);
            for line in rounds {
                let record = &line["record"];
                let kvm = record["windows"][0]["kvm"].clone();
                self.data.kvm = serde_json::from_value(kvm).unwrap_or(self.data.kvm);
                self.take(load.name, record);
            }
        }
        Ok(())
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        for load in &LOADS {
            self.workload(bench, load)?;
        }
        Ok(())
    }

    fn kvm(&self) -> Kvm {
        self.data.kvm
    }

    fn figures(&self) -> Vec<Figure> {
        self.data.samples.figures()
    }

    fn goals(&self) -> &'static [Goal] {
        GOALS
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
