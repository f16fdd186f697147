//! The observer: sources that stay open, and an account at each turn.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::assemble::Parts;
use super::cost::Cost;
use super::counts::Counts;
use super::gate::{Counting, Gate};
use super::statistics::Statistics;
use super::threads::{Others, Threads};
use super::{classes, events, host, interrupts};
use crate::bpf::Object;
use crate::clock::{monotonic_ns, thread_cpu_ns};
use crate::proc;
use crate::proc::quota::{self, Group, Mounts};
use crate::vm::{self, Role, Vm};
use crate::{Source, Unavailable};
use tare_account::{Account, ObserverCost, Quota};

/// Share of a core that looks at threads within a window may cost.
const LOOKS_SHARE: f64 = 0.003;
/// Shortest time between two of them.
const LOOK: Duration = Duration::from_millis(250);

/// Time between looks at the cost in the first [`LOOK`] of a window: a storm that is counted
/// in full for 250 ms alone costs 0.5 % of a core over 4 s.
const FIRST_LOOKS: Duration = Duration::from_millis(25);

/// Time over which the cost of one reading of all threads is spread.
const SPREAD: Duration = Duration::from_secs(2);
/// Interrupts per second of unknown owners that change no conclusion.
const FEW_HZ: f64 = 20.0;

/// Observes virtual machines until it is dropped.
#[derive(Debug)]
pub struct Observer {
    object: Option<Object>,
    bpf: Option<Cost>,
    gate: Gate,
    unavailable: Vec<Unavailable>,
    emulated: bool,
    mounts: Mounts,
    watched: Vec<Watched>,
    /// When the window began, and what had been counted then.
    began: Snapshot,
    lost: u64,
    /// When threads may be looked at again.
    next_look: Instant,
    /// CPU time of one reading of all threads.
    reading_ns: u64,
}

/// What is read at the end of a window, where the next one begins.
#[derive(Debug)]
struct Snapshot {
    at: Instant,
    counts: Counts,
    own_cpu_ns: u64,
}

/// One machine's sources.
#[derive(Debug)]
struct Watched {
    vm: Vm,
    /// Where its window begins, if it was found after the others' began.
    since: Option<Instant>,
    others: Others,
    before: Threads,
    after: Threads,
    quotas: BTreeMap<PathBuf, Group>,
    overflowed: u64,
    statistics: Statistics,
}

impl Observer {
    /// Opens every source that this host offers. The first window begins now. A storm
    /// of events is sampled.
    pub fn start(vms: &[Vm]) -> Self {
        Self::counting(vms, Counting::default())
    }

    /// The same, with a choice.
    pub fn counting(vms: &[Vm], counting: Counting) -> Self {
        let mut others = others(&vms.iter().collect::<Vec<_>>());
        let mut watched: Vec<_> = vms
            .iter()
            .map(|vm| Watched::new(vm, others.remove(&vm.pid).unwrap_or_default()))
            .collect();
        let (mut object, mut unavailable) = events::load(vms);
        let bpf = object.is_some().then(Cost::start);
        let bpf = bpf.and_then(|bpf| bpf.map_err(|why| unavailable.push(why)).ok());
        let mounts = Mounts::read();
        let cpu_ns = thread_cpu_ns();
        for watched in &mut watched {
            watched.read(object.as_mut());
            watched.begin(&mounts);
        }
        let reading_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        let mut observer = Self {
            bpf,
            gate: Gate::new(counting),
            unavailable,
            emulated: !proc::has_hardware_virtualisation(),
            mounts,
            watched,
            began: Snapshot::now(object.as_ref()),
            lost: 0,
            next_look: Instant::now() + LOOK,
            reading_ns,
            object,
        };
        observer.begin_costs();
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
        for watched in gone {
            self.forget(&watched);
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
        let mut others = others(&new);
        for vm in new {
            self.add(vm, others.remove(&vm.pid).unwrap_or_default());
        }
    }

    /// Time until [`Self::refresh`] is due: soon after the begin, when the cost of the
    /// programs is not known yet, and seldom afterwards.
    pub fn next_refresh(&self) -> Duration {
        if self.began.at.elapsed() < LOOK {
            FIRST_LOOKS
        } else {
            LOOK
        }
    }

    /// Whether no observed machine lives any more.
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
        for watched in &mut self.watched {
            watched.glance(self.object.as_mut());
        }
        let spent = Duration::from_nanos(thread_cpu_ns().saturating_sub(cpu_ns));
        self.next_look = Instant::now() + LOOK.max(spent.div_f64(LOOKS_SHARE));
    }

