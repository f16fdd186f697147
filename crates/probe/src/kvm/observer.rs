//! The observer: sources that stay open, and an account at each turn.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use super::assemble::Parts;
use super::cost::Cost;
use super::counts::Counts;
use super::gate::{Counting, Gate};
use super::statistics::Statistics;
use super::threads::Threads;
use super::{classes, events, host, interrupts};
use crate::bpf::Object;
use crate::proc;
use crate::vm::{self, Role, Vm};
use crate::{Source, Unavailable};
use tare_account::{Account, ObserverCost};

/// Observes virtual machines until it is dropped.
#[derive(Debug)]
pub struct Observer {
    object: Option<Object>,
    bpf: Option<Cost>,
    gate: Gate,
    unavailable: Vec<Unavailable>,
    emulated: bool,
    watched: Vec<Watched>,
    counts: Counts,
    lost: u64,
    since: Instant,
    own_cpu_ns: u64,
}

/// One machine's sources.
#[derive(Debug)]
struct Watched {
    vm: Vm,
    kernel_threads: Vec<u32>,
    before: Threads,
    after: Threads,
    overflowed: u64,
    statistics: Statistics,
}

impl Observer {
    /// Opens every source that this host offers. The first turn begins now. A storm
    /// of events is sampled.
    pub fn start(vms: &[Vm]) -> Self {
        Self::counting(vms, Counting::default())
    }

    /// The same, with a choice.
    pub fn counting(vms: &[Vm], counting: Counting) -> Self {
        let (object, mut unavailable) = events::load(vms);
        let bpf = object.is_some().then(Cost::start);
        let bpf = bpf.and_then(|bpf| bpf.map_err(|why| unavailable.push(why)).ok());
        let mut observer = Self {
            object,
            bpf,
            gate: Gate::new(counting),
            unavailable,
            emulated: !proc::has_hardware_virtualisation(),
            watched: vms.iter().map(Watched::new).collect(),
            counts: Counts::default(),
            lost: 0,
            since: Instant::now(),
            own_cpu_ns: 0,
        };
        observer.begin();
        observer
    }

