//! One machine's sources.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Instant;

use super::assemble::Parts;
use super::counts::Counts;
use super::scale::{Counted, Ran, Scale, Whole};
use super::slices::Slices;
use super::statistics::Statistics;
use super::taps::{self, Interfaces};
use super::tasks::{self, Task};
use super::threads::{Depth, Others, Reading, Threads};
use super::{classes, events, interrupts};
use crate::bpf::Object;
use crate::proc::quota::{self, Group, Groups, Member};
use crate::vm::{self, Descriptors, Role, Vm};
use crate::{Source, Unavailable};
use tare_account::{Account, Network, ObserverCost, Quota};

/// What is the same for all machines of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    pub(super) cpus: u32,
    /// KVM emulates ring 0.
    pub(super) emulated: bool,
}

/// Interrupts by threads of no machine.
pub(super) enum Outside {
    Attributed(Counts),
    Ambiguous { interrupts: u64 },
}

/// A machine that is observed.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) vm: Vm,
    /// Where its window begins, if it was found after the others' began.
    pub(super) since: Option<Instant>,
    others: Others,
    before: Threads,
    after: Threads,
    /// When its process started, as the kernel's tasks say.
    started_ns: Option<u64>,
    ended: bool,
    /// Why the kernel's tasks of its processes cannot be read, but their files only.
    pub(super) unowned: Option<Unavailable>,
    /// Threads that the last reading did not find.
    gone: BTreeSet<u32>,
    /// Threads that the BPF programs know by name.
    named: BTreeSet<u32>,
    /// vCPUs of a monitor that does not name their threads, by thread.
    nameless: BTreeMap<u32, u32>,
    quotas: BTreeMap<PathBuf, Group>,
    overflowed: u64,
    statistics: Statistics,
    /// Its tap devices, and what they have carried.
    taps: Vec<String>,
    carried: Option<Network>,
}

impl Watched {
    pub(super) fn new(vm: &Vm, others: Others, open: &Descriptors) -> Self {
        Self {
            vm: vm.clone(),
            since: None,
            others,
            before: Threads::default(),
            after: Threads::default(),
            started_ns: None,
            ended: false,
            unowned: None,
            gone: BTreeSet::new(),
            named: BTreeSet::new(),
            nameless: BTreeMap::new(),
            quotas: BTreeMap::new(),
            overflowed: 0,
            statistics: Statistics::open(vm, open),
            taps: taps::of(vm.pid, open),
            carried: None,
        }
    }

    /// Whether the last look found that.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Has the tasks of its processes read from now on, if there is room for all.
    pub(super) fn own_tasks(&mut self, object: &mut Object) {
        let processes: Vec<u32> = self.processes().collect();
        let mut own = processes.iter();
        let refused = own.find_map(|process| tasks::own_by(object, *process, self.vm.pid).err());
        if refused.is_some() {
            tasks::disown(object, processes.into_iter());
        }
        self.unowned = refused.map(|refused| {
            let why = format!(
                "a process of the machine's was not added ({}): files of its threads are read",
                refused.why
            );
            Unavailable { why, ..refused }
        });
    }