    /// One account for each machine since the last turn, in the order of their
    /// following. The next window begins where this one ends.
    pub fn turn(&mut self) -> Vec<Account> {
        for watched in &mut self.watched {
            watched.read(self.object.as_mut());
        }
        self.look_at_cost();
        let now = Snapshot::now(self.object.as_ref());
        let counted_share = match &self.object {
            Some(object) => self.gate.share(object, monotonic_ns()),
            None => 0.0,
        };
        let cost = self.cost(&now);
        self.begin_costs();
        let began = std::mem::replace(&mut self.began, now);
        let added = self.began.counts.since(&began.counts);
        let mut added = added.scaled(counted_share).by_process();
        let window = self.began.at.saturating_duration_since(began.at);
        let outside = self.outside(window, added.remove(&0).unwrap_or_default());
        let names = self.names();
        let lost = self.newly_lost();
        let mut accounts = Vec::new();
        for watched in &mut self.watched {
            let since = watched.since.unwrap_or(began.at);
            let counts = added.remove(&watched.vm.pid).unwrap_or_default();
            let mut account =
                watched.account(counts, &outside, self.object.as_ref(), self.emulated);
            account.window_ns = nanoseconds(self.began.at.saturating_duration_since(since));
            account.counted_share = counted_share;
            account.observer = cost;
            account.quotas = watched.quotas(&self.mounts);
            account
                .unavailable
                .splice(0..0, self.unavailable.iter().cloned());
            account.unavailable.extend(lost.clone());
            name_preemptors(&mut account, &names);
            accounts.push(account);
            watched.begin(&self.mounts);
        }
        accounts
    }

    fn look_at_cost(&mut self) {
        let (Some(bpf), Some(object)) = (&mut self.bpf, &mut self.object) else {
            return;
        };
        if let Some(measured) = bpf.look(object) {
            let own_ns = thread_cpu_ns().saturating_sub(self.began.own_cpu_ns);
            let spread = self.began.at.elapsed().max(SPREAD);
            let own = (own_ns + self.reading_ns) as f64 / nanoseconds(spread) as f64;
            self.gate.choose(object, measured, own);
        }
        bpf.rest(self.gate.narrowed());
    }

    fn begin_costs(&mut self) {
        if let (Some(bpf), Some(object)) = (&mut self.bpf, &self.object) {
            bpf.begin(object);
        }
        self.gate.begin(monotonic_ns());
    }

    fn add(&mut self, vm: &Vm, others: Others) {
        if let Some(object) = &mut self.object
            && let Err(unavailable) = events::watch(object, vm.pid)
        {
            self.unavailable.push(unavailable);
        }
        let mut watched = Watched::new(vm, others);
        watched.read(self.object.as_mut());
        watched.begin(&self.mounts);
        watched.since = Some(Instant::now());
        self.watched.push(watched);
    }

    /// Names of the observed machines by process.
    fn names(&self) -> BTreeMap<u32, String> {
        let vms = self.watched.iter().map(|watched| &watched.vm);
        vms.map(|vm| (vm.pid, vm.name.clone())).collect()
    }

    fn forget(&mut self, watched: &Watched) {
        let Some(object) = &mut self.object else {
            return;
        };
        for tid in watched.after.readings.keys() {
            events::forget_thread(object, *tid);
        }
        events::forget(object, watched.vm.pid);
        self.began.counts.forget(watched.vm.pid);
    }

