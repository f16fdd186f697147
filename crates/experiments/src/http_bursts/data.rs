//! What the experiment has measured so far.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use tare_control::stats::Kvm;
use tare_lab::kit::{
    Figure, Record, Recorder, Samples, WeighError, grouped_quantile, of_figure, rate, without_error,
};
use tare_load::requests::{Failure, Request};
use tare_machines::observe::CpuSpent;
use tare_tailor::counter::contain_iterations;

use super::arms::{Arm, Peer};
use super::linux::Side;
use super::machines::{Machine, Machines};
use super::metrics::METRICS;
use super::sample::{Boot, CpuSample, Line, Phase, SamplePosition};

/// Size of the image: the same each time.
pub(crate) const IMAGE_BYTES: &str = "image_bytes";

/// Figures of which each batch on a machine gives a value.
const OF_BATCHES: [&str; 6] = [
    "insns_per_request",
    "insns_per_connection",
    "exits_per_request",
    "exits_per_connection",
    "interrupts_per_request",
    "interrupts_per_connection",
];
/// What reading an idle machine's statistics costs it, before each of its windows.
const READING: &str = "stats_request_us";

/// Quantiles of the latency that have figures.
pub(crate) const LATENCIES: [(&str, f64); 3] = [
    ("latency_p50_us", 0.5),
    ("latency_p90_us", 0.9),
    ("latency_p99_us", 0.99),
];

/// Everything in memory that figures and report need.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// Samples of figures that are medians, one for each machine.
    pub samples: Samples,
    /// Samples of which a machine gives several.
    machines: Machines,
    /// Events and time (s) of each window with its machine, by figure of their rate.
    events: BTreeMap<String, Vec<(Option<SamplePosition>, f64, f64)>>,
    /// The machine whose statistics were read last: those of an earlier record's next events.
    read: Option<SamplePosition>,
    /// What rose in idle windows in which Tare's arm woke, and in how many.
    pub(crate) woken: (usize, BTreeMap<String, u64>),
    /// CPU time over time.
    pub(crate) cpu: Vec<CpuSample>,
    /// Latencies of the bursts by arm and cycle, us: each cycle starts a new machine.
    latencies: BTreeMap<Arm, BTreeMap<usize, Vec<f64>>>,
    /// What executes guests.
    pub kvm: Kvm,
    /// Requests per second of the bursts, once known.
    pub(crate) rate: Option<f64>,
    /// What the slowest arm carried, requests per second.
    pub(crate) carried: f64,
    /// Requests of each phase, and those that failed by kind.
    requests: BTreeMap<SamplePosition, (usize, BTreeMap<Failure, usize>)>,
    /// The image's file, once a machine has been started with it.
    pub(crate) image: Option<PathBuf>,
    /// Arms of the comparison with Linux that were unavailable, and why.
    pub(crate) uncompared: Vec<String>,
    /// Servers beside Tare's that were unavailable, and why.
    pub(crate) unpeered: Vec<String>,
    /// Sentences about their requests that failed, and Tare's at full speed.
    pub(crate) peer_failures: Vec<String>,
    /// Whether translated instructions of a record contain iterations of REP.
    pub(crate) iterations_inside: bool,
}

impl Data {
    /// Keeps a line, in the record and in memory.
    pub(crate) fn keep(&mut self, recorder: &mut Recorder, line: Line) -> Result<(), WeighError> {
        recorder.sample(&line)?;
        self.take(line);
        Ok(())
    }

    /// Keeps a sample of a figure.
    pub(crate) fn value(
        &mut self,
        recorder: &mut Recorder,
        boot: Option<Boot>,
        figure: &str,
        value: f64,
    ) -> Result<(), WeighError> {
        let (figure, unit) = (figure.to_owned(), unit_of(figure).to_owned());
        self.keep(
            recorder,
            Line::Value {
                boot,
                figure,
                unit,
                value,
            },
        )
    }

