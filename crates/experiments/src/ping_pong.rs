//! Two threads that answer each other, in several places: what `events` and
//! `tcp-rr` have in common. A [`PingPongSpec`] says what they exchange and where, a
//! [`PingPong`] is one planned weighing of it.
//!
//! Arms in rotated order, a new machine for each turn.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tare_control::stats::Kvm;
use tare_lab::kit::{
    Bench, Data, Depth, Experiment, Figure, Metric, ReportText, RunError, Template, Turn, has_data,
    replanned, rounds, times,
};
use tare_machines::appliance::{GuestSpec, LinuxGuest};

use super::guest_bench::{self, Arm, ArmRound, RunsIn, numbers};

/// What QEMU's firmware takes under emulation.
const FIRMWARE: Duration = Duration::from_secs(6);
/// Exits that come less often in an exchange are the machine's, not its own.
const RARE: f64 = 0.02;

/// What is exchanged, and where.
pub(crate) struct PingPongSpec {
    /// Name of the image and of the experiment.
    pub(crate) image: &'static str,
    /// The image's word for how many exchanges there are.
    pub(crate) word: &'static str,
    /// Turns of an arm, and exchanges in a turn, by depth.
    pub(crate) sizes: [(usize, usize); 3],
    /// What a turn is planned to take beside its exchanges.
    pub(crate) turn: Duration,
    /// What an exchange is planned to take.
    pub(crate) each: Duration,
    /// Where.
    pub(crate) arms: &'static [Arm],
    /// In the image's lines: lists of times, in cycles.
    pub(crate) times: &'static str,
    /// The distribution that they become, in us.
    pub(crate) series: &'static str,
    /// Its quantiles that are figures.
    pub(crate) quantiles: [(Metric, f64); 2],
    /// In the line of counters: of how many exchanges they are.
    pub(crate) number: &'static str,
    /// The counters that are given for each, with metric and what its figure has before the arm.
    pub(crate) counters: &'static [(&'static str, Metric, &'static str)],
    /// KVM's statistics that are given for each.
    pub(crate) of_kvm: &'static [(&'static str, Metric, &'static str)],
    /// How many the image does before those that it counts: KVM counts them.
    pub(crate) warm_up: f64,
    /// The same on the host: times in ns of a number of exchanges on a number of CPUs.
    pub(crate) host: fn(usize, usize) -> io::Result<Vec<f64>>,
    /// The program beside `tare` that Linux guests run, if there are any.
    pub(crate) program: Option<&'static str>,
    /// Exits by kind, if the machines are watched for them.
    pub(crate) exits: Option<Metric>,
    /// What it measures.
    pub(crate) metrics: &'static [Metric],
    /// What they say.
    pub(crate) report: fn(&PingPong, &[Figure]) -> ReportText,
}

/// A planned weighing and what it has measured.
pub(crate) struct PingPong {
    pub(crate) kind: &'static PingPongSpec,
    pub(crate) depth: Depth,
    pub(crate) image: String,
    pub(crate) turns: usize,
    pub(crate) exchanges: usize,
    pub(crate) data: Data,
}

/// Part of a counter's figure: the arm, without the name that it has beside others' times.
pub(crate) fn suffix(arm: &Arm) -> &'static str {
    arm.name.strip_suffix(".libos").unwrap_or(arm.name)
}

fn joined(kind: &str, arm: &Arm) -> String {
    match kind {
        "" => suffix(arm).to_owned(),
        kind => format!("{kind}.{}", suffix(arm)),
    }
}

impl PingPong {
    /// Planned for a depth; the image may be another than Tare's own.
    pub(crate) fn new(kind: &'static PingPongSpec, depth: Depth, image: Option<String>) -> Self {
        let (turns, exchanges) = depth.of(kind.sizes);
        Self {
            kind,
            depth,
            image: image.unwrap_or_else(|| kind.image.to_owned()),
            turns,
            exchanges,
            data: Data::default(),
        }
    }