    /// The processes whose tasks are this machine's.
    fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(self.vm.pid).chain(self.others.processes())
    }

    /// Takes over what the kernel said of its tasks at a time.
    pub(super) fn take(
        &mut self,
        tasks: &[Task],
        object: &mut Object,
        (depth, at_ns): (Depth, u64),
        slices: &Slices<'_>,
    ) {
        let leader = tasks.iter().find(|task| task.tid == self.vm.pid);
        let started_ns = leader.map(|leader| leader.started_ns);
        self.started_ns = self.started_ns.or(started_ns);
        self.ended |= started_ns.is_none() || started_ns != self.started_ns;
        if self.ended {
            return;
        }
        let gone = self.after.take(tasks, &self.others, (depth, at_ns), slices);
        self.has_lost(gone, object);
    }

    /// The time of its threads in which events were counted, where their files are read.
    pub(super) fn counted(&mut self, counted: &HashMap<u32, Counted>, slices: &Slices<'_>) {
        for (tid, reading) in &mut self.after.readings {
            if let Some(counted) = counted.get(tid) {
                reading.ran = Ran::of(*counted, slices);
            }
        }
    }

    /// Reads its threads' files.
    pub(super) fn read(&mut self, object: Option<&mut Object>, depth: Depth) {
        self.ended |= !vm::lives(&self.vm);
        if self.ended {
            return;
        }
        let gone = self.after.read(&self.vm, &self.others, depth);
        let Some(object) = object else {
            self.gone = gone.into_iter().collect();
            return;
        };
        for tid in self.after.readings.keys() {
            if self.named.insert(*tid) {
                events::watch_thread(object, self.vm.pid, *tid);
            }
        }
        self.has_lost(gone, object);
    }

    /// The BPF programs forget threads that have gone.
    fn has_lost(&mut self, gone: Vec<u32>, object: &mut Object) {
        let gone: BTreeSet<u32> = gone.into_iter().collect();
        for tid in gone.difference(&self.gone) {
            events::forget_thread(object, *tid);
            self.named.remove(tid);
        }
        self.gone = gone;
    }

    /// The BPF programs forget the machine.
    pub(super) fn forget(&self, object: &mut Object) {
        for tid in self.after.readings.keys() {
            events::forget_thread(object, *tid);
        }
        tasks::disown(object, self.processes());
        events::forget(object, self.vm.pid);
    }

    /// What is known now is where the next window begins.
    pub(super) fn begin(&mut self, interfaces: &Interfaces) {
        let gone = std::mem::take(&mut self.gone);
        self.after.readings.retain(|tid, _| !gone.contains(tid));
        if self.before.readings.is_empty() {
            self.statistics.begin();
        }
        self.carried = taps::sum(&self.taps, interfaces);
        self.begin_threads();
        self.since = None;
    }

    /// What is known of threads is where the next window begins.
    pub(super) fn begin_threads(&mut self) {
        self.before = self.after.clone();
    }

    /// What its groups have throttled is where the first window begins.
    pub(super) fn begin_quotas(&mut self, groups: &mut Groups) {
        self.quotas = self.read_quotas(groups);
    }

    /// What its groups throttled since the last turn.
    pub(super) fn quotas(&mut self, groups: &mut Groups) -> Vec<Quota> {
        let now = self.read_quotas(groups);
        let quotas = quota::since(&now, &self.quotas);
        self.quotas = now;
        quotas
    }

    /// What its tap devices carried since the window began.
    pub(super) fn network(&self, interfaces: &Interfaces) -> Option<Network> {
        let now = taps::sum(&self.taps, interfaces)?;
        Some(taps::since(now, self.carried?))
    }

    fn read_quotas(&self, groups: &mut Groups) -> BTreeMap<PathBuf, Group> {
        let readings = self.after.readings.iter();
        let members: Vec<Member> = readings.map(|(tid, it)| (*tid, it.group)).collect();
        groups.of(&members)
    }

    /// Scales by the time that its threads were on a CPU.
    pub(super) fn scale(&self, scale: &mut Scale, run_ns: f64) {
        let none = Reading::default();
        for (tid, after) in &self.after.readings {
            let before = self.before.readings.get(tid).unwrap_or(&none);
            let ran = after.ran.since(before.ran);
            let whole = Whole {
                ns: after.ran_since(before),
                sleeps: after.off_cpu(before).voluntary_switches,
            };
            scale.thread(*tid, ran, whole, run_ns);
        }
    }

    pub(super) fn account(
        &mut self,
        mut counts: Counts,
        outside: &Outside,
        object: Option<&Object>,
        host: Host,
    ) -> Account {
        let mut unavailable = Vec::new();
        let kvm = self.statistics.turn(&mut unavailable);
        let parts = Parts {
            vm: &self.vm,
            before: &self.before,
            after: &self.after,
            counts: &counts,
            emulated: host.emulated,
            kvm: &kvm,
        };
        let roles = parts.roles(&mut self.nameless);
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
            ended: self.ended,
            window_ns: 0,
            counted_share: 1.0,
            host_cpus: host.cpus,
            emulated: host.emulated,
            threads,
            lines: interrupts::lines(&counts, &role),
            pic: interrupts::pic(&counts, &role),
            interrupts: interrupts::accepted(&counts, &role),
            ipis: interrupts::ipis(&counts, &role),
            quotas: Vec::new(),
            cpusets: Vec::new(),
            network: None,
            expiries: Vec::new(),
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
