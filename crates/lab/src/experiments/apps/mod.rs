//! Which packaging weighs least for which application: memcached, redis and nginx from
//! Debian's packages, each as a bare process, in containers, on the library OS and in a Linux
//! guest. All have the same files, command and load.
//!
//! ```text
//! services  the applications and their loads
//! arms      the packagings
//! report    tables: application by packaging, and what weighs least
//! ```
//!
//! The sample is the boot: each arm has its turn in each cycle, in rotated order, and one
//! server is alive at a time. What a boot gave is one line of the record.

mod arms;
mod report;
mod services;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tare_control::sentence::chain;
use tare_control::stats::Kvm;

use self::arms::Arm;
use self::services::{Load, SERVICES, Service};
use super::guest_bench::{self, Data};
use crate::appliance::{Appliance, ApplianceError};
use crate::bench::{Bench, RunError};
use crate::experiment::Experiment;
use crate::figure::{Figure, exact, median, needed, paired_ratio, rate};
use crate::goal::Goal;
use crate::interrupt::Interrupt;
use crate::linux::catalog::{self, App};
use crate::linux::dialog::ask;
use crate::load::{Connections, Exchange, Generator, Request, Schedule};
use crate::observe::counters::{activity_between, seconds_between};
use crate::replay::Record;
use crate::report::ReportText;
use crate::request::Depth;

/// Connections under load.
const CONNECTIONS: usize = 8;
/// For the connections to open, before a load is measured.
const WARM_UP: Duration = Duration::from_millis(100);
/// From the end of the load to the idle window.
const SETTLE: Duration = Duration::from_secs(1);
/// For the trace of a request for statistics to end.
const GUARD: Duration = Duration::from_millis(20);
/// A request without an answer for this long has failed.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time from the start to the first right answer; QEMU's translator takes its time.
const BOOT: Duration = Duration::from_secs(60);
/// What starting is planned to take, and in the translator.
const START: Duration = Duration::from_millis(400);
const TRANSLATED_START: Duration = Duration::from_secs(6);
/// Between tries of the first request, and between looks whether the server is alive.
const TRY: Duration = Duration::from_millis(2);
const LOOK: Duration = Duration::from_millis(200);
/// Limits of a try: a forwarder may take a connection that the server never sees.
const TRY_LIMITS: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(2)];

/// Tare's rate at least half of the container's, nginx' 0.4; exits of redis with one timer a
/// second; the first answer; memory beyond the process's own.
const GOALS: &[Goal] = &[
    Goal::on_any_kvm("app_times_slower.redis_get", 2.0),
    Goal::on_any_kvm("app_times_slower.redis_set", 2.0),
    Goal::on_any_kvm("app_times_slower.nginx_get", 2.5),
    Goal::on_any_kvm("app_idle_exits_per_s.redis.tare", 3.0),
    Goal::on_any_kvm("app_first_answer_ms.memcached.tare", 150.0),
    Goal::on_any_kvm("app_first_answer_ms.redis.tare", 150.0),
    Goal::on_any_kvm("app_first_answer_ms.nginx.tare", 150.0),
    Goal::on_any_kvm("app_memory_beyond_mib.memcached", 6.0),
    Goal::on_any_kvm("app_memory_beyond_mib.redis", 6.0),
    Goal::on_any_kvm("app_memory_beyond_mib.nginx", 6.0),
];

/// The experiment and what it has measured.
pub(crate) struct Apps {
    depth: Depth,
    cycles: usize,
    /// Of these, cycles in which arms in QEMU's translator have their turn.
    translated: usize,
    /// One request after the other.
    alone: Duration,
    /// As much as the server carries.
    load: Duration,
    idle: Duration,
    data: Data,
    /// Exits and time of each idle window, by figure.
    windows: BTreeMap<String, Vec<(f64, f64)>>,
    failures: Vec<String>,
}

/// What one boot gave: a line of the record.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(tag = "sample", rename = "boot")]
struct Boot {
    app: String,
    arm: String,
    cycle: usize,
    /// What executed it, where there are statistics.
    #[serde(default)]
    kvm: Kvm,
    /// By figure, without the arm.
    #[serde(default)]
    values: BTreeMap<String, f64>,
    /// Exits, halts and interrupts in the idle window, and its seconds.
    #[serde(default)]
    idle: Option<(f64, f64)>,
    /// Requests that failed, a sentence for each load.
    #[serde(default)]
    failures: Vec<String>,
    /// Why the rest is missing.
    #[serde(default)]
    broken: Option<String>,
}