    /// Takes the samples of a record.
    pub(crate) fn replay(&mut self, record: &Record) {
        for line in &record.lines {
            // A line that is truncated or of another form is not a sample.
            if let Ok(kept) = Line::deserialize(line) {
                self.take(kept);
            }
            self.iterations_inside |= line.get("insns").is_some_and(contain_iterations);
        }
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Serving { .. } => self.machines.serve(),
            Line::Value { figure, value, .. } => self.figure(&figure, value),
            // All requests of one boot.
            Line::Translated { figure, insns, .. } => {
                let counts: Vec<f64> = insns.iter().map(|it| it.total() as f64).collect();
                if let Some(counts) = tare_stats::summarize(&counts) {
                    self.figure(&figure, counts.median);
                }
            }
            Line::Events {
                place,
                figure,
                events,
                seconds,
            } => {
                let windows = self.events.entry(figure).or_default();
                windows.push((place.or(self.read), events, seconds));
            }
            Line::Woken { place, counters } if place.arm == Arm::Tare => {
                self.woken.0 += 1;
                for (name, count) in counters {
                    *self.woken.1.entry(name).or_default() += count;
                }
            }
            Line::Woken { .. } => {}
            Line::Cpu(sample) => self.cpu(sample),
            Line::Stats { place, stats } => (self.kvm, self.read) = (stats.kvm, Some(place)),
            Line::Rate {
                carried_per_s,
                burst_per_s,
            } => (self.rate, self.carried) = (Some(burst_per_s), carried_per_s),
            Line::Carried {
                peer,
                connections,
                answered,
                seconds,
                spent,
                ..
            } => self.carried(
                &format!("{}.{connections}", peer.name()),
                answered,
                seconds,
                &spent,
            ),
            Line::PeerCpu {
                peer, phase, spent, ..
            } => self.peer_cpu(peer, phase, &spent),
            Line::Request { place, request } => self.request(place, request),
        }
    }

    /// A sample of a figure: one of several of its machine, or the only one.
    fn figure(&mut self, figure: &str, value: f64) {
        let unit = unit_of(figure);
        let machine = if OF_BATCHES.contains(&figure) {
            Some(self.machines.last_served())
        } else if figure == READING {
            // It is read before a window, of the machine of the window before.
            self.cpu.last().map(|last| Machine::Of(last.place))
        } else {
            None
        };
        match machine {
            Some(machine) => self.machines.value(figure, unit, machine, value),
            None => self.samples.add(figure, unit, value),
        }
    }

    fn cpu(&mut self, sample: CpuSample) {
        let base = match sample.place.phase {
            Phase::Burst => Some("cpu_burst_pct"),
            Phase::Break | Phase::Idle => Some("cpu_idle_pct"),
            Phase::Steady => Some("cpu_1rps_pct"),
            _ => None,
        };
        let (place, arm, spent) = (sample.place, sample.place.arm, &sample.spent);
        let mut window = |figure, ns| self.machines.window(figure, place, ns, spent.wall_ns);
        if place.phase == Phase::Idle2Cpu {
            let figure = format!("{}.2cpu", arm.figure("cpu_idle_pct"));
            window(figure, spent.monitor_ns);
        }
        if let Some(base) = base {
            window(arm.figure(base), spent.monitor_ns);
            if arm == Arm::Tare {
                let helper = format!("passt_{base}");
                window(arm.figure(&helper), spent.helper_ns);
            }
        }
        self.cpu.push(sample);
    }

    /// CPU time of a request is of all threads of the monitor and of the network's process.
    fn carried(&mut self, arm: &str, answered: usize, seconds: f64, spent: &CpuSpent) {
        let rate = answered as f64 / seconds;
        self.figure(&format!("rps_max.{arm}"), rate);
        if answered > 0 {
            let us = (spent.monitor_ns + spent.helper_ns) as f64 / 1e3 / answered as f64;
            self.figure(&format!("cpu_us_per_request.{arm}"), us);
        }
    }

    fn peer_cpu(&mut self, peer: Peer, phase: Phase, spent: &CpuSpent) {
        let base = match phase {
            Phase::Burst => "cpu_burst_pct",
            _ => "cpu_idle_pct",
        };
        let (own, helper) = (spent.monitor_pct(), spent.helper_pct());
        self.figure(&peer.figure(base), own);
        if peer == Peer::Ring3 || peer == Peer::Ring0 {
            let base = format!("passt_{base}");
            self.figure(&peer.figure(&base), helper);
        }
    }

    /// Failed requests are counted and have no latency.
    fn request(&mut self, place: SamplePosition, request: Request) {
        let (all, failed) = self.requests.entry(place).or_default();
        *all += 1;
        if let Some(failure) = request.failure {
            *failed.entry(failure).or_default() += 1;
        } else if place.phase == Phase::Burst {
            let cycles = self.latencies.entry(place.arm).or_default();
            let latencies = cycles.entry(place.cycle).or_default();
            latencies.push(request.latency_ns() as f64 / 1000.0);
        }
    }

    /// A sentence for each phase in which requests failed.
    pub(crate) fn failures(&self) -> Vec<String> {
        let requests = self.requests.iter();
        let sentences =
            requests.filter_map(|(place, (all, failed))| sentence(*place, *all, failed));
        sentences.chain(self.peer_failures.clone()).collect()
    }

    /// Latencies of an arm's bursts, us, a group for each machine.
    pub(crate) fn latencies(&self, arm: Arm) -> Vec<Vec<f64>> {
        let cycles = self.latencies.get(&arm);
        cycles.map_or_else(Vec::new, |cycles| cycles.values().cloned().collect())
    }

    /// The median latency of each machine of an arm, us.
    pub(crate) fn median_latencies(&self, arm: Arm) -> Vec<f64> {
        let machines = self.latencies(arm);
        let summaries = machines.iter().filter_map(|it| tare_stats::summarize(it));
        summaries.map(|summary| summary.median).collect()
    }

    /// All figures, those of a kind together.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let mut figures = self.samples.figures();
        figures.extend(self.machines.figures());
        without_error(&mut figures, &self.samples, |name| name == IMAGE_BYTES);
        for (name, windows) in &self.events {
            figures.extend(rate(name, "1/s", &by_machine(windows)));
        }
        for arm in Arm::ALL {
            for (base, q) in LATENCIES {
                let name = arm.figure(base);
                figures.extend(grouped_quantile(&name, "us", &self.latencies(arm), q));
            }
        }
        figures.sort_by_key(|f| (rank(&f.name), arm_rank(&f.name)));
        figures
    }
}