    /// A report's text with the plan's values.
    pub(crate) fn text<'a>(&self, markdown: &str, figures: &'a [Figure]) -> Template<'a> {
        Template::new(markdown, self.kind.metrics, figures)
            .set("image", &self.image)
            .set("turns", self.turns)
            .set("exchanges", self.exchanges)
    }

    /// The times of all arms as a chart.
    pub(crate) fn percentiles(&self, description: &str) -> String {
        let names: Vec<_> = self.kind.arms.iter().map(|arm| arm.name).collect();
        self.data.percentiles(self.kind.series, &names, description)
    }

    fn cmdline(&self) -> String {
        format!("{}={} hold", self.kind.word, self.exchanges)
    }

    /// The host's two threads on their own Linux kernel.
    fn linux(&mut self, bench: &mut Bench<'_>, arm: &Arm, round: usize) -> Result<(), RunError> {
        let root = tempfile::tempdir().map_err(RunError::Root)?;
        let spec = arm.machine(round, &self.image, &self.cmdline());
        let program = match self.kind.program {
            Some(program) => bench.executor.fill(root.path(), program)?,
            None => String::new(),
        };
        let numbers = [self.exchanges, spec.cpus.into()].map(|it: usize| it.to_string());
        let linux = LinuxGuest {
            kernel: Some("debian"),
            root: root.path().to_owned(),
            command: [program].into_iter().chain(numbers).collect(),
        };
        let spec = GuestSpec {
            // Its own loop takes no longer than a host's where it is not translated.
            engine: match self.data.kvm {
                Kvm::Hardware => "qemu-kvm",
                Kvm::Emulated | Kvm::None => "qemu",
            },
            linux: Some(linux),
            ..spec
        };
        self.guest(bench, arm, arm.round(round), &spec)
    }

    /// Runs a machine and keeps what it said.
    fn guest(
        &mut self,
        bench: &mut Bench<'_>,
        arm: &Arm,
        place: ArmRound,
        spec: &GuestSpec,
    ) -> Result<(), RunError> {
        let kind = self.kind;
        let (mut cycles, mut khz, mut counters) = (Vec::new(), None, None);
        let snapshots = guest_bench::run(bench, place, spec, |record| {
            cycles.extend(numbers(record, kind.times));
            khz = khz.or(record.get("khz").and_then(Value::as_f64));
            if record.get(kind.number).is_some() {
                counters = Some(record.clone());
            }
        })?;
        let us = 1e3 / khz.unwrap_or(f64::NAN);
        let us = cycles
            .iter()
            .map(|cycles| cycles * us)
            .filter(|us| us.is_finite());
        self.data.extend(kind.series, arm.name, us);
        let begin = snapshots.begin.as_ref();
        if let Some(end) = &snapshots.end {
            self.data.count(arm.name, begin, end);
        }
        let of = |name: &str| counters.as_ref()?.get(name)?.as_f64();
        let Some(number) = of(kind.number).filter(|number| *number > 0.0) else {
            return Ok(());
        };
        for (counter, metric, what) in kind.counters {
            if let Some(value) = of(counter) {
                let samples = &mut self.data.samples;
                samples.put(*metric, &joined(what, arm), value / number);
            }
        }
        if let Some(end) = &snapshots.end {
            let mut turn = Data::default();
            turn.count(arm.name, begin, end);
            for (statistic, metric, what) in kind.of_kvm {
                if let Some(value) = turn.counter(arm.name, statistic) {
                    let each = value / (number + kind.warm_up);
                    self.data.samples.put(*metric, &joined(what, arm), each);
                }
            }
        }
        Ok(())
    }

    /// A turn under watch: exits by kind.
    fn watch(&mut self, bench: &mut Bench<'_>, arm: &Arm, metric: Metric) -> Result<(), RunError> {
        let cmdline = format!("{} {}", self.cmdline(), guest_bench::PAUSE);
        let spec = arm.machine(self.turns, &self.image, &cmdline);
        let Some(account) = guest_bench::watch(bench, arm.round(self.turns), &spec)? else {
            let why = "exits by kind: nothing was seen from outside";
            self.data.unavailable(arm.name, Some(why.to_owned()));
            return Ok(());
        };
        let number = self.exchanges as f64 + self.kind.warm_up;
        for (kind, count) in guest_bench::exits(&account) {
            let each = count as f64 / number;
            if each >= RARE {
                self.data.samples.put(metric, &joined(&kind, arm), each);
            }
        }
        Ok(())
    }

    /// What a turn of an arm is planned to take.
    fn planned_turn(&self, arm: &Arm) -> Duration {
        let exchanges = times(self.kind.each, self.exchanges);
        match arm.runs_in {
            RunsIn::Tare(_) => self.kind.turn + exchanges,
            RunsIn::Linux { .. } => FIRMWARE + self.kind.turn,
            RunsIn::Qemu(_) => FIRMWARE + self.kind.turn + exchanges,
            // Takes next to nothing.
            RunsIn::Host { .. } => Duration::ZERO,
        }
    }

    /// Where the counter or KVM's statistic that a figure is of stands.
    fn rank(&self, figure: &Figure) -> usize {
        let all = self.kind.counters.iter().chain(self.kind.of_kvm);
        let mut begins = all.map(|(_, metric, what)| match *what {
            "" => format!("{}.", metric.name),
            what => format!("{}.{what}.", metric.name),
        });
        let found = begins.position(|begin| figure.name.starts_with(&begin));
        found.unwrap_or(usize::MAX)
    }
}

