//! Readings of the threads of one virtual machine, and their differences.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::scale::Ran;
use super::slices::Slices;
use super::tasks::Task;
use crate::clock::monotonic_ns;
use crate::proc;
use crate::vm::{Role, Vm};
use tare_account::{OffCpu, OnCpu, Resources};

const NS_PER_SECOND: u64 = 1_000_000_000;

/// A wait for a CPU that goes on: the kernel adds it to a thread's waits when it ends
/// (`sched_info_arrive` in kernel/sched/stats.h).
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// When it began, by the scheduler's clock: no other wait began then.
    queued_ns: u64,
    /// When it was first seen, by the monotonic clock.
    seen_ns: u64,
}

/// One thread at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Which time, by the monotonic clock; `None` if it was not there.
    at_ns: Option<u64>,
    /// Its wait that goes on, where the kernel's tasks are read.
    waiting: Option<Waiting>,
    pub(super) comm: String,
    /// CPU that it was last on.
    pub(super) cpu: u32,
    pub(super) allowed_cpus: Vec<u32>,
    /// Its group of the `cpu` controller, where the kernel's tasks are read.
    pub(super) group: Option<u64>,
    /// User mode, the guest's included.
    user_ns: u64,
    system_ns: u64,
    guest_ns: u64,
    run_ns: u64,
    wait_ns: u64,
    /// The two when all other files were read; `None` before that, as a thread that has just
    /// started has run for 0 ns.
    read_at: Option<(u64, u64)>,
    voluntary: u64,
    involuntary: u64,
    migrations: Option<u64>,
    faults: u64,
    /// Bytes from and to block devices; `None` where neither the kernel's tasks nor `io` can
    /// be read.
    disk: Option<(u64, u64)>,
    /// The time of it in which events were counted.
    pub(super) ran: Ran,
}

/// All threads by ID. Threads that ended keep their last reading.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    pub(super) readings: BTreeMap<u32, Reading>,
    /// Threads of helper processes, with their process.
    helpers: BTreeMap<u32, u32>,
}

/// Tasks outside of the monitor's process that work for its machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// Threads of the kernel.
    pub(super) kernel: Vec<u32>,
    /// Processes.
    pub(super) helpers: Vec<u32>,
}

/// What is read of threads that are known: times alone within a window, all at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    Times,
    Whole,
}

impl Threads {
    /// Takes over what the kernel said of its tasks at a time; returns the IDs of threads that
    /// have gone.
    pub(super) fn take(
        &mut self,
        tasks: &[Task],
        others: &Others,
        (depth, at_ns): (Depth, u64),
        slices: &Slices<'_>,
    ) -> Vec<u32> {
        let mut gone = self.known();
        for task in tasks {
            gone.remove(&task.tid);
            if others.helpers.contains(&task.tgid) {
                self.helpers.insert(task.tid, task.tgid);
            }
            let known = self.readings.entry(task.tid).or_default();
            known.take(task, at_ns);
            known.ran = Ran::of(task.counted, slices);
            if depth == Depth::Whole {
                known.allowed_cpus = allowed_cpus(task.tid);
            }
        }
        gone.into_iter().collect()
    }

    /// The same from the threads' files: of those that did not run nor wait since the last
    /// reading, one.
    pub(super) fn read(&mut self, vm: &Vm, others: &Others, depth: Depth) -> Vec<u32> {
        let helpers = others.helper_threads();
        self.helpers = helpers.map(|(pid, tid)| (tid, pid)).collect();
        let mut gone = self.known();
        for (tid, folder) in folders(vm, others) {
            let known = self.readings.entry(tid).or_default();
            if known.read(&folder, depth).is_some() {
                known.allowed_cpus = match depth {
                    Depth::Whole => allowed_cpus(tid),
                    Depth::Times => std::mem::take(&mut known.allowed_cpus),
                };
                gone.remove(&tid);
            } else if known.run_ns == 0 {
                // It ended before it was read once.
                self.readings.remove(&tid);
            }
        }
        gone.into_iter().collect()
    }

