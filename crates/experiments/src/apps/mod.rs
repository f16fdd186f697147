//! Which packaging weighs least for which application: memcached, redis and nginx from
//! Debian's packages, a Go and an axum server, or the user's own, each as a bare process, in
//! containers, on the library OS and in a Linux guest. All have the same files, command and load.
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
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tare_control::sentence::chain;
use tare_control::stats::Kvm;
use tare_lab::kit::{
    Bench, Data, Depth, Entry, Experiment, Figure, Goal, IfFails, Make, Metric, Record, ReportText,
    RunError, Turn, WeighError, has_data, metrics, needed, rate, replanned, replanned_ms, rounds,
    times, without_error,
};
use tare_load::interrupt::Interrupt;
use tare_load::requests::{Connections, Exchange, Generator, failed, latencies_us};
use tare_machines::appliance::{Appliance, ApplianceError, ServerKind};
use tare_machines::linux::catalog::{self, App};
use tare_machines::linux::dialog::ask;
use tare_machines::linux::own_app::{OwnApp, OwnLoad};
use tare_machines::linux::{LinuxError, kernels};
use tare_machines::observe::counters::{activity_between, seconds_between};
use tare_rootfs::Cache;
use tare_tailor::cut::Cut;
use tare_tailor::lock::sha256_of_file;

use self::arms::{Arm, CONTAINER, LINUX_TCG, PROCESS, TAILORED_TCG, TARE, TARE_TCG};
use self::services::{Load, SERVICES, Service, catalogued, is_data_file, recorded};
use super::full_speed::carried;

metrics! {
    PER_S: more("app_per_s", "1/s");
    P50: less("app_p50_us", "us");
    P99: less("app_p99_us", "us");
    CPU_PER_REQUEST: less("app_cpu_us_per_request", "us");
    CPU_IDLE: less("app_cpu_idle_pct", "%");
    IDLE_EXITS: less("app_idle_exits_per_s", "1/s");
    MEMORY: less("app_memory_mib", "MiB");
    FIRST_ANSWER: less("app_first_answer_ms", "ms");
    IMAGE: less("app_image_bytes", "bytes");
    RATE_RATIO: more("app_rate_ratio", "1");
    TIMES_SLOWER: less("app_times_slower", "1");
    OVER_LINUX: more("app_over_linux", "1");
    TAILORED_OVER_LINUX: more("app_tailored_over_linux", "1");
    MEMORY_BEYOND: less("app_memory_beyond_mib", "MiB");
}

/// Connections under load.
const CONNECTIONS: usize = 8;
/// For the connections to open, before a load is measured.
const WARM_UP: Duration = Duration::from_millis(100);
/// The usual time from the end of the load to the idle window.
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

/// The experiment.
pub(super) const ENTRY: Entry = Entry {
    name: "apps",
    about: "memcached, redis, nginx, Go, axum: process, container, Tare, Linux; what weighs least",
    metrics: METRICS,
    goals: GOALS,
    make: Make::Other(|depth| Options::default().planned(depth)),
};

/// Its options.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The applications to measure: names, or data files of the user's ([`OwnApp`]). All of the
    /// catalog, if there are none.
    pub apps: Vec<String>,
    /// Names of the packagings to measure; all, if there are none.
    pub packagings: Vec<String>,
    /// Kernels of Linux guests: name of an application, file; `None` is the one that `tailor`
    /// built for it.
    pub kernels: Vec<(String, Option<PathBuf>)>,
}

impl Options {
    /// Names of its applications.
    pub fn applications() -> Vec<&'static str> {
        services::names()
    }

    /// Names of its packagings.
    pub fn packagings() -> Vec<&'static str> {
        arms::ALL.map(|arm| arm.name).to_vec()
    }

    /// The experiment with these options.
    pub fn planned(self, depth: Depth) -> Box<dyn Experiment> {
        Box::new(Apps {
            options: self,
            ..Apps::new(depth)
        })
    }
}