impl Boot {
    fn value(&mut self, figure: &str, of: &str, value: f64) {
        self.values.insert(format!("{figure}.{of}"), value);
    }

    /// Of which packaging of which application.
    fn place(&self) -> String {
        place(&self.app, &self.arm)
    }
}

fn place(app: &str, arm: &str) -> String {
    format!("{app}, {arm}")
}

/// An application whose files are there.
struct Ready {
    service: &'static Service,
    app: App,
    bytes: u64,
}

impl Apps {
    /// Planned for a depth.
    pub(crate) fn new(depth: Depth) -> Self {
        let (cycles, translated, alone_ms, load_ms, idle_ms) = match depth {
            Depth::Quick => (2, 1, 400, 600, 1_500),
            Depth::Standard => (6, 6, 500, 1_000, 3_000),
            Depth::Full => (12, 12, 1_000, 3_000, 10_000),
        };
        Self {
            depth,
            cycles,
            translated,
            alone: Duration::from_millis(alone_ms),
            load: Duration::from_millis(load_ms),
            idle: Duration::from_millis(idle_ms),
            data: Data::default(),
            windows: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// Gets an application's files; `None` where they are not available.
    fn ready(
        &mut self,
        bench: &mut Bench<'_>,
        service: &'static Service,
    ) -> Result<Option<Ready>, RunError> {
        bench.progress.step(&format!("files of {}", service.name));
        let mut app = catalog::find(service.name)?;
        app.command
            .extend(service.words.iter().map(|word| (*word).to_owned()));
        let error = match bench.executor.bring(&app) {
            Ok(bytes) => {
                return Ok(Some(Ready {
                    service,
                    app,
                    bytes,
                }));
            }
            Err(error) => error,
        };
        let boot = Boot {
            app: service.name.to_owned(),
            arm: "all packagings".to_owned(),
            broken: missing(Err(error.into()))?,
            ..Boot::default()
        };
        bench.recorder.sample(&boot)?;
        self.take(&boot);
        Ok(None)
    }

    /// One boot of an arm, and what it gave.
    fn turn(
        &mut self,
        bench: &mut Bench<'_>,
        ready: &Ready,
        arm: Arm,
        cycle: usize,
    ) -> Result<(), RunError> {
        let mut boot = Boot {
            app: ready.service.name.to_owned(),
            arm: arm.name().to_owned(),
            cycle,
            ..Boot::default()
        };
        boot.broken = match arm.obstacle(self.data.kvm) {
            Some(obstacle) => Some(obstacle.to_owned()),
            None => missing(self.boot(bench, ready, arm, &mut boot))?,
        };
        bench.recorder.sample(&boot)?;
        bench.recorder.flush()?;
        self.take(&boot);
        Ok(())
    }

    fn boot(
        &self,
        bench: &mut Bench<'_>,
        ready: &Ready,
        arm: Arm,
        boot: &mut Boot,
    ) -> Result<(), RunError> {
        let (app, name) = (&ready.app, ready.service.name);
        let mut server = bench.executor.package(app, arm.packaging())?;
        let first = first_answer(server.as_mut(), app, bench.interrupt)?;
        boot.value("app_first_answer_ms", name, first.as_secs_f64() * 1e3);
        if let Some(added) = server.image_bytes() {
            boot.value("app_image_bytes", name, (ready.bytes + added) as f64);
        }
        for load in ready.service.loads {
            self.alone(bench, server.as_mut(), app, load, boot)?;
            self.loaded(bench, server.as_mut(), app, load, boot)?;
        }
        self.idle(bench, server.as_mut(), boot)?;
        if let Some(bytes) = server.resident_bytes() {
            let mib = bytes as f64 / f64::from(1 << 20);
            boot.value("app_memory_mib", name, mib);
        }
        Ok(())
    }

    /// One request after the other on one connection: how long an answer takes.
    fn alone(
        &self,
        bench: &Bench<'_>,
        server: &mut dyn Appliance,
        app: &App,
        load: &Load,
        boot: &mut Boot,
    ) -> Result<(), RunError> {
        let exchange = load.exchange(app, server.address());
        let mut generator = generator(server, exchange, 1);
        let asked = generator.run(closed(1, self.alone), bench.interrupt)?;
        boot.failures.extend(failure(load, &asked));
        let right = asked.iter().filter(|request| request.failure.is_none());
        let us = right.map(|request| request.latency_ns() as f64 / 1e3);
        if let Some(sorted) = tare_stats::sorted(&us.collect::<Vec<_>>()) {
            let quantile = |q| tare_stats::quantile(&sorted, q);
            boot.value("app_p50_us", load.name, quantile(0.5));
            if sorted.len() >= needed(0.99) {
                boot.value("app_p99_us", load.name, quantile(0.99));
            }
        }
        Ok(())
    }

    /// As much as the server carries: its rate, and the CPU time of a request.
    fn loaded(
        &self,
        bench: &Bench<'_>,
        server: &mut dyn Appliance,
        app: &App,
        load: &Load,
        boot: &mut Boot,
    ) -> Result<(), RunError> {
        let at_once = load.at_once(app);
        let exchange = load.exchange(app, server.address()).pipelined(at_once);
        let mut generator = generator(server, exchange, CONNECTIONS);
        generator.run(closed(CONNECTIONS, WARM_UP), bench.interrupt)?;
        let (cpu, begin) = (server.cpu()?, Instant::now());
        let asked = generator.run(closed(CONNECTIONS, self.load), bench.interrupt)?;
        let seconds = begin.elapsed().as_secs_f64();
        let spent = server.cpu()?.since(&cpu);
        boot.failures.extend(failure(load, &asked));
        let right = asked.iter().filter(|request| request.failure.is_none());
        let answered = (right.count() * at_once) as f64;
        if answered > 0.0 {
            boot.value("app_per_s", load.name, answered / seconds);
            let us = (spent.monitor_ns + spent.helper_ns) as f64 / 1e3;
            boot.value("app_cpu_us_per_request", load.name, us / answered);
        }
        Ok(())
    }

    /// No requests: CPU time read from outside, exits from statistics before and after.
    fn idle(
        &self,
        bench: &Bench<'_>,
        server: &mut dyn Appliance,
        boot: &mut Boot,
    ) -> Result<(), RunError> {
        bench.interrupt.sleep(SETTLE)?;
        let from = server.stats()?;
        bench.interrupt.sleep(GUARD)?;
        let before = server.cpu()?;
        bench.interrupt.sleep(self.idle)?;
        let spent = server.cpu()?.since(&before);
        let share = spent.monitor_pct() + spent.helper_pct();
        let name = boot.app.clone();
        boot.value("app_cpu_idle_pct", &name, share);
        if let (Some(from), Some(to)) = (from, server.stats()?) {
            boot.kvm = to.kvm;
            let exits = activity_between(&from, &to);
            boot.idle = Some((exits, seconds_between(&from, &to)));
        }
        Ok(())
    }

    /// Takes what a boot gave, measured now or read from a record.
    fn take(&mut self, boot: &Boot) {
        let arm = &boot.arm;
        if boot.kvm != Kvm::None {
            self.data.kvm = boot.kvm;
        }
        self.data.samples.enter_round(boot.cycle);
        for (figure, value) in &boot.values {
            let unit = unit_of(figure);
            let name = format!("{figure}.{arm}");
            self.data.samples.add(&name, unit, *value);
        }
        if let Some(window) = boot.idle {
            let name = format!("app_idle_exits_per_s.{}.{arm}", boot.app);
            self.windows.entry(name).or_default().push(window);
        }
        let failed = boot.failures.iter();
        let sentences = failed.map(|why| format!("{}: {why}", boot.place()));
        self.failures.extend(sentences);
        // A packaging that is not installed is not a failure; one of Tare's that fails is.
        let broken = boot.broken.as_ref().filter(|_| *arm == Arm::Tare.name());
        self.failures
            .extend(broken.map(|why| format!("{}: {why}", boot.place())));
        self.data.unavailable(&boot.place(), boot.broken.clone());
    }

    fn is_missing(&self, app: &str, arm: Arm) -> bool {
        let begin = format!("{}: ", place(app, arm.name()));
        self.data.missing.iter().any(|it| it.starts_with(&begin))
    }

    /// A figure of one arm over another's, in pairs of cycles.
    fn ratio(&self, name: &str, of: &str, [over, under]: [Arm; 2]) -> Option<Figure> {
        let pairs = self.data.samples.pairs(of, [over.name(), under.name()]);
        let ratios: Vec<f64> = pairs.iter().map(|(over, under)| over / under).collect();
        paired_ratio(name, "1", &ratios)
    }

    /// Ratios of rates of a load.
    fn ratios(&self, load: &str) -> Vec<Figure> {
        let of = format!("app_per_s.{load}");
        let others = Arm::ALL.into_iter().filter(|arm| *arm != Arm::Process);
        let over_process = others.filter_map(|arm| {
            let name = format!("app_rate_ratio.{load}.{}", arm.name());
            self.ratio(&name, &of, [arm, Arm::Process])
        });
        let mut all: Vec<Figure> = over_process.collect();
        let slower = format!("app_times_slower.{load}");
        all.extend(self.ratio(&slower, &of, [self.reference(load), Arm::Tare]));
        let over_linux = format!("app_over_linux.{load}");
        all.extend(self.ratio(&over_linux, &of, [Arm::TareTcg, Arm::LinuxTcg]));
        all
    }

    /// What Tare's rate is held against: the container's, else the bare process's.
    fn reference(&self, load: &str) -> Arm {
        let of = |arm: Arm| format!("app_per_s.{load}.{}", arm.name());
        match self.data.samples.values(&of(Arm::Container)) {
            [] => Arm::Process,
            _ => Arm::Container,
        }
    }

    /// Memory of a machine of Tare beyond the bare process's, in pairs of cycles.
    fn beyond(&self, app: &str) -> Option<Figure> {
        let arms = [Arm::Tare, Arm::Process].map(Arm::name);
        let pairs = self
            .data
            .samples
            .pairs(&format!("app_memory_mib.{app}"), arms);
        let beyond: Vec<f64> = pairs.iter().map(|(tare, process)| tare - process).collect();
        median(&format!("app_memory_beyond_mib.{app}"), "MiB", &beyond)
    }
}

/// Why an arm gave nothing; an interruption and what is not its own is passed on.
fn missing(result: Result<(), RunError>) -> Result<Option<String>, RunError> {
    Ok(match result {
        Ok(()) => None,
        Err(RunError::Appliance(ApplianceError::Execute { path, source }))
            if source.kind() == ErrorKind::NotFound =>
        {
            let path = path.display();
            let source = match path.to_string().as_str() {
                "runsc" => "https://gvisor.dev/docs/user_guide/install",
                _ => "scripts/setup.sh weigh installs it",
            };
            Some(format!("{path} is not installed ({source})"))
        }
        Err(RunError::Appliance(error)) => Some(chain(&error)),
        Err(error) => return Err(error),
    })
}

/// From the start to the first right answer. Machines do not report when an application
/// serves, so the first request is sent until an answer comes.
fn first_answer(
    server: &mut dyn Appliance,
    app: &App,
    interrupt: &Interrupt,
) -> Result<Duration, RunError> {
    let [shortest, longest] = TRY_LIMITS;
    let mut looked = Instant::now();
    loop {
        interrupt.check()?;
        let limit = (server.started().elapsed() / 8).clamp(shortest, longest);
        let answer = ask(server.address(), limit, app.check.send.as_bytes());
        let after = server.started().elapsed();
        if answer.is_ok_and(|answer| app.passes(&answer)) {
            return Ok(after);
        }
        if looked.elapsed() > LOOK {
            server.cpu()?;
            looked = Instant::now();
        }
        if after > BOOT {
            return Err(ApplianceError::NotServing(BOOT).into());
        }
        interrupt.sleep(TRY)?;
    }
}

fn generator(server: &dyn Appliance, exchange: Exchange, connections: usize) -> Generator {
    let mode = Connections::KeepAlive(connections);
    Generator::of(server.address(), vec![exchange], mode, TIMEOUT)
}

/// The next request when one has been answered, for this time.
fn closed(concurrency: usize, until: Duration) -> Schedule {
    Schedule::Closed {
        concurrency,
        until,
        count: usize::MAX,
    }
}

/// A sentence about requests that failed.
fn failure(load: &Load, asked: &[Request]) -> Option<String> {
    let mut failed = asked.iter().filter_map(|request| request.failure);
    let first = failed.next()?;
    let (count, all, about) = (failed.count() + 1, asked.len(), load.about);
    Some(format!(
        "{count} of {all} failed ({about}), the first: {first}"
    ))
}

/// The unit of a figure of a boot.
fn unit_of(figure: &str) -> &'static str {
    match figure.split('.').next() {
        Some("app_per_s") => "1/s",
        Some("app_p50_us" | "app_p99_us" | "app_cpu_us_per_request") => "us",
        Some("app_cpu_idle_pct") => "%",
        Some("app_memory_mib") => "MiB",
        Some("app_first_answer_ms") => "ms",
        Some("app_image_bytes") => "bytes",
        _ => "1",
    }
}

impl Experiment for Apps {
    fn planned(&self) -> Duration {
        let times = |time: Duration, n: usize| time * u32::try_from(n).unwrap_or(u32::MAX);
        let loads: usize = SERVICES.iter().map(|service| service.loads.len()).sum();
        let loaded = times(self.alone + WARM_UP + self.load, loads);
        let rest = times(START + SETTLE + self.idle, SERVICES.len());
        let started = times(TRANSLATED_START, SERVICES.len());
        let of = |is_translated: bool| {
            let arms = Arm::ALL.into_iter();
            arms.filter(|arm| arm.is_measured_everywhere() && arm.is_translated() == is_translated)
                .count()
        };
        times(loaded + rest, of(false) * self.cycles)
            + times(loaded + rest + started, of(true) * self.translated)
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "cycles": self.cycles, "translated": self.translated,
            "alone_ms": self.alone.as_millis() as u64, "load_ms": self.load.as_millis() as u64,
            "idle_ms": self.idle.as_millis() as u64, "connections": CONNECTIONS,
            "pipelined": services::PIPELINED, "apps": SERVICES.each_ref().map(|it| it.name),
            "arms": Arm::ALL.map(Arm::name),
        })
    }

    fn replan(&mut self, plan: &Value) {
        let number = |name: &str| plan.get(name).and_then(Value::as_u64);
        let ms = |name: &str| number(name).map(Duration::from_millis);
        let count = |name: &str| -> Option<usize> { number(name)?.try_into().ok() };
        self.cycles = count("cycles").unwrap_or(self.cycles);
        self.translated = count("translated").unwrap_or(self.translated);
        self.alone = ms("alone_ms").unwrap_or(self.alone);
        self.load = ms("load_ms").unwrap_or(self.load);
        self.idle = ms("idle_ms").unwrap_or(self.idle);
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        // A line of another form is not a sample.
        let boots = record
            .of("boot")
            .filter_map(|line| Boot::deserialize(line).ok());
        boots.for_each(|boot| self.take(&boot));
        Ok(())
    }

    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        let mut all = Vec::new();
        for service in &SERVICES {
            all.extend(self.ready(bench, service)?);
        }
        for cycle in 0..self.cycles {
            for ready in &all {
                let name = ready.service.name;
                for arm in guest_bench::rotated(&Arm::ALL, cycle) {
                    let is_over = arm.is_translated() && cycle >= self.translated;
                    if is_over || self.is_missing(name, arm) {
                        continue;
                    }
                    let what = place(name, arm.name());
                    guest_bench::announce(bench, cycle, self.cycles, &what);
                    let begin = Instant::now();
                    self.turn(bench, ready, arm, cycle)?;
                    bench.progress.done(begin.elapsed());
                }
            }
        }
        Ok(())
    }

    fn kvm(&self) -> Kvm {
        self.data.kvm
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = self.data.samples.figures();
        for figure in &mut figures {
            let samples = self.data.samples.values(&figure.name);
            let size = exact(&figure.name, "bytes", samples);
            if let Some(size) = size.filter(|_| figure.name.starts_with("app_image_bytes")) {
                *figure = size;
            }
        }
        for (name, windows) in &self.windows {
            figures.extend(rate(name, "1/s", windows));
        }
        for service in &SERVICES {
            let loads = service.loads.iter();
            figures.extend(loads.flat_map(|load| self.ratios(load.name)));
            figures.extend(self.beyond(service.name));
        }
        figures.sort_by(|a, b| a.name.cmp(&b.name));
        figures
    }

    fn goals(&self) -> &'static [Goal] {
        GOALS
    }

    fn failures(&self) -> Vec<String> {
        self.failures.clone()
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