    /// Observes these from now on: keeps those that it knows, forgets others.
    pub fn follow(&mut self, vms: &[Vm]) {
        let same = |a: &Vm, b: &Vm| a.pid == b.pid && a.started_ticks == b.started_ticks;
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.watched)
            .into_iter()
            .partition(|watched| vms.iter().any(|vm| same(vm, &watched.vm)));
        self.watched = kept;
        for watched in gone {
            self.forget(&watched);
        }
        for vm in vms {
            if !self.watched.iter().any(|watched| same(vm, &watched.vm)) {
                self.add(vm);
            }
        }
    }

    /// Whether no observed machine lives any more.
    pub fn all_ended(&self) -> bool {
        self.watched.iter().all(Watched::has_ended)
    }

    /// Reads the threads' files, so that threads which end are accounted until now.
    /// Cheap enough for several times a second.
    pub fn refresh(&mut self) {
        for watched in &mut self.watched {
            watched.refresh(self.object.as_mut());
        }
        let (Some(bpf), Some(object)) = (&mut self.bpf, &mut self.object) else {
            return;
        };
        if let Some(measured) = bpf.look(object) {
            self.gate.choose(object, measured);
        }
        bpf.rest(self.gate.narrowed());
    }

    /// One account for each machine since the last turn, in the order of their
    /// following.
    pub fn turn(&mut self) -> Vec<Account> {
        self.refresh();
        let counts = self.object.as_ref().map(Counts::read).unwrap_or_default();
        let window_ns = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let counted_share = self.gate.share(self.object.as_ref());
        let added = counts.since(&self.counts).scaled(counted_share);
        let outside = self.outside(&added);
        let mut accounts: Vec<_> = self
            .watched
            .iter_mut()
            .map(|watched| watched.account(&added, &outside, self.object.as_ref(), self.emulated))
            .collect();
        let cost = self.cost();
        let lost = self.newly_lost();
        for account in &mut accounts {
            account.window_ns = window_ns;
            account.counted_share = counted_share;
            account.observer = cost;
            account
                .unavailable
                .splice(0..0, self.unavailable.iter().cloned());
            account.unavailable.extend(lost.clone());
        }
        self.counts = counts;
        self.begin();
        accounts
    }

    fn begin(&mut self) {
        for watched in &mut self.watched {
            watched.refresh(self.object.as_mut());
            watched.begin();
        }
        self.since = Instant::now();
        self.own_cpu_ns = own_cpu_ns();
        if let (Some(bpf), Some(object)) = (&mut self.bpf, &self.object) {
            bpf.begin(object);
        }
        self.gate.begin();
    }

    fn add(&mut self, vm: &Vm) {
        if let Some(object) = &mut self.object
            && let Err(unavailable) = events::watch(object, vm.pid)
        {
            self.unavailable.push(unavailable);
        }
        let mut watched = Watched::new(vm);
        watched.refresh(self.object.as_mut());
        watched.begin();
        self.watched.push(watched);
    }

    fn forget(&mut self, watched: &Watched) {
        let Some(object) = &mut self.object else {
            return;
        };
        for tid in watched.after.readings.keys() {
            events::forget_thread(object, *tid);
        }
        events::forget(object, watched.vm.pid);
        self.counts = Counts::read(object);
    }

    fn cost(&self) -> ObserverCost {
        let bpf = self.bpf.as_ref().map(Cost::total);
        ObserverCost {
            user_space_ns: own_cpu_ns().saturating_sub(self.own_cpu_ns),
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
    /// the only one.
    fn outside(&self, added: &Counts) -> Outside {
        let strangers = added.of_process(0);
        let senders: HashSet<u32> = strangers
            .class(classes::LINE)
            .map(|(key, _)| key.tid)
            .collect();
        if senders.is_empty() {
            return Outside::Attributed(Counts::default());
        }
        match vm::list().vms.len() {
            0 | 1 => Outside::Attributed(strangers),
            count => {
                let interrupts = strangers.sum(classes::LINE).count;
                Outside::Ambiguous { interrupts, count }
            }
        }
    }
}

/// Interrupts by threads of no machine.
enum Outside {
    Attributed(Counts),
    Ambiguous { interrupts: u64, count: usize },
}

impl Watched {
    fn new(vm: &Vm) -> Self {
        Self {
            vm: vm.clone(),
            kernel_threads: host::kernel_threads(vm.pid),
            before: Threads::default(),
            after: Threads::default(),
            overflowed: 0,
            statistics: Statistics::open(vm),
        }
    }

    fn has_ended(&self) -> bool {
        let stat = proc::stat(&proc::process(self.vm.pid));
        stat.is_none_or(|stat| stat.started_ticks != self.vm.started_ticks)
    }

    fn refresh(&mut self, object: Option<&mut Object>) {
        if self.has_ended() {
            return;
        }
        let gone = self.after.refresh(&self.vm, &self.kernel_threads);
        let Some(object) = object else { return };
        for tid in self.after.readings.keys() {
            match gone.contains(tid) {
                true => events::forget_thread(object, *tid),
                false => events::watch_thread(object, self.vm.pid, *tid),
            }
        }
    }

    /// What is known now is where the next window begins.
    fn begin(&mut self) {
        let vm = self.vm.pid;
        let alive = |tid: &u32| proc::thread(vm, *tid).exists() || proc::process(*tid).exists();
        self.after.readings.retain(|tid, _| alive(tid));
        self.before = self.after.clone();
        self.statistics.begin();
    }

    fn account(
        &mut self,
        added: &Counts,
        outside: &Outside,
        object: Option<&Object>,
        emulated: bool,
    ) -> Account {
        let mut counts = added.of_process(self.vm.pid);
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
            let why = "it did not fire: exits are counted by what caused them, without their cost";
            unavailable.push(Unavailable::new(Source::KvmExit, why));
        }
        match outside {
            Outside::Attributed(strangers) => counts.absorb(strangers.clone()),
            Outside::Ambiguous { interrupts, count } => {
                let why = format!(
                    "{interrupts} interrupts came from outside, for one of {count} virtual machines"
                );
                unavailable.push(Unavailable::named(Source::TracePoint, "kvm_set_irq", why));
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
            interrupts: interrupts::accepted(&counts, &role),
            ipis: interrupts::ipis(&counts, &role),
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

fn own_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let whole = u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000;
    whole + u64::try_from(time.tv_nsec).unwrap_or(0)
}