/// The experiment and what it has measured.
pub(crate) struct Apps {
    options: Options,
    depth: Depth,
    cycles: usize,
    /// Of these, cycles in which arms in QEMU's translator have their turn.
    translated: usize,
    /// One request after the other.
    alone: Duration,
    /// As much as the server carries.
    load: Duration,
    /// From the end of the load to the idle window.
    settle: Duration,
    idle: Duration,
    /// The applications to measure.
    services: Vec<Service>,
    /// The packagings to measure.
    arms: Vec<Arm>,
    /// Kernels that were tailored to applications, by their names.
    kernels: BTreeMap<String, PathBuf>,
    /// SHA-256 of these files.
    digests: BTreeMap<String, String>,
    /// Applications whose files are there, by their place in `services`.
    ready: BTreeMap<usize, Ready>,
    data: Data,
    /// Exits and time of each idle window, by figure.
    windows: BTreeMap<String, Vec<(f64, f64)>>,
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
    fn value(&mut self, metric: Metric, of: &str, value: f64) {
        self.values.insert(metric.of(of), value);
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
    app: App,
    bytes: u64,
}

impl Apps {
    /// Planned for a depth.
    pub(crate) fn new(depth: Depth) -> Self {
        let (cycles, translated, alone_ms, load_ms, idle_ms) = depth.of([
            (2, 1, 400, 600, 1_500),
            (6, 6, 500, 1_000, 3_000),
            (12, 12, 1_000, 3_000, 10_000),
        ]);
        Self {
            options: Options::default(),
            depth,
            cycles,
            translated,
            alone: Duration::from_millis(alone_ms),
            load: Duration::from_millis(load_ms),
            settle: SETTLE,
            idle: Duration::from_millis(idle_ms),
            services: SERVICES.to_vec(),
            arms: arms::ALL.to_vec(),
            kernels: BTreeMap::new(),
            digests: BTreeMap::new(),
            ready: BTreeMap::new(),
            data: Data::default(),
            windows: BTreeMap::new(),
        }
    }

    /// Measures only these applications: names, or data files.
    fn choose(&mut self, apps: &[String]) -> Result<(), WeighError> {
        let refused = |why: String| WeighError::Option(format!("--app {why}"));
        let mut services: Vec<Service> = Vec::new();
        for app in apps {
            let service = if is_data_file(app) {
                let own = OwnApp::read(Path::new(app));
                let OwnApp { app, loads } = own.map_err(|error| refused(chain(&error)))?;
                Service::own(&app.name.clone(), &loads, Some(app))
            } else {
                catalogued(app).map_err(refused)?.clone()
            };
            match services.iter().find(|it| it.name == service.name) {
                Some(_) if service.own.is_some() => {
                    let name = &service.name;
                    return Err(refused(format!("{app}: two data files are named {name}")));
                }
                Some(_) => {}
                None => services.push(service),
            }
        }
        if !services.is_empty() {
            self.services = services;
        }
        Ok(())
    }

    /// Takes a kernel for one of the applications.
    fn take_kernel(&mut self, name: &str, file: Option<PathBuf>) -> Result<(), WeighError> {
        let refused = |why: String| WeighError::Option(format!("--kernel {name}: {why}"));
        let Some(service) = self.services.iter().find(|it| it.name == name) else {
            return Err(match catalogued(name) {
                Ok(_) => refused("the application is not measured: add --app".to_owned()),
                Err(why) => WeighError::Option(format!("--kernel {why}")),
            });
        };
        let file = match file {
            Some(file) => file,
            None if service.own.is_some() => {
                return Err(refused(format!("add its file: {name}=FILE")));
            }
            None => built(name).map_err(|error| refused(chain(&error)))?,
        };
        let file = fs::canonicalize(&file)
            .map_err(|error| refused(format!("cannot read {}: {error}", file.display())))?;
        let digest = sha256_of_file(&file).map_err(|error| refused(chain(&error)))?;
        self.digests.insert(name.to_owned(), digest);
        match self.kernels.insert(name.to_owned(), file) {
            None => Ok(()),
            Some(_) => Err(refused("given twice".to_owned())),
        }
    }

    /// Gets an application's files.
    fn bring(&mut self, bench: &mut Bench<'_>, place: usize) -> Result<(), RunError> {
        let service = &self.services[place];
        let mut app = service.app()?;
        app.kernel = self.kernels.get(&*service.name).cloned();
        let mut boot = Boot {
            app: service.name.to_string(),
            arm: "all packagings".to_owned(),
            ..Boot::default()
        };
        match bench.executor.bring(&app) {
            Ok(bytes) => {
                bench
                    .recorder
                    .versions_of(bench.executor.versions_of(&app))?;
                self.ready.insert(place, Ready { app, bytes });
                return Ok(());
            }
            Err(error) => boot.broken = missing(Err(error.into()))?,
        }
        bench.recorder.sample(&boot)?;
        self.take(&boot);
        Ok(())
    }