    fn known(&self) -> BTreeSet<u32> {
        self.readings.keys().copied().collect()
    }

    pub(super) fn role(&self, vm: &Vm, tid: u32) -> Role {
        let name = self.readings.get(&tid).map_or("", |reading| &reading.comm);
        if self.helpers.contains_key(&tid) {
            return Role::Helper;
        }
        Role::of(vm.monitor, vm.pid, tid, name)
    }

    /// A thread's name; of a helper's other threads behind that of its process.
    pub(super) fn name(&self, tid: u32) -> String {
        let comm = |tid| self.readings.get(&tid).map_or("", |reading| &reading.comm);
        let process = self.helpers.get(&tid).map_or("", |pid| comm(*pid));
        match comm(tid) {
            name if process.is_empty() || process == name => name.to_owned(),
            name => format!("{process}/{name}"),
        }
    }
}

/// Threads with their folders: the monitor's, and others that work for it.
fn folders(vm: &Vm, others: &Others) -> Vec<(u32, PathBuf)> {
    let own = proc::numbers(&proc::process(vm.pid).join("task")).unwrap_or_default();
    let own = own.iter().map(|tid| (*tid, proc::thread(vm.pid, *tid)));
    let kernel = others.kernel.iter().map(|tid| (*tid, proc::process(*tid)));
    let helpers = others
        .helper_threads()
        .map(|(pid, tid)| (tid, proc::thread(pid, tid)));
    own.chain(kernel).chain(helpers).collect()
}

/// The CPUs of a thread; none if it has ended.
fn allowed_cpus(tid: u32) -> Vec<u32> {
    let tid = i32::try_from(tid).ok().and_then(Pid::from_raw);
    let set = tid
        .and_then(|tid| sched_getaffinity(Some(tid)).ok())
        .unwrap_or_default();
    let all = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    all.filter_map(|cpu| u32::try_from(cpu).ok()).collect()
}

impl Others {
    /// Threads of the helpers, each after its process.
    fn helper_threads(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.helpers.iter().flat_map(|pid| {
            let tids = proc::numbers(&proc::process(*pid).join("task")).unwrap_or_default();
            tids.into_iter().map(|tid| (*pid, tid))
        })
    }

    /// Its processes; a thread of the kernel is one.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        self.kernel.iter().chain(&self.helpers).copied()
    }
}

impl Waiting {
    /// Of a task read at a time, whose last reading saw this one; `None` if it does not wait.
    fn of(task: &Task, at_ns: u64, last: Option<Self>) -> Option<Self> {
        let new = Self {
            queued_ns: task.queued_ns,
            seen_ns: at_ns,
        };
        let same = last.filter(|last| last.queued_ns == new.queued_ns);
        (new.queued_ns > 0).then(|| same.unwrap_or(new))
    }
}

impl Reading {
    fn take(&mut self, task: &Task, at_ns: u64) {
        self.at_ns = Some(at_ns);
        self.waiting = Waiting::of(task, at_ns, self.waiting);
        let ran = (task.run_ns, task.wait_ns) != (self.run_ns, self.wait_ns);
        if !ran && !self.comm.is_empty() {
            return;
        }
        (self.user_ns, self.system_ns) = task.adjusted((self.user_ns, self.system_ns));
        self.guest_ns = task.guest_ns;
        (self.run_ns, self.wait_ns) = (task.run_ns, task.wait_ns);
        (self.voluntary, self.involuntary) = (task.voluntary, task.involuntary);
        self.migrations = Some(task.migrations);
        self.faults = task.faults;
        self.disk = Some((task.read_bytes, task.written_bytes));
        self.group = Some(task.group);
        self.cpu = task.cpu;
        self.comm.clone_from(&task.comm);
    }

