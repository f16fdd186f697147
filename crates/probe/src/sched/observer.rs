//! Loading the programs, naming threads, reading counts.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::Times;
use super::times::{Key, Reading};
use crate::bpf::{Object, Point, RunTime, RunTimeMeter};
use crate::proc;
use crate::{Source, Unavailable};
use tare_account::ObserverCost;

const POINTS: [Point<'static>; 4] = [
    Point::typed("sched_process_fork", "on_sched_process_fork"),
    Point::typed("sched_process_exit", "on_sched_process_exit"),
    Point::typed("sched_waking", "on_sched_waking"),
    Point::typed("sched_switch", "on_sched_switch"),
];
/// Counts charges of control groups, on request.
const CHARGES: Point<'static> = Point::Raw {
    event: "sched_stat_runtime",
    program: "on_sched_stat_runtime",
};
/// As the programs write it for a thread that has not run yet.
const NO_CPU: u64 = 0xffff_ffff;
/// Kinds of latest stretches that a thread has at hand: `RECENTS` of the programs.
const RECENTS: usize = 24;
/// Words of a `struct thread`.
const THREAD_WORDS: usize = 5 + RECENTS * 3;
type Thread = [u64; THREAD_WORDS];
/// Scans for threads of a process; what they fork meanwhile follows by itself.
const SCANS: usize = 2;

/// Threads that are reported together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Group(pub(super) u32);

/// Observes threads until it is dropped.
#[derive(Debug)]
pub struct Observer {
    object: Object,
    missing: Vec<Unavailable>,
    meter: Option<RunTimeMeter>,
    groups: BTreeSet<u32>,
    newest: u32,
    before: Reading,
    since: Instant,
    cost: (u64, RunTime),
    lost: u64,
}

impl Observer {
    /// Loads and attaches the programs; no thread is watched yet.
    pub fn start() -> Result<Self, Unavailable> {
        let mut object = Object::load(crate::bpf_image!("sched.bpf.o"), &[])?;
        let mut missing = object.attach(&POINTS);
        if let Some(place) = missing.iter().position(|gone| gone.name == "sched_switch") {
            return Err(missing.swap_remove(place));
        }
        let meter = RunTimeMeter::start().map_err(|why| missing.push(why)).ok();
        let mut observer = Self {
            object,
            missing,
            meter,
            groups: BTreeSet::new(),
            newest: 0,
            before: Reading::default(),
            since: Instant::now(),
            cost: (0, RunTime::default()),
            lost: 0,
        };
        observer.begin();
        Ok(observer)
    }

    /// What this kernel does not offer, and counts that were lost.
    pub fn unavailable(&self) -> Vec<Unavailable> {
        let mut missing = self.missing.clone();
        if self.lost > 0 {
            let why = format!("{} events or threads found a full map", self.lost);
            missing.push(Unavailable::named(Source::Bpf, "counts", why));
        }
        missing
    }

    /// From now on counts, or does not count, how often CPU time is charged to control groups:
    /// a program more at each of them.
    pub fn count_charges(&mut self, on: bool) {
        let (_, _, program) = CHARGES.parts();
        if on && !self.object.is_attached(program) {
            self.missing.extend(self.object.attach(&[CHARGES]));
        } else if !on {
            self.object.detach(|function| function == program);
        }
    }

    /// A new group without threads.
    pub fn group(&mut self) -> Group {
        self.newest += 1;
        self.groups.insert(self.newest);
        Group(self.newest)
    }

    /// Forgets a group with its threads and counts: who watches one group after the
    /// other would else fill the maps.
    pub fn forget(&mut self, group: Group) {
        self.groups.remove(&group.0);
        let threads = |_: &[u64; 1], [ids, ..]: &Thread| *ids as u32 != group.0;
        self.object.retain("threads", threads);
        let counts = |[key]: &[u64; 1], _: &_| Key::from(*key).group() != group;
        self.object.retain::<1, 2>("counts", counts);
        self.before.forget(group);
    }

    /// Puts every thread of a process and of its descendants into `group`, and all
    /// that they start from now on.
    pub fn watch_process(&mut self, group: Group, pid: u32) {
        for _ in 0..SCANS {
            for pid in family(pid) {
                let tids = proc::numbers(&proc::process(pid).join("task")).unwrap_or_default();
                for tid in tids {
                    self.watch_thread(group, tid);
                }
            }
        }
    }

    /// Puts one thread into `group`, and all that it starts from now on. It counts
    /// from its next switch; of another group that it was in, what it had at hand goes.
    pub fn watch_thread(&mut self, group: Group, tid: u32) {
        let known: Option<Thread> = self.object.lookup("threads", [tid.into()]);
        if known.is_some_and(|words| words[0] as u32 == group.0) {
            return;
        }
        let mut thread: Thread = [0; THREAD_WORDS];
        thread[0] = group.0.into();
        thread[4] = NO_CPU;
        if let Err(why) = self.object.put("threads", [tid.into()], thread) {
            self.missing.push(why);
        }
    }

    /// What each group did since the last turn (or the start), by group.
    pub fn turn(&mut self) -> Vec<Times> {
        let reading = self.read();
        let window_ns = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let observer = self.cost();
        let groups = self.groups.iter();
        let times = groups
            .map(|group| Times {
                window_ns,
                observer,
                ..reading.times(&self.before, Group(*group))
            })
            .collect();
        self.lost = self.object.word("lost", 0).unwrap_or(0);
        self.before = reading;
        self.begin();
        times
    }

    fn begin(&mut self) {
        self.since = Instant::now();
        self.cost = (clock_ns(ClockId::ThreadCPUTime), self.run_time());
    }

    fn read(&self) -> Reading {
        let mut reading = Reading::default();
        let counts = self.object.entries::<1, 2>("counts").into_iter();
        reading.counts = counts
            .map(|([key], [count, ns])| (Key::from(key), (count, ns)))
            .collect();
        let now_ns = clock_ns(ClockId::Monotonic);
        for (_, words) in self.object.entries::<1, THREAD_WORDS>("threads") {
            let [ids, out, ready, inside, _, recent @ ..] = words;
            reading.pending([ids, out, ready, inside], now_ns);
            reading.recent(recent.as_chunks().0);
        }
        reading
    }

    fn run_time(&self) -> RunTime {
        let meter = self.meter.as_ref();
        meter.map_or_else(RunTime::default, |meter| meter.read(&self.object))
    }

    fn cost(&self) -> ObserverCost {
        let (cpu_ns, bpf) = self.cost;
        let now = self.meter.as_ref().map(|_| self.run_time());
        ObserverCost {
            user_space_ns: clock_ns(ClockId::ThreadCPUTime).saturating_sub(cpu_ns),
            bpf_ns: now.map(|now| now.ns.saturating_sub(bpf.ns)),
            bpf_runs: now.map(|now| now.runs.saturating_sub(bpf.runs)),
        }
    }
}

/// A process and its descendants.
fn family(pid: u32) -> BTreeSet<u32> {
    let all = proc::numbers(Path::new("/proc")).unwrap_or_default();
    let parents: Vec<(u32, u32)> = all
        .into_iter()
        .filter_map(|pid| Some((pid, proc::stat(&proc::process(pid))?.parent)))
        .collect();
    let mut family = BTreeSet::from([pid]);
    loop {
        let before = family.len();
        let children: Vec<u32> = parents
            .iter()
            .filter(|(_, parent)| family.contains(parent))
            .map(|(child, _)| *child)
            .collect();
        family.extend(children);
        if family.len() == before {
            return family;
        }
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let whole = u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000;
    whole + u64::try_from(time.tv_nsec).unwrap_or(0)
}