    fn boot(
        &self,
        bench: &mut Bench<'_>,
        (service, ready): (&Service, &Ready),
        arm: Arm,
        boot: &mut Boot,
    ) -> Result<(), RunError> {
        let (app, name) = (&ready.app, &*service.name);
        let mut server = bench.executor.start(ServerKind::App(app, arm.packaging))?;
        let first = first_answer(server.as_mut(), app, bench.interrupt)?;
        boot.value(FIRST_ANSWER, name, first.as_secs_f64() * 1e3);
        if let Some(added) = server.image_bytes() {
            boot.value(IMAGE, name, (ready.bytes + added) as f64);
        }
        for load in service.loads.iter() {
            let exchange = match load.exchange(app, server.address()) {
                Ok(exchange) => exchange,
                Err(why) => {
                    boot.failures.push(why);
                    continue;
                }
            };
            self.alone(bench, server.as_mut(), load, exchange.clone(), boot)?;
            let at_once = load.at_once(app);
            let exchange = exchange.pipelined(at_once);
            self.loaded(bench, server.as_mut(), (load, at_once), exchange, boot)?;
        }
        self.idle(bench, server.as_mut(), boot)?;
        if let Some(bytes) = server.resident_bytes() {
            let mib = bytes as f64 / f64::from(1 << 20);
            boot.value(MEMORY, name, mib);
        }
        Ok(())
    }

    /// One request after the other on one connection: how long an answer takes.
    fn alone(
        &self,
        bench: &Bench<'_>,
        server: &mut dyn Appliance,
        load: &Load,
        exchange: Exchange,
        boot: &mut Boot,
    ) -> Result<(), RunError> {
        let mut generator = generator(server, exchange, 1);
        let asked = carried(server, &mut generator, (1, self.alone), bench.interrupt)?;
        let asked = asked.requests;
        boot.failures
            .extend(failed(&asked, &format!("failed ({})", load.about)));
        if let Some(sorted) = tare_stats::sorted(&latencies_us(&asked)) {
            let quantile = |q| tare_stats::quantile(&sorted, q);
            boot.value(P50, &load.name, quantile(0.5));
            if sorted.len() >= needed(0.99) {
                boot.value(P99, &load.name, quantile(0.99));
            }
        }
        Ok(())
    }

    /// As much as the server carries: its rate, and the CPU time of a request.
    fn loaded(
        &self,
        bench: &Bench<'_>,
        server: &mut dyn Appliance,
        (load, at_once): (&Load, usize),
        exchange: Exchange,
        boot: &mut Boot,
    ) -> Result<(), RunError> {
        let mut generator = generator(server, exchange, CONNECTIONS);
        let mut ask = |time| carried(server, &mut generator, (CONNECTIONS, time), bench.interrupt);
        ask(WARM_UP)?;
        let asked = ask(self.load)?;
        boot.failures
            .extend(failed(&asked.requests, &format!("failed ({})", load.about)));
        let answered = (asked.answered * at_once) as f64;
        if answered > 0.0 {
            boot.value(PER_S, &load.name, answered / asked.seconds);
            let us = (asked.spent.monitor_ns + asked.spent.helper_ns) as f64 / 1e3;
            boot.value(CPU_PER_REQUEST, &load.name, us / answered);
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
        bench.interrupt.sleep(self.settle)?;
        let from = server.stats()?;
        bench.interrupt.sleep(GUARD)?;
        let before = server.cpu()?;
        bench.interrupt.sleep(self.idle)?;
        let spent = server.cpu()?.since(&before);
        let share = spent.monitor_pct() + spent.helper_pct();
        let name = boot.app.clone();
        boot.value(CPU_IDLE, &name, share);
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
            let figure = format!("{figure}.{arm}");
            self.data.samples.add_of(METRICS, &figure, *value);
        }
        if let Some(window) = boot.idle {
            let name = IDLE_EXITS.of(&format!("{}.{arm}", boot.app));
            self.windows.entry(name).or_default().push(window);
        }
        // A packaging that is not installed is not a failure; one of Tare's that fails is.
        let broken = boot.broken.as_ref().filter(|_| *arm == TARE.name);
        let failed = boot.failures.iter().chain(broken);
        let sentences = failed.map(|why| format!("{}: {why}", boot.place()));
        self.data.failures.extend(sentences);
        self.data.unavailable(&boot.place(), boot.broken.clone());
    }

