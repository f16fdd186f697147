//! The observer: sources that stay open, and an account at each turn.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::cost::{Cost, Due, Measured};
use super::counts::{Counts, Tallies};
use super::events::Loaded;
use super::gate::{Counting, Gate, Limits, Programs};
use super::ledger::Spent;
use super::scale::{Counted, Scale};
use super::threads::{Depth, Others};
use super::watched::{Host, Outside, Watched};
use super::weighted::Sample;
use super::{classes, events, host, slices, taps, tasks};
use crate::bpf::{Object, Point, RunTimes};
use crate::clock::{monotonic_ns, thread_cpu_ns};
use crate::proc;
use crate::proc::cpuset;
use crate::proc::quota::{Groups, Mounts};
use crate::vm::{self, Descriptors, Vm};
use crate::{Source, Unavailable};
use tare_account::{Account, Cpuset, ObserverCost, Quota, ThreadAccount};

/// Share of a core that looks at threads within a window may cost.
const LOOKS_SHARE: f64 = 0.003;
/// Shortest time between two of them.
const LOOK: Duration = Duration::from_millis(250);

/// Share of a burst's calls from which a program is detached after it.
const HOT: f64 = 0.05;

/// The account of the first window costs this many times its first readings.
const ACCOUNT: u64 = 2;
/// Interrupts per second of unknown owners that change no conclusion.
const FEW_HZ: f64 = 20.0;

/// Observes virtual machines until it is dropped.
#[derive(Debug)]
pub struct Observer {
    object: Option<Object>,
    /// Where its programs are attached.
    points: Vec<Point<'static>>,
    /// Runs of each until this burst began.
    runs: RunTimes,
    bpf: Option<Cost>,
    gate: Gate,
    unavailable: Vec<Unavailable>,
    emulated: bool,
    groups: Groups,
    watched: Vec<Watched>,
    /// How threads are read.
    threads: Reader,
    /// When the window began, and what had been counted then.
    began: Snapshot,
    lost: u64,
    /// When threads may be looked at again.
    next_look: Instant,
    /// CPU time of the last turn, or what the readings before the first say of it: each window
    /// has one.
    turn_ns: u64,
}

/// How threads are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// The kernel's tasks, all in one reading.
    Tasks,
    /// The files of each.
    Files,
}

/// What is read at the end of a window, where the next one begins.
#[derive(Debug)]
struct Snapshot {
    at: Instant,
    counts: Tallies,
    own_cpu_ns: u64,
}

impl Observer {
    /// Opens every source that this host offers. The first window begins now. A storm
    /// of events is sampled.
    pub fn start(vms: &[Vm]) -> Self {
        Self::within(vms, Limits::default())
    }

    /// The same, with a choice.
    pub fn counting(vms: &[Vm], counting: Counting) -> Self {
        let limits = Limits {
            counting,
            ..Limits::default()
        };
        Self::within(vms, limits)
    }

    /// The same within other limits.
    pub fn within(vms: &[Vm], limits: Limits) -> Self {
        let watched = watched(&vms.iter().collect::<Vec<_>>());
        let entries = limits.owners.map(|owners| (tasks::OWNERS, owners));
        let Loaded {
            mut object,
            points,
            missing: mut unavailable,
        } = events::load(vms, entries.as_slice());
        let bpf = object
            .is_some()
            .then(Cost::start)
            .and_then(|bpf| bpf.map_err(|why| unavailable.push(why)).ok());
        let iterator = object.as_mut().map(tasks::load);
        let threads = match iterator {
            Some(Ok(())) => Reader::Tasks,
            other => {
                unavailable.extend(other.and_then(Result::err));
                Reader::Files
            }
        };
        let mut observer = Self {
            points,
            runs: RunTimes::default(),
            bpf,
            gate: Gate::new(limits, slices::tick_ns(), monotonic_ns()),
            unavailable,
            emulated: !proc::has_hardware_virtualisation(),
            groups: Groups::new(),
            watched: Vec::new(),
            threads,
            // Nothing is counted yet.
            began: Snapshot::of(Tallies::default()),
            lost: 0,
            next_look: Instant::now() + LOOK,
            turn_ns: 0,
            object,
        };
        let cpu_ns = thread_cpu_ns();
        observer.begin_with(watched);
        observer.began = Snapshot::of(observer.tallies());
        observer.turn_ns = thread_cpu_ns().saturating_sub(cpu_ns) * ACCOUNT;
        let before = observer.look();
        observer.begin_costs();
        // What threads did while all of this was read is not of the window.
        observer.begin_threads(0);
        if let Some(object) = &mut observer.object {
            observer.gate.open(object, before, monotonic_ns());
        }
        observer.began.own_cpu_ns = thread_cpu_ns();
        observer.began.at = Instant::now();
        observer
    }