    /// `None` if the thread has ended.
    fn read(&mut self, folder: &Path, depth: Depth) -> Option<()> {
        let read = |name: &str| fs::read_to_string(folder.join(name));
        let times = proc::schedstat(&read("schedstat").ok()?)?;
        let is_known = !self.comm.is_empty();
        (self.at_ns, self.waiting) = (Some(monotonic_ns()), None);
        (self.run_ns, self.wait_ns) = times;
        if is_known && (depth == Depth::Times || self.read_at == Some(times)) {
            return Some(());
        }
        let stat = proc::stat(folder)?;
        let switches = proc::switches(&read("status").ok()?);
        self.user_ns = ticks_ns(stat.user_ticks);
        self.system_ns = ticks_ns(stat.system_ticks);
        self.guest_ns = ticks_ns(stat.guest_ticks);
        (self.voluntary, self.involuntary) = (switches.voluntary, switches.involuntary);
        self.migrations = read("sched").ok().and_then(|text| proc::migrations(&text));
        self.faults = stat.faults;
        self.disk = read("io").ok().and_then(|text| proc::disk(&text));
        // As the kernel's tasks said it: the thread may have moved since.
        self.group = None;
        self.cpu = stat.cpu;
        self.comm = stat.comm;
        self.read_at = Some(times);
        Some(())
    }

    /// Time on a CPU since `before`, ns.
    pub(super) fn ran_since(&self, before: &Self) -> u64 {
        self.run_ns.saturating_sub(before.run_ns)
    }

    /// Time on a CPU since `before`. Its parts are no more than it, though files have them
    /// in ticks, and are read one after the other.
    pub(super) fn on_cpu(&self, before: &Self, emulated: bool) -> OnCpu {
        let total = self.ran_since(before);
        let system = self.system_ns.saturating_sub(before.system_ns).min(total);
        let user = self
            .user_ns
            .saturating_sub(before.user_ns)
            .min(total - system);
        let guest = self.guest_ns.saturating_sub(before.guest_ns).min(user);
        OnCpu {
            total_ns: total,
            user_ns: user - guest,
            system_ns: system,
            guest_ns: (!emulated).then_some(guest),
        }
    }

    /// The wait that goes on, since it was first seen.
    fn unfinished_ns(&self) -> u64 {
        let seen_ns = self.waiting.map(|waiting| waiting.seen_ns);
        since(self.at_ns, seen_ns).unwrap_or(0)
    }

    /// Time off a CPU since `before`; the rest of it comes from BPF. A thread that ran did not
    /// wait meanwhile: a wait that was not seen to begin is no longer than the rest.
    pub(super) fn off_cpu(&self, before: &Self) -> OffCpu {
        let waited = |reading: &Self| reading.wait_ns.saturating_add(reading.unfinished_ns());
        let window_ns = since(self.at_ns, before.at_ns).unwrap_or(u64::MAX);
        let rest_ns = window_ns.saturating_sub(self.ran_since(before));
        let run_delay_ns = waited(self).saturating_sub(waited(before)).min(rest_ns);
        OffCpu {
            run_delay_ns,
            unfinished_delay_ns: self.unfinished_ns().min(run_delay_ns),
            voluntary_switches: self.voluntary.saturating_sub(before.voluntary),
            involuntary_switches: self.involuntary.saturating_sub(before.involuntary),
            ..OffCpu::default()
        }
    }

    /// Page faults and bytes of block devices since `before`.
    pub(super) fn resources(&self, before: &Self) -> Resources {
        // A thread that was not there has read nothing before.
        let is_new = before.comm.is_empty();
        let disk = self.disk.zip(before.disk.or(is_new.then_some((0, 0))));
        let since = |now: u64, then: u64| now.saturating_sub(then);
        Resources {
            page_faults: since(self.faults, before.faults),
            read_bytes: disk.map(|(now, then)| since(now.0, then.0)),
            written_bytes: disk.map(|(now, then)| since(now.1, then.1)),
        }
    }

    /// Moves between CPUs since `before`.
    pub(super) fn migrations_since(&self, before: &Self) -> Option<u64> {
        let is_new = before.comm.is_empty();
        let then = before.migrations.or(is_new.then_some(0))?;
        Some(self.migrations?.saturating_sub(then))
    }
}