    /// A figure of one arm over another's, in pairs of cycles.
    fn ratio(&self, metric: Metric, arm: &str, load: &str, arms: [Arm; 2]) -> Option<Figure> {
        let arms = arms.map(|arm| arm.name);
        metric.paired(arm, &self.data.samples.ratios(&PER_S.of(load), arms))
    }

    /// Ratios of rates of a load.
    fn ratios(&self, load: &str) -> Vec<Figure> {
        let others = arms::ALL.into_iter().filter(|arm| *arm != PROCESS);
        let over_process = others.filter_map(|arm| {
            let name = format!("{load}.{}", arm.name);
            self.ratio(RATE_RATIO, &name, load, [arm, PROCESS])
        });
        let mut all: Vec<Figure> = over_process.collect();
        all.extend(self.ratio(TIMES_SLOWER, load, load, [self.reference(load), TARE]));
        all.extend(self.ratio(OVER_LINUX, load, load, [TARE_TCG, LINUX_TCG]));
        all.extend(self.ratio(TAILORED_OVER_LINUX, load, load, [TAILORED_TCG, LINUX_TCG]));
        all
    }

    /// What Tare's rate is held against: the container's, else the bare process's.
    fn reference(&self, load: &str) -> Arm {
        let container = format!("{load}.{}", CONTAINER.name);
        match self.data.samples.values(&PER_S.of(&container)) {
            [] => PROCESS,
            _ => CONTAINER,
        }
    }

    /// Memory of a machine of Tare beyond the bare process's, in pairs of cycles.
    fn beyond(&self, app: &str) -> Option<Figure> {
        let arms = [TARE, PROCESS].map(|arm| arm.name);
        let pairs = self.data.samples.pairs(&MEMORY.of(app), arms);
        let beyond: Vec<f64> = pairs.iter().map(|(tare, process)| tare - process).collect();
        MEMORY_BEYOND.median(app, &beyond)
    }

    /// Loads of the user's applications, by their names.
    fn own_loads(&self) -> BTreeMap<&str, Vec<OwnLoad>> {
        let services = self.services.iter();
        let own = services.filter_map(|it| Some((&*it.name, it.own_loads()?)));
        own.collect()
    }