    fn cost(&self, now: &Snapshot) -> ObserverCost {
        let bpf = self.bpf.as_ref().map(Cost::total);
        ObserverCost {
            user_space_ns: now.own_cpu_ns.saturating_sub(self.began.own_cpu_ns),
            bpf_ns: bpf.map(|bpf| bpf.ns),
            bpf_runs: bpf.map(|bpf| bpf.runs),
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

/// Tasks that work for these machines, by the machine's process.
fn others(vms: &[&Vm]) -> HashMap<u32, Others> {
    let mut found: HashMap<u32, Others> = HashMap::new();
    for (pid, kernel) in host::kernel_threads() {
        found.entry(pid).or_default().kernel = kernel;
    }
    for (pid, helpers) in vm::helpers(vms) {
        found.entry(pid).or_default().helpers = helpers;
    }
    found
}

/// Interrupts by threads of no machine.
enum Outside {
    Attributed(Counts),
    Ambiguous { interrupts: u64 },
}

impl Snapshot {
    fn now(object: Option<&Object>) -> Self {
        let counts = object.map(Counts::read).unwrap_or_default();
        Self {
            at: Instant::now(),
            counts,
            own_cpu_ns: thread_cpu_ns(),
        }
    }
}

impl Watched {
    fn new(vm: &Vm, others: Others) -> Self {
        Self {
            vm: vm.clone(),
            since: None,
            others,
            before: Threads::default(),
            after: Threads::default(),
            quotas: BTreeMap::new(),
            overflowed: 0,
            statistics: Statistics::open(vm),
        }
    }

    fn has_ended(&self) -> bool {
        !vm::lives(&self.vm)
    }

    /// Reads all of its threads' files.
    fn read(&mut self, object: Option<&mut Object>) {
        if !self.has_ended() {
            let gone = self.after.read(&self.vm, &self.others);
            self.name_threads(object, &gone);
        }
    }

    /// Reads the times of its threads.
    fn glance(&mut self, object: Option<&mut Object>) {
        if !self.has_ended() {
            let gone = self.after.glance(&self.vm, &self.others);
            self.name_threads(object, &gone);
        }
    }

    /// Names its threads to the BPF programs.
    fn name_threads(&self, object: Option<&mut Object>, gone: &[u32]) {
        let Some(object) = object else { return };
        for tid in self.after.readings.keys() {
            if gone.contains(tid) {
                events::forget_thread(object, *tid);
            } else {
                events::watch_thread(object, self.vm.pid, *tid);
            }
        }
    }

    /// What is known now is where the next window begins.
    fn begin(&mut self, mounts: &Mounts) {
        let vm = self.vm.pid;
        let alive = |tid: &u32| proc::thread(vm, *tid).exists() || proc::process(*tid).exists();
        self.after.readings.retain(|tid, _| alive(tid));
        if self.before.readings.is_empty() {
            self.statistics.begin();
            self.quotas = self.read_quotas(mounts);
        }
        self.before = self.after.clone();
        self.since = None;
    }

    /// What its groups throttled since the last turn.
    fn quotas(&mut self, mounts: &Mounts) -> Vec<Quota> {
        let now = self.read_quotas(mounts);
        let quotas = quota::since(&now, &self.quotas);
        self.quotas = now;
        quotas
    }

    fn read_quotas(&self, mounts: &Mounts) -> BTreeMap<PathBuf, Group> {
        let tids: Vec<u32> = self.after.readings.keys().copied().collect();
        quota::read(mounts, self.vm.pid, &tids)
    }

    fn account(
        &mut self,
        mut counts: Counts,
        outside: &Outside,
        object: Option<&Object>,
        emulated: bool,
    ) -> Account {
        let mut unavailable = Vec::new();
        let kvm = self.statistics.turn(&mut unavailable);
        let parts = Parts {
            vm: &self.vm,
            before: &self.before,
            after: &self.after,
            counts: &counts,
            emulated,
            kvm: &kvm,
        };
        let roles = parts.roles();
        let threads = parts.threads(&roles);
        if object.is_some() && !fires(&counts) {
            let why =
                "it does not fire here: exits are counted by type, and their cost is estimated";
            unavailable.push(Unavailable::new(Source::KvmExit, why));
        }
        match outside {
            Outside::Attributed(strangers) => counts.absorb(strangers.clone()),
            Outside::Ambiguous { interrupts } => {
                let why = format!(
                    "{interrupts} interrupts were raised by threads that belong to no machine \
                     (vhost, VFIO) and are not in these figures"
                );
                unavailable.push(Unavailable::new(Source::Interrupts, why));
            }
        }
        let role = role_of(&roles);
        let overflowed = object.map_or(0, |object| events::overflowed(object, self.vm.pid));
        let account = Account {
            ended: self.has_ended(),
            window_ns: 0,
            counted_share: 1.0,
            host_cpus: proc::online_cpus(),
            emulated,
            threads,
            lines: interrupts::lines(&counts, &role),
            pic: interrupts::pic(&counts, &role),
            interrupts: interrupts::accepted(&counts, &role),
            ipis: interrupts::ipis(&counts, &role),
            quotas: Vec::new(),
            overflowed: overflowed.saturating_sub(self.overflowed),
            unavailable,
            observer: ObserverCost::default(),
            vm: self.vm.clone(),
        };
        self.overflowed = overflowed;
        account
    }
}

fn role_of(roles: &BTreeMap<u32, Role>) -> impl Fn(u32) -> Role {
    |tid| roles.get(&tid).copied().unwrap_or(Role::Other)
}

/// Whether `kvm_exit` fired, or nothing ran that could have made it.
fn fires(counts: &Counts) -> bool {
    let ran = counts.iter().any(|(key, _)| key.exit().is_some());
    !ran || counts.sum(classes::HARDWARE).count > 0
}

/// Names the processes that had vCPUs' CPUs, and the machines that they run.
fn name_preemptors(account: &mut Account, machines: &BTreeMap<u32, String>) {
    let threads = account.threads.iter_mut();
    for preemptor in threads.flat_map(|thread| &mut thread.off_cpu.preempted_by) {
        preemptor.process = match preemptor.pid {
            0 => Some("(idle)".to_owned()),
            pid => proc::comm(&proc::process(pid)),
        };
        preemptor.machine = machines.get(&preemptor.pid).cloned();
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