/// Time between two times, where both are known.
fn since(now_ns: Option<u64>, then_ns: Option<u64>) -> Option<u64> {
    Some(now_ns?.saturating_sub(then_ns?))
}

fn ticks_ns(ticks: u64) -> u64 {
    ticks * NS_PER_SECOND / rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::super::gate_words::Words;
    use super::super::slices::Ends;
    use super::*;

    fn task(tid: u32, run_ns: u64) -> Task {
        Task {
            tid,
            tgid: 9,
            run_ns,
            user_ns: 8_000_000,
            system_ns: 24_000_000,
            comm: "vcpu0".to_owned(),
            ..Task::default()
        }
    }

    /// Everything is counted.
    fn whole(ends: &Ends) -> Slices<'_> {
        Slices {
            gate: Words::default(),
            ends,
            tick_ns: 1,
            now_ns: 1,
        }
    }

    #[test]
    fn tasks_become_readings_and_those_that_are_missing_have_gone() {
        let (mut threads, ends) = (Threads::default(), Ends::default());
        let others = Others::default();
        let slices = whole(&ends);
        assert!(
            threads
                .take(
                    &[task(1, 40), task(2, 0)],
                    &others,
                    (Depth::Times, 0),
                    &slices
                )
                .is_empty()
        );
        let before = threads.clone();
        let gone = threads.take(&[task(1, 100)], &others, (Depth::Times, 0), &slices);
        assert_eq!(gone, [2]);
        let on_cpu = threads.readings[&1].on_cpu(&before.readings[&1], true);
        assert_eq!(
            (on_cpu.total_ns, on_cpu.user_ns, on_cpu.system_ns),
            (60, 15, 45)
        );
    }

    /// What a reading of this thread says after each of these: milliseconds since the first, and
    /// (run, wait, beginning of a wait that goes on).
    fn readings<const N: usize>(times: [(u64, [u64; 3]); N]) -> [Reading; N] {
        let mut reading = Reading::default();
        times.map(|(ms, [run_ns, wait_ns, queued_ns])| {
            let task = Task {
                wait_ns,
                queued_ns,
                ..task(1, run_ns)
            };
            reading.take(&task, ms * MS);
            reading.clone()
        })
    }

    fn delays(before: &Reading, after: &Reading) -> (u64, u64) {
        let off_cpu = after.off_cpu(before);
        (off_cpu.run_delay_ns / MS, off_cpu.unfinished_delay_ns / MS)
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_wait_that_goes_on_counts_in_each_window_that_it_spans() {
        // It began 7 s before the first reading, and ends 600 ms after the third.
        let [first, second, third, fourth] = readings([
            (0, [MS, 0, 5]),
            (1_000, [MS, 0, 5]),
            (1_500, [MS, 0, 5]),
            (2_500, [401 * MS, 9_100 * MS, 0]),
        ]);
        assert_eq!(delays(&first, &second), (1_000, 1_000));
        assert_eq!(delays(&second, &third), (500, 500));
        assert_eq!(delays(&third, &fourth), (600, 0));
        assert_eq!(delays(&first, &fourth), (2_100, 0));
    }

    #[test]
    fn a_wait_counts_from_the_reading_that_saw_it_first() {
        let [first, second, third] = readings([
            (0, [MS, 0, 5]),
            // That one has ended, and another one began.
            (1_000, [101 * MS, 850 * MS, 960]),
            (2_000, [101 * MS, 850 * MS, 960]),
        ]);
        assert_eq!(delays(&first, &second), (850, 0));
        assert_eq!(delays(&second, &third), (1_000, 1_000));
        // One that was not there before has all that the kernel counted.
        assert_eq!(delays(&Reading::default(), &second), (850, 0));
    }

    #[test]
    fn a_helper_s_thread_is_named_with_its_process() {
        let (mut threads, ends) = (Threads::default(), Ends::default());
        let slices = whole(&ends);
        let others = Others {
            helpers: vec![9],
            ..Others::default()
        };
        let named = |tid, tgid, comm: &str| Task {
            tgid,
            comm: comm.to_owned(),
            ..task(tid, 1)
        };
        let tasks = [
            named(9, 9, "tare"),
            named(10, 9, "io"),
            named(11, 9, "tare"),
            named(20, 20, "vcpu0"),
        ];
        threads.take(&tasks, &others, (Depth::Times, 0), &slices);
        let names = [9, 10, 11, 20].map(|tid| threads.name(tid));
        assert_eq!(names, ["tare", "tare/io", "tare", "vcpu0"]);
    }

    #[test]
    fn a_thread_s_files_go_on_where_its_task_ended() {
        let (pid, tid) = (std::process::id(), rustix::thread::gettid());
        let folder = proc::thread(pid, tid.as_raw_nonzero().get().cast_unsigned());
        let mut reading = Reading::default();
        let task = Task {
            run_ns: 1,
            written_bytes: u64::MAX,
            group: 77,
            comm: "main".to_owned(),
            ..Task::default()
        };
        reading.take(&task, 0);
        reading.read(&folder, Depth::Whole).unwrap();
        // What the task said does not describe the present.
        assert_ne!(reading.disk, Some((0, u64::MAX)));
        assert_eq!(reading.group, None);
        // Bytes of before are unknown, where they could not be read.
        let unread = Reading {
            disk: None,
            ..reading.clone()
        };
        assert_eq!(reading.resources(&unread).read_bytes, None);
        assert_eq!(unread.resources(&reading).read_bytes, None);
        // So are moves: a task counts them where the files do not.
        let counts = |migrations| Reading {
            migrations,
            ..reading.clone()
        };
        let moved = |then| counts(Some(900)).migrations_since(&counts(then));
        assert_eq!((moved(Some(899)), moved(None)), (Some(1), None));
        let new = Reading::default();
        assert_eq!(counts(Some(900)).migrations_since(&new), Some(900));
    }

    #[test]
    fn a_thread_that_has_just_started_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let own = proc::thread(std::process::id(), std::process::id());
        for name in ["stat", "status", "sched", "io"] {
            let text = fs::read(own.join(name)).unwrap();
            fs::write(folder.path().join(name), text).unwrap();
        }
        // It ran for less than a tick.
        fs::write(folder.path().join("schedstat"), "0 0 1\n").unwrap();
        let mut reading = Reading::default();
        let task = Task {
            written_bytes: u64::MAX,
            comm: "main".to_owned(),
            ..Task::default()
        };
        reading.take(&task, 0);
        reading.read(folder.path(), Depth::Whole).unwrap();
        assert_ne!(reading.disk, Some((0, u64::MAX)));
    }

    #[test]
    fn parts_of_a_time_are_no_more_than_it() {
        let read = |run_ns, user_ns, system_ns, guest_ns| Reading {
            run_ns,
            user_ns,
            system_ns,
            guest_ns,
            ..Reading::default()
        };
        let before = read(5, 10, 10, 0);
        let on_cpu = read(30, 40, 20, 90).on_cpu(&before, false);
        let guest = on_cpu.guest_ns.unwrap();
        assert_eq!((on_cpu.total_ns, on_cpu.system_ns), (25, 10));
        assert_eq!((on_cpu.user_ns, guest), (0, 15));
        assert_eq!(read(30, 10, 60, 0).on_cpu(&before, true).system_ns, 25);
    }

    #[test]
    fn this_thread_s_files_and_its_cpus_are_read() {
        let (pid, tid) = (std::process::id(), rustix::thread::gettid());
        let folder = proc::thread(pid, tid.as_raw_nonzero().get().cast_unsigned());
        let mut reading = Reading::default();
        assert!(reading.read(&folder, Depth::Whole).is_some());
        assert!(!reading.comm.is_empty());
        assert!(!allowed_cpus(pid).is_empty());
        assert!(reading.read(Path::new("/nowhere"), Depth::Times).is_none());
    }
}