    /// What a boot of an arm is planned to take, if it is measured everywhere.
    fn planned_boot(&self, service: &Service, arm: Arm) -> Duration {
        let loaded = times(self.alone + WARM_UP + self.load, service.loads.len());
        let boot = START + loaded + self.settle + self.idle;
        if !arm.is_measured_everywhere() {
            return Duration::ZERO;
        }
        let translated = arm.is_translated().then_some(TRANSLATED_START);
        boot + translated.unwrap_or_default()
    }
}

/// The kernel with the default cuts that `tare weigh tailor` built for an application.
fn built(name: &str) -> Result<PathBuf, LinuxError> {
    let (app, cache) = (catalog::find(name)?, Cache::open_default()?);
    kernels::kept_for(&app, name, &Cut::by_default(), &cache).map(|kernel| kernel.image)
}

/// Why an arm gave no samples; interruptions and errors of other parts are passed on.
fn missing(result: Result<(), RunError>) -> Result<Option<String>, RunError> {
    let error = match result {
        Ok(()) => return Ok(None),
        Err(RunError::Appliance(error)) => error,
        Err(error) => return Err(error),
    };
    let Some(program) = error.not_installed() else {
        return Ok(Some(chain(&error)));
    };
    let source = match program.as_str() {
        "runsc" => "https://gvisor.dev/docs/user_guide/install",
        _ => "scripts/setup.sh weigh installs it",
    };
    Ok(Some(format!("{program} is not installed ({source})")))
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
        if let Ok(answer) = answer {
            if app.passes(&answer) {
                return Ok(after);
            }
            if let Some([asked, answer]) = app.refusal(&answer) {
                return Err(ApplianceError::Answers { answer, asked }.into());
            }
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

impl Experiment for Apps {
    has_data!();

    fn configure(&mut self) -> Result<(), WeighError> {
        let Options {
            apps,
            packagings,
            kernels,
        } = std::mem::take(&mut self.options);
        self.choose(&apps)?;
        if !packagings.is_empty() {
            self.arms = arms::named(&packagings)
                .map_err(|why| WeighError::Option(format!("--packaging {why}")))?;
        }
        let mut kernels = kernels.into_iter();
        kernels.try_for_each(|(name, file)| self.take_kernel(&name, file))
    }

    fn plan(&self) -> Value {
        json!({
            "depth": self.depth.name(), "cycles": self.cycles, "translated": self.translated,
            "alone_ms": self.alone.as_millis() as u64, "load_ms": self.load.as_millis() as u64,
            "idle_ms": self.idle.as_millis() as u64, "connections": CONNECTIONS,
            "pipelined": services::PIPELINED, "apps": self.services.iter().map(|it| &it.name).collect::<Vec<_>>(),
            "arms": self.arms.iter().map(|arm| arm.name).collect::<Vec<_>>(),
            "kernels": self.digests, "own": self.own_loads(),
        })
    }

    fn replan(&mut self, plan: &Value) {
        replanned(plan, "cycles", &mut self.cycles);
        replanned(plan, "translated", &mut self.translated);
        let recorded = recorded(plan);
        if !recorded.is_empty() {
            self.services = recorded;
        }
        // Earlier versions measured on none.
        let digests = plan.get("kernels").map(BTreeMap::deserialize);
        self.digests = digests.and_then(Result::ok).unwrap_or_default();
        replanned_ms(plan, "alone_ms", &mut self.alone);
        replanned_ms(plan, "load_ms", &mut self.load);
        replanned_ms(plan, "idle_ms", &mut self.idle);
    }

    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        // A line of another form is not a sample.
        let boots = record
            .of("boot")
            .filter_map(|line| Boot::deserialize(line).ok());
        boots.for_each(|boot| self.take(&boot));
        Ok(())
    }

    /// The files of each application; then, of each application, the packagings in turn.
    fn turns(&self) -> Vec<Turn> {
        let files = self.services.iter().enumerate().map(|(place, service)| {
            let step = format!("files of {}", service.name);
            let turn = Turn::new(place, &service.name, Duration::ZERO);
            Turn { step, ..turn }
        });
        let turn = |place: usize, arm: usize, cycle| {
            let (service, arm) = (&self.services[place], self.arms[arm]);
            let label = self::place(&service.name, arm.name);
            let planned = self.planned_boot(service, arm);
            let index = self.services.len() + place * arms::ALL.len() + arm.place();
            let turn = Turn::new(index, &label, planned).if_fails(IfFails::Drop);
            let has_kernel = self.kernels.contains_key(&*service.name);
            let is_due = !arm.is_translated() || cycle < self.translated;
            (is_due && (has_kernel || !arm.needs_kernel())).then_some(turn)
        };
        let blocks = vec![self.arms.len(); self.services.len()];
        let boots = rounds(self.cycles, &blocks, 1, turn);
        files.chain(boots).collect()
    }

    /// One boot of an arm, and what it gave.
    fn take_turn(&mut self, bench: &mut Bench<'_>, turn: &Turn) -> Result<(), RunError> {
        let Some(place) = turn.index.checked_sub(self.services.len()) else {
            return self.bring(bench, turn.index);
        };
        let (place, arm) = (place / arms::ALL.len(), arms::ALL[place % arms::ALL.len()]);
        let Some(ready) = self.ready.get(&place) else {
            return Ok(());
        };
        let service = &self.services[place];
        let mut boot = Boot {
            app: service.name.to_string(),
            arm: arm.name.to_owned(),
            cycle: turn.round,
            ..Boot::default()
        };
        boot.broken = match arm.obstacle(self.data.kvm) {
            Some(obstacle) => Some(obstacle.to_owned()),
            None => missing(self.boot(bench, (service, ready), arm, &mut boot))?,
        };
        bench.recorder.sample(&boot)?;
        self.take(&boot);
        Ok(())
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = self.data.samples.figures();
        let is_size = |name: &str| name.starts_with(IMAGE.name);
        without_error(&mut figures, &self.data.samples, is_size);
        for (name, windows) in &self.windows {
            figures.extend(rate(name, IDLE_EXITS.unit, windows));
        }
        for service in &self.services {
            let loads = service.loads.iter();
            figures.extend(loads.flat_map(|load| self.ratios(&load.name)));
            figures.extend(self.beyond(&service.name));
        }
        figures.sort_by(|a, b| a.name.cmp(&b.name));
        figures
    }

    fn report(&self, figures: &[Figure]) -> ReportText {
        report::report_text(self, figures)
    }
}