impl Experiment for PingPong {
    has_data!();

    fn plan(&self) -> Value {
        let arms: Vec<_> = self.kind.arms.iter().map(|arm| arm.about).collect();
        json!({
            "depth": self.depth.name(), "image": self.image, "turns": self.turns,
            self.kind.word: self.exchanges, "arms": arms,
        })
    }

    fn replan(&mut self, plan: &Value) {
        replanned(plan, "turns", &mut self.turns);
        replanned(plan, self.kind.word, &mut self.exchanges);
    }

    /// Of each arm, then those under watch.
    fn turns(&self) -> Vec<Turn> {
        let arms = self.kind.arms;
        let turn = |_, index: usize, round| {
            let arm: &Arm = &arms[index];
            let turn = Turn::new(index, arm.name, self.planned_turn(arm)).if_fails(arm.if_fails());
            (round < arm.turns(self.turns)).then_some(turn)
        };
        let mut turns = rounds(self.turns, &[arms.len()], 1, turn);
        let watched = arms
            .iter()
            .enumerate()
            .filter(|(_, arm)| self.kind.exits.is_some() && matches!(arm.runs_in, RunsIn::Tare(_)))
            .filter(|(_, arm)| !arm.is_in_ring_3());
        turns.extend(watched.map(|(index, arm)| Turn {
            round: self.turns,
            step: format!("exits by kind: {}", arm.about),
            ..Turn::new(index, arm.name, Duration::ZERO)
        }));
        turns
    }

    fn take_turn(&mut self, bench: &mut Bench<'_>, turn: &Turn) -> Result<(), RunError> {
        let arm = &self.kind.arms[turn.index];
        if arm.is_in_ring_3() && !bench.executor.has(arm.name) {
            return Ok(());
        }
        let place = arm.round(turn.round);
        match (arm.runs_in, self.kind.exits) {
            (RunsIn::Tare(_), Some(exits)) if turn.round == self.turns => {
                self.watch(bench, arm, exits)
            }
            (RunsIn::Tare(_) | RunsIn::Qemu(_), _) => {
                let spec = arm.machine(turn.round, &self.image, &self.cmdline());
                self.guest(bench, arm, place, &spec)
            }
            (RunsIn::Linux { .. }, _) => self.linux(bench, arm, turn.round),
            (RunsIn::Host { cpus }, _) => {
                let measure = || (self.kind.host)(self.exchanges, cpus);
                let ns = guest_bench::on_host(bench, place, "exchange_ns", measure)?;
                let us = ns.into_iter().map(|ns| ns / 1e3);
                self.data.extend(self.kind.series, arm.name, us);
                Ok(())
            }
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (metric, q) in self.kind.quantiles {
            figures.extend(self.kind.arms.iter().filter_map(|arm| {
                let times = self.data.groups(self.kind.series, arm.name);
                metric.quantile(arm.name, times, q)
            }));
        }
        let mut counted = self.data.samples.figures();
        counted.sort_by_key(|figure| self.rank(figure));
        figures.extend(counted);
        figures
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        (self.kind.report)(self, figures)
    }
}