/// Events and time of each machine, which is what repeats; of one machine those of its windows.
fn by_machine(windows: &[(Option<SamplePosition>, f64, f64)]) -> Vec<(f64, f64)> {
    let mut machines: BTreeMap<Option<SamplePosition>, (f64, f64)> = BTreeMap::new();
    for (machine, events, seconds) in windows {
        let sums = machines.entry(*machine).or_default();
        *sums = (sums.0 + events, sums.1 + seconds);
    }
    if machines.len() > 1 {
        return machines.into_values().collect();
    }
    let windows = windows.iter();
    windows
        .map(|(_, events, seconds)| (*events, *seconds))
        .collect()
}

/// The unit of a figure.
fn unit_of(figure: &str) -> &'static str {
    of_figure(METRICS, figure).map_or("", |metric| metric.unit)
}

/// The first metrics, whose figures are read in this order; those of the others follow.
const RANKED: usize = 20;

fn rank(name: &str) -> usize {
    let place = METRICS.iter().position(|metric| metric.is_of(name));
    place.map_or(RANKED, |place| place.min(RANKED))
}

fn arm_rank(name: &str) -> (usize, usize) {
    let mut parts = name.split('.').skip(1);
    let arm = parts.next().unwrap_or_default();
    let mut all = Side::ALL
        .map(Side::name)
        .into_iter()
        .take(2)
        .chain(Arm::ALL.map(Arm::name));
    let place = all.position(|name| name == arm);
    (parts.count(), place.unwrap_or(usize::MAX))
}

/// A sentence about requests that failed; `None` if all were answered.
fn sentence(
    place: SamplePosition,
    all: usize,
    failed: &BTreeMap<Failure, usize>,
) -> Option<String> {
    let count: usize = failed.values().sum();
    let kinds: Vec<String> = failed
        .iter()
        .map(|(kind, n)| format!("{n} {kind}"))
        .collect();
    (count > 0).then(|| {
        format!(
            "{count} of {all} requests ({:?}, {}, cycle {}): {}",
            place.phase,
            place.arm.name(),
            place.cycle + 1,
            kinds.join(", ")
        )
    })
}