    /// Observes these from now on: keeps those that it knows, forgets others. The window
    /// of one that is new begins now.
    pub fn follow(&mut self, vms: &[Vm]) {
        let same = |a: &Vm, b: &Vm| a.pid == b.pid && a.started_ticks == b.started_ticks;
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.watched)
            .into_iter()
            .partition(|watched| vms.iter().any(|vm| same(vm, &watched.vm)));
        self.watched = kept;
        for watched in &gone {
            self.forget(watched);
        }
        if let (Some(object), false) = (&mut self.object, gone.is_empty()) {
            // There may be room now.
            let unowned = self.watched.iter_mut();
            for watched in unowned.filter(|watched| watched.unowned.is_some()) {
                watched.own_tasks(object);
            }
        }
        self.join(vms);
    }

    /// Observes these too from now on.
    pub fn join(&mut self, vms: &[Vm]) {
        let same = |a: &Vm, b: &Vm| a.pid == b.pid && a.started_ticks == b.started_ticks;
        let is_new = |vm: &&Vm| !self.watched.iter().any(|watched| same(vm, &watched.vm));
        let new: Vec<&Vm> = vms.iter().filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        if let Some(object) = &mut self.object {
            let known = new.iter().map(|vm| events::watch(object, vm.pid));
            self.unavailable.extend(known.filter_map(Result::err));
        }
        let first = self.watched.len();
        self.begin_with(watched(&new));
        self.begin_threads(first);
        for watched in &mut self.watched[first..] {
            watched.since = Some(Instant::now());
        }
        self.gate.end_rest();
    }

    /// Time until [`Self::refresh`] is due: soon while everything is counted, since a storm
    /// may begin, and seldom while the programs cost what is known.
    pub fn next_refresh(&self) -> Duration {
        match self.bpf {
            Some(_) => self.gate.next_look(monotonic_ns()),
            None => LOOK,
        }
    }

    /// How often programs were attached again for a burst, in a storm.
    pub fn bursts(&self) -> u64 {
        self.gate.bursts()
    }

    /// Whether no observed machine lived any more when threads were last looked at.
    pub fn all_ended(&self) -> bool {
        self.watched.iter().all(Watched::has_ended)
    }

    /// Adapts the sampling of events, and reads the threads' times, so that those which
    /// end are accounted until now. Threads are read so rarely that it costs no more than
    /// a small share of a core, however many there are.
    pub fn refresh(&mut self) {
        self.look_at_cost();
        if Instant::now() < self.next_look {
            return;
        }
        let cpu_ns = thread_cpu_ns();
        self.read(0, Depth::Times);
        let spent = Duration::from_nanos(thread_cpu_ns().saturating_sub(cpu_ns));
        self.next_look = Instant::now() + LOOK.max(spent.div_f64(LOOKS_SHARE));
    }

    /// One account for each machine since the last turn, in the order of their
    /// following. The next window begins where this one ends.
    pub fn turn(&mut self) -> Vec<Account> {
        let cpu_ns = thread_cpu_ns();
        if let Some(object) = &mut self.object {
            self.gate.freeze(object, monotonic_ns());
        }
        self.read(0, Depth::Whole);
        let quotas = self.quotas();
        let (at, until_ns) = (Instant::now(), monotonic_ns());
        self.look();
        let now = Snapshot {
            at,
            ..Snapshot::of(self.tallies())
        };
        let sample = |since: Instant| self.sample(at.saturating_duration_since(since), until_ns);
        let whole = sample(self.began.at);
        let since = self.watched.iter().map(|watched| watched.since);
        let samples: Vec<Sample> = since.map(|since| since.map_or(whole, sample)).collect();
        let run_ns = self.gate.run_ns();
        let programs = self.bpf.as_ref().map(Cost::total);
        self.begin_costs();
        let began = std::mem::replace(&mut self.began, now);
        let mut added = self.began.counts.since(&began.counts).by_process();
        let window = self.began.at.saturating_duration_since(began.at);
        let strangers = added
            .remove(&0)
            .unwrap_or_default()
            .scaled(&Scale::by_clock(whole));
        let outside = self.outside(window, strangers);
        let lost = self.newly_lost();
        let host = Host {
            cpus: proc::online_cpus(),
            emulated: self.emulated,
        };
        let interfaces = taps::read();
        let mut accounts = Vec::new();
        // Without programs nothing was counted.
        let has_programs = self.object.is_some();
        let watched = self.watched.iter_mut().zip(samples).zip(quotas);
        for ((watched, sample), quotas) in watched {
            let counted_share = if has_programs { sample.share() } else { 0.0 };
            let since = watched.since.unwrap_or(began.at);
            let counts = added.remove(&watched.vm.pid).unwrap_or_default();
            let mut scale = Scale::by_clock(sample);
            if let Some(run_ns) = run_ns.filter(|_| counted_share < 1.0) {
                watched.scale(&mut scale, run_ns);
            }
            let counts = counts.scaled(&scale);
            let mut account = watched.account(counts, &outside, self.object.as_ref(), host);
            account.window_ns = nanoseconds(self.began.at.saturating_duration_since(since));
            account.counted_share = counted_share;
            account.quotas = quotas;
            account.cpusets = narrowing(&account, self.groups.mounts());
            account.network = watched.network(&interfaces);
            account
                .unavailable
                .splice(0..0, self.unavailable.iter().cloned());
            account.unavailable.extend(lost.clone());
            if self.threads == Reader::Tasks {
                account.unavailable.extend(watched.unowned.clone());
            }
            accounts.push(account);
            watched.begin(&interfaces);
        }
        name_preemptors(&mut accounts, &self.names());
        // What putting the accounts together took is a cost of this window.
        let now_ns = thread_cpu_ns();
        let cost = ObserverCost {
            user_space_ns: now_ns.saturating_sub(began.own_cpu_ns),
            bpf_ns: programs.map(|bpf| bpf.ns),
            bpf_runs: programs.map(|bpf| bpf.runs),
        };
        self.began.own_cpu_ns = now_ns;
        self.turn_ns = now_ns.saturating_sub(cpu_ns);
        let spent = Spent {
            own_ns: cost.user_space_ns,
            programs_ns: cost.bpf_ns.unwrap_or(0),
            account_ns: self.turn_ns,
        };
        self.gate.close_bill(monotonic_ns(), spent);
        accounts
            .iter_mut()
            .for_each(|account| account.observer = cost);
        accounts
    }

    /// What of this time until then was counted.
    fn sample(&self, ago: Duration, until_ns: u64) -> Sample {
        let object = self.object.as_ref();
        object.map_or_else(Sample::default, |object| {
            let since_ns = until_ns.saturating_sub(nanoseconds(ago));
            self.gate.sample(object, since_ns, until_ns)
        })
    }

    /// What the groups of each machine throttled since the last turn.
    fn quotas(&mut self) -> Vec<Vec<Quota>> {
        self.groups.turn();
        let groups = &mut self.groups;
        let watched = self.watched.iter_mut();
        watched.map(|watched| watched.quotas(groups)).collect()
    }

    /// What the programs have counted until now.
    fn tallies(&self) -> Tallies {
        let object = self.object.as_ref();
        object.map_or_else(Tallies::default, |object| {
            Tallies::read(object, &self.gate.slices(object, monotonic_ns()))
        })
    }

    /// Reads the threads of the machines from this one on.
    fn read(&mut self, first: usize, depth: Depth) {
        let at_ns = monotonic_ns();
        let tasks = match (&mut self.object, self.threads) {
            (Some(object), Reader::Tasks) => tasks::sweep(object),
            _ => Ok(HashMap::new()),
        };
        // An iterator that fails now is not tried again.
        if tasks.is_err() {
            self.threads = Reader::Files;
        }
        let mut tasks = tasks.unwrap_or_default();
        let Some(object) = &mut self.object else {
            for watched in &mut self.watched[first..] {
                watched.read(None, depth);
            }
            return;
        };
        let slices = self.gate.slices(object, monotonic_ns());
        let mut counted: Option<HashMap<u32, Counted>> = None;
        for watched in &mut self.watched[first..] {
            if self.threads == Reader::Tasks && watched.unowned.is_none() {
                let own = tasks.remove(&watched.vm.pid).unwrap_or_default();
                watched.take(&own, object, (depth, at_ns), &slices);
                continue;
            }
            watched.read(Some(&mut *object), depth);
            if depth == Depth::Whole {
                let counted = counted.get_or_insert_with(|| Counted::read(object));
                watched.counted(counted, &slices);
            }
        }
    }

    /// The windows of these begin now.
    fn begin_with(&mut self, new: Vec<Watched>) {
        let first = self.watched.len();
        self.watched.extend(new);
        if let Some(object) = &mut self.object {
            for watched in &mut self.watched[first..] {
                watched.own_tasks(object);
            }
        }
        self.read(first, Depth::Whole);
        let interfaces = taps::read();
        for watched in &mut self.watched[first..] {
            watched.begin(&interfaces);
        }
    }

    /// The times of these machines' threads and groups are counted from now on.
    fn begin_threads(&mut self, first: usize) {
        self.groups.turn();
        for watched in &mut self.watched[first..] {
            watched.begin_quotas(&mut self.groups);
        }
        self.read(first, Depth::Times);
        for watched in &mut self.watched[first..] {
            watched.begin_threads();
        }
    }

    fn look_at_cost(&mut self) {
        let (Some(bpf), Some(object)) = (&mut self.bpf, &mut self.object) else {
            return;
        };
        let due = self.gate.is_due(bpf.elapsed_ns(), monotonic_ns());
        let measured = bpf.look(object, Due::from(due));
        let spent = Spent {
            own_ns: thread_cpu_ns().saturating_sub(self.began.own_cpu_ns),
            programs_ns: bpf.total().ns,
            account_ns: self.turn_ns,
        };
        let now_ns = monotonic_ns();
        self.gate.charge(now_ns, spent);
        match self.gate.choose(object, measured, now_ns) {
            Programs::Stay => {}
            Programs::Attach => self.burst(),
            Programs::Detach => self.rest(),
        }
        if let (Some(bpf), Some(object)) = (&mut self.bpf, &self.object) {
            bpf.rest(object, self.gate.narrowed());
        }
    }

    /// Attaches the programs again, for a burst.
    fn burst(&mut self) {
        let cpu_ns = thread_cpu_ns();
        if let (Some(bpf), Some(object)) = (&mut self.bpf, &mut self.object) {
            let points: Vec<_> = self
                .points
                .iter()
                .copied()
                .filter(|point| !object.is_attached(point.function()))
                .collect();
            let refused = object.attach(&points);
            // No run so far is of this burst.
            bpf.look(object, Due::Yes);
            self.runs = bpf.runs().clone();
            if refused.is_empty() {
                self.gate.open_burst(object, monotonic_ns());
            } else {
                // What the others would count is not an account of the machine.
                object.detach(|function| points.iter().any(|point| point.function() == function));
                self.gate.put_off(monotonic_ns());
                self.unavailable.retain(|known| !refused.contains(known));
                self.unavailable.extend(refused);
            }
        }
        let spent_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        self.gate.switched(spent_ns);
    }

    /// Detaches those programs that most calls were of: each takes a change of the kernel's
    /// code, and the others' calls cost little.
    fn rest(&mut self) {
        let cpu_ns = thread_cpu_ns();
        if let (Some(bpf), Some(object)) = (&self.bpf, &mut self.object) {
            let burst = bpf.runs().since(&self.runs);
            let all = burst.sum(|_| true).runs as f64;
            object.detach(|function| {
                let runs = burst.sum(|program| program == function).runs;
                runs as f64 >= all * HOT
            });
        }
        let spent_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        self.gate.switched(spent_ns);
    }

    fn begin_costs(&mut self) {
        if let Some(bpf) = &mut self.bpf {
            bpf.begin();
        }
        if let Some(object) = &mut self.object {
            self.gate.begin(object, monotonic_ns());
        }
    }

    /// What the programs have cost until now is billed.
    fn look(&mut self) -> Option<Measured> {
        let (bpf, object) = (self.bpf.as_mut()?, self.object.as_ref()?);
        bpf.look(object, Due::Yes)
    }

    /// Names of the observed machines by process.
    fn names(&self) -> BTreeMap<u32, String> {
        let vms = self.watched.iter().map(|watched| &watched.vm);
        vms.map(|vm| (vm.pid, vm.name.clone())).collect()
    }

    fn forget(&mut self, watched: &Watched) {
        if let Some(object) = &mut self.object {
            watched.forget(object);
            self.began.counts.forget(watched.vm.pid);
        }
    }

    fn newly_lost(&mut self) -> Option<Unavailable> {
        let lost = self.object.as_ref().map_or(0, events::lost);
        let newly = lost.saturating_sub(self.lost);
        self.lost = lost;
        let why = format!("{newly} events were not counted: more kinds than the map holds");
        (newly > 0).then(|| Unavailable::named(Source::Bpf, "counts", why))
    }

    /// Interrupts by threads of no machine: they are this machine's only if it is
    /// the only one. A few change no conclusion.
    fn outside(&self, window: Duration, strangers: Counts) -> Outside {
        let interrupts = strangers.sum(classes::LINE).count;
        if interrupts as f64 <= FEW_HZ * window.as_secs_f64() {
            return Outside::Attributed(Counts::default());
        }
        let machines = match self.watched.len() {
            0 | 1 => vm::list().vms.len(),
            several => several,
        };
        match machines {
            0 | 1 => Outside::Attributed(strangers),
            _ => Outside::Ambiguous { interrupts },
        }
    }
}

/// The sources of these machines.
fn watched(vms: &[&Vm]) -> Vec<Watched> {
    let open: HashMap<u32, Descriptors> = vms
        .iter()
        .map(|vm| (vm.pid, Descriptors::of(vm.pid).unwrap_or_default()))
        .collect();
    let mut others: HashMap<u32, Others> = HashMap::new();
    for (pid, kernel) in host::kernel_threads() {
        others.entry(pid).or_default().kernel = kernel;
    }
    for (pid, helpers) in vm::helpers(vms, &open) {
        others.entry(pid).or_default().helpers = helpers;
    }
    let watched = |vm: &&Vm| {
        let others = others.remove(&vm.pid).unwrap_or_default();
        Watched::new(vm, others, &open[&vm.pid])
    };
    vms.iter().map(watched).collect()
}

impl Snapshot {
    /// Counts are those of the time until now.
    fn of(counts: Tallies) -> Self {
        Self {
            at: Instant::now(),
            counts,
            own_cpu_ns: thread_cpu_ns(),
        }
    }
}

/// The CPU sets that keep vCPUs from CPUs of the host.
fn narrowing(account: &Account, mounts: &Mounts) -> Vec<Cpuset> {
    let is_narrowed = |thread: &ThreadAccount| {
        let allowed = thread.allowed_cpus.len();
        allowed > 0 && allowed < account.host_cpus as usize
    };
    let vcpus = account.vcpus().map(|(thread, _)| thread);
    let narrowed: Vec<u32> = vcpus
        .filter(|thread| is_narrowed(thread))
        .map(|thread| thread.tid)
        .collect();
    if narrowed.is_empty() {
        return Vec::new();
    }
    cpuset::narrowing(&narrowed, &proc::online(), mounts)
}

/// Names the processes that had vCPUs' CPUs, and the machines that they run.
fn name_preemptors(accounts: &mut [Account], machines: &BTreeMap<u32, String>) {
    let mut names: HashMap<u32, Option<String>> = HashMap::new();
    let threads = accounts.iter_mut().flat_map(|account| &mut account.threads);
    for preemptor in threads.flat_map(|thread| &mut thread.off_cpu.preempted_by) {
        let name = names
            .entry(preemptor.pid)
            .or_insert_with_key(|pid| match pid {
                0 => Some("(idle)".to_owned()),
                pid => proc::comm(&proc::process(*pid)),
            });
        preemptor.process.clone_from(name);
        preemptor.machine = machines.get(&preemptor.pid).cloned();
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
