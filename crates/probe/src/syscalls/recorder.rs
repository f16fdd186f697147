//! The observation: whom it follows, what it has heard, the profile at its end.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::process::{Child, Command};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use aya::maps::{MapData, RingBuf};
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};
use tare_profile::{Call, Observer, Phase, Profile, SCHEMA, Taken, Way};

use super::call_log::{CallLog, LogEnd, LogError};
use super::calls::{self, COMPAT, Counted};
use super::features::Paths;
use super::follow::{self, Container, FollowError};
use super::lookups::Lookups;
use super::modules::Modules;
use super::record::{LogRecord, MADE_WORDS, Record, TaskRecord};
use super::tasks::Tasks;
use crate::bpf::{Image, Object, Point, RunTime, RunTimeSampler};
use crate::{Source, Unavailable, bpf_image};

const IMAGE: Image = bpf_image!("syscalls.bpf.o");
/// Words of the kernel side's `struct task`.
const TASK_WORDS: usize = 21;
/// Words of `struct slot`: the kernel stack, the thread, its task.
const SLOT_WORDS: usize = 2 + TASK_WORDS;
/// Entries of `numbers`.
const NUMBERS: u32 = 65_536;
const PROGRAM: usize = 3;
const MADE: usize = 4;
const COMM: usize = MADE + MADE_WORDS;
const PLACE: usize = TASK_WORDS - 1;
/// `enum role`.
const COUNTS: u64 = 0;
const STARTS_OTHERS: u64 = 2;
/// `enum lost`: everything that the profile lacks; 1 is the log's.
const LOST: [u32; 4] = [0, 2, 3, 4];
const LOST_LOG: u32 = 1;
/// Looks for threads that appear while others are being added.
const PASSES: usize = 16;

const POINTS: &[Point<'_>] = &[
    Point::raw("sched_process_fork", "on_fork"),
    Point::raw("sched_process_exec", "on_exec"),
    Point::raw("sched_process_exit", "on_exit"),
    Point::typed("sys_exit", "on_sys_exit"),
    Point::typed("sys_enter", "on_sys_enter"),
];

/// A command that cannot be observed from its start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel side did not take the observer's own thread.
    #[error("cannot follow the command: {0}")]
    Follow(Unavailable),
    /// It cannot be run.
    #[error(transparent)]
    Spawn(#[from] io::Error),
}

/// An observation.
pub struct Recorder {
    object: Object,
    records: RingBuf<MapData>,
    single_calls: RingBuf<MapData>,
    log: Option<Result<CallLog, LogError>>,
    meter: Option<RunTimeSampler>,
    unavailable: Vec<String>,
    tasks: Tasks,
    paths: Paths,
    lookups: Lookups,
    modules: Modules,
    container: Option<Container>,
    start: Instant,
    start_unix_s: u64,
    own_cpu_ns: u64,
    misunderstood: u64,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Ring buffers have nothing to show.
        f.debug_struct("Recorder")
            .field("start_unix_s", &self.start_unix_s)
            .field("container", &self.container)
            .field("unavailable", &self.unavailable)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Loads and attaches the kernel side. It follows no process yet. With a file,
    /// single calls are written to it.
    pub fn start(log: Option<File>) -> Result<Self, Unavailable> {
        numbers_agree()?;
        let logging = u32::from(log.is_some());
        let mut object = Object::load(IMAGE, &[("logging", logging)])?;
        if let Some(missing) = object.attach(POINTS).into_iter().next() {
            return Err(missing);
        }
        let records = object.take_ring("records")?;
        let single_calls = object.take_ring("single_calls")?;
        let mut unavailable = Vec::new();
        let meter = RunTimeSampler::start()
            .map_err(|why| unavailable.push(why.to_string()))
            .ok();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Self {
            object,
            records,
            single_calls,
            log: log.map(|file| Ok(CallLog::new(file, clock_ns(ClockId::Monotonic)))),
            meter,
            unavailable,
            tasks: Tasks::default(),
            paths: Paths::default(),
            lookups: Lookups::default(),
            modules: Modules::watch(),
            container: None,
            start: Instant::now(),
            start_unix_s: now.map_or(0, |time| time.as_secs()),
            own_cpu_ns: clock_ns(ClockId::ProcessCPUTime),
            misunderstood: 0,
        })
    }

    /// Starts a command and follows it from its `execve` on. Its program must be a
    /// path: what a search would try would be counted.
    pub fn spawn(&mut self, command: &mut Command) -> Result<Child, StartError> {
        let own = gettid().as_raw_pid().unsigned_abs();
        self.insert(own, own, STARTS_OTHERS)
            .map_err(StartError::Follow)?;
        self.start = Instant::now();
        let child = command.spawn();
        self.object.remove::<TASK_WORDS>("tasks", own);
        Ok(child?)
    }

    /// Follows a process that runs already, with its descendants; gives how many
    /// threads that are.
    pub fn follow(&mut self, pid: u32) -> Result<usize, FollowError> {
        follow::check(pid)?;
        let added = self.add_until_settled(|| follow::with_descendants(pid));
        match added {
            0 => Err(FollowError::NoProcess(pid)),
            threads => Ok(threads),
        }
    }

    /// Follows all processes in a container, also those that enter it later.
    pub fn follow_container(&mut self, container: Container) -> Result<usize, FollowError> {
        let name = container.cgroup.display().to_string();
        for pid in container.processes() {
            match follow::check(pid) {
                // Processes come and go in a container.
                Ok(()) | Err(FollowError::NoProcess(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let added = self.add_until_settled(|| container.processes().into_iter().collect());
        self.container = Some(container);
        match added {
            0 => Err(FollowError::Empty(name)),
            threads => Ok(threads),
        }
    }

    /// Takes what the kernel side has reported; call it several times a second.
    pub fn drain(&mut self) {
        while let Some(item) = self.records.next() {
            match Record::parse(&item) {
                None => self.misunderstood += 1,
                Some(Record::Task(task)) => self.tasks.add(task),
                Some(Record::Program(program)) => {
                    self.paths.started(&program);
                    self.lookups.started(&program);
                    self.tasks.program(program.what, program.path);
                }
                Some(Record::Open(file)) => self.paths.opened(&file),
                Some(Record::Path(path)) => self.paths.looked_at(&path),
                Some(Record::Mount(mount)) => self.paths.mounted(&mount),
                Some(Record::Lookup(path)) => self.lookups.found(&path),
            }
        }
        self.drain_log();
        if let Some(meter) = &mut self.meter {
            meter.turn();
        }
    }

    /// Looks around, which costs more: modules, processes that entered the
    /// container.
    pub fn look_around(&mut self) {
        self.modules.look();
        if let Some(container) = self.container.take() {
            for pid in container.processes() {
                self.add_threads(pid);
            }
            self.container = Some(container);
        }
    }

    /// Processes that are followed and live.
    pub fn living(&self) -> Vec<u32> {
        let all = self.object.numbered::<TASK_WORDS>("tasks");
        let mut processes: Vec<u32> = all
            .iter()
            .filter(|(_, words)| words[0] >> 32 != STARTS_OTHERS)
            .map(|(_, words)| words[0] as u32)
            .collect();
        processes.sort_unstable();
        processes.dedup();
        processes
    }

    /// Ends the observation.
    pub fn finish(mut self, label: &str, way: Way) -> (Profile, Option<Result<LogEnd, LogError>>) {
        let duration = self.start.elapsed();
        self.drain();
        self.let_go();
        self.drain();
        let Counted { mut calls, uses } = calls::read(&self.object);
        let observer = self.observer(&calls);
        if calls.contains_key(COMPAT) {
            let why = "calls of the 32-bit table are counted as one, `compat`, without their kinds";
            self.unavailable.push(why.to_owned());
        }
        let (tasks, unlisted) = self.tasks.finish(&mut calls);
        let (features, devices, unnamed) = self.paths.finish(&self.object, &uses);
        let (paths, unplaced) = self.lookups.finish();
        let log_lost = self.object.word("lost", LOST_LOG).unwrap_or(0);
        let log = self.log.map(|log| log.and_then(|log| log.finish(log_lost)));
        for (count, what) in [
            (unlisted, "tasks that ended are not listed"),
            (unnamed, "files were opened whose paths are not known"),
            (
                unplaced,
                "paths that were found are not listed: too long, too many, or relative to a directory that is not known",
            ),
            (observer.lost, "events found no room and are not counted"),
            (self.misunderstood, "records were not understood"),
        ] {
            if count > 0 {
                self.unavailable.push(format!("{count} {what}"));
            }
        }
        let profile = Profile {
            schema: SCHEMA.to_owned(),
            phases: vec![Phase {
                label: label.to_owned(),
                taken: Taken {
                    way,
                    start_unix_s: self.start_unix_s,
                    duration_ns: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
                    kernel_release: kernel_release(),
                    tare_version: env!("CARGO_PKG_VERSION").to_owned(),
                },
                observer,
            }],
            tasks,
            calls,
            features,
            paths,
            modules: self.modules.finish(),
            devices,
            unavailable: self.unavailable,
        };
        (profile, log)
    }

    fn add_until_settled(&mut self, who: impl Fn() -> Vec<u32>) -> usize {
        let mut added = 0;
        for _ in 0..PASSES {
            let new: usize = who().into_iter().map(|pid| self.add_threads(pid)).sum();
            added += new;
            if new == 0 {
                break;
            }
        }
        added
    }

    fn add_threads(&mut self, pid: u32) -> usize {
        let mut added = 0;
        for tid in follow::threads(pid) {
            let known = self.object.get::<TASK_WORDS>("tasks", tid).is_some();
            if known || self.insert(tid, pid, COUNTS).is_err() {
                continue;
            }
            added += 1;
        }
        added
    }

    fn insert(&mut self, tid: u32, pid: u32, role: u64) -> Result<(), Unavailable> {
        let folder = crate::proc::thread(pid, tid);
        let comm = crate::proc::comm(&folder).unwrap_or_default();
        let mut words = [0; TASK_WORDS];
        words[0] = u64::from(pid) | role << 32;
        for (place, byte) in comm.bytes().take(15).enumerate() {
            words[COMM + place / 8] |= u64::from(byte) << (8 * (place % 8));
        }
        if role == COUNTS {
            // Programs that `execve` started have numbers from below.
            let number = u32::MAX - pid;
            let program = std::fs::read_link(crate::proc::process(pid).join("exe"));
            if let Ok(program) = program {
                self.tasks.program(number, program.display().to_string());
            }
            words[PROGRAM] = u64::from(number) << 32;
        }
        self.object.insert("tasks", tid, words)?;
        // Where this is not set, the kernel side does not look for the task.
        self.object.set_element("numbers", tid % NUMBERS, [1])
    }

    /// Stops following; processes that still live are reported as they are.
    fn let_go(&mut self) {
        // First those that find a task by its stack: `on_exit` frees it for other tasks.
        self.object
            .detach(|function| function.starts_with("on_sys_"));
        self.object.detach(|_| true);
        for (tid, listed) in self.object.numbered::<TASK_WORDS>("tasks") {
            let words = self.state(&listed);
            if words[0] >> 32 == COUNTS {
                self.tasks.add(task(tid, &words));
            }
        }
    }

    /// The state of a task in `tasks`: there, or in the slot that it took since.
    fn state(&self, listed: &[u64; TASK_WORDS]) -> [u64; TASK_WORDS] {
        let place = u32::try_from(listed[PLACE]).ok();
        let slot = place
            .and_then(|place| place.checked_sub(1))
            .and_then(|index| self.object.element::<SLOT_WORDS>("slots", index));
        let mut words = *listed;
        if let Some(slot) = slot {
            words.copy_from_slice(&slot[SLOT_WORDS - TASK_WORDS..]);
        }
        words
    }

    fn drain_log(&mut self) {
        while let Some(item) = self.single_calls.next() {
            let Some(record) = LogRecord::parse(&item) else {
                self.misunderstood += 1;
                continue;
            };
            if let Some(Ok(log)) = &mut self.log
                && let Err(error) = log.write(&record)
            {
                self.log = Some(Err(error));
            }
        }
    }

    fn observer(&self, calls: &BTreeMap<String, Call>) -> Observer {
        let word = |index: &u32| self.object.word("lost", *index).unwrap_or(0);
        let others = self.object.per_cpu::<1>("other_runs", 0);
        // Each call's begin was one run, and its end.
        let of_calls = calls.values().map(|call| call.count + call.time.count());
        let events = of_calls.sum::<u64>() + others.iter().flatten().sum::<u64>();
        Observer {
            events,
            kernel_ns: RunTime::of(&self.object).of_runs(events),
            user_ns: clock_ns(ClockId::ProcessCPUTime).saturating_sub(self.own_cpu_ns),
            lost: LOST.iter().map(word).sum(),
        }
    }
}

fn task(tid: u32, words: &[u64; TASK_WORDS]) -> TaskRecord {
    let mut made = [0; MADE_WORDS];
    made.copy_from_slice(&words[MADE..COMM]);
    let bytes: Vec<u8> = words[COMM..COMM + 2]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    TaskRecord {
        ended: true,
        tid,
        tgid: words[0] as u32,
        calls: words[2],
        made,
        program: (words[PROGRAM] >> 32) as u32,
        comm: String::from_utf8_lossy(text).into_owned(),
    }
}

fn kernel_release() -> String {
    let name = rustix::system::uname();
    name.release().to_string_lossy().into_owned()
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let whole = u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000;
    whole + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Whether process IDs here equal the kernel's: in another PID namespace processes
/// cannot be followed by ID.
fn numbers_agree() -> Result<(), Unavailable> {
    /// `PROC_PID_INIT_INO` (`include/linux/proc_ns.h`).
    const FIRST: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(here) if here.to_str() != Some(FIRST) => Err(Unavailable::new(
            Source::Bpf,
            "this process is in a PID namespace: run tare on the host",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// Entries of `slots`.
    const SLOTS: u32 = 16_384;

    #[test]
    fn tasks_without_a_slot_are_counted_like_others() {
        let counts = |taken: u32| {
            let mut recorder = match Recorder::start(None) {
                Ok(recorder) => recorder,
                Err(why) => {
                    tare_vmtest::lacks(why);
                    return None;
                }
            };
            let mut slot = [0; SLOT_WORDS];
            slot[0] = 1;
            for index in 0..taken {
                recorder.object.set_element("slots", index, slot).unwrap();
            }
            let mut command = Command::new("/bin/dd");
            command.args(["if=/dev/zero", "of=/dev/null", "bs=1", "count=300"]);
            let mut child = recorder.spawn(command.stderr(Stdio::null())).unwrap();
            assert!(child.wait().unwrap().success());
            // The kernel ends a task before it tells the parent.
            assert_eq!(recorder.living(), [0; 0]);
            let (profile, _) = recorder.finish("", Way::Command(Vec::new()));
            let calls = profile.calls.into_iter();
            let calls: Vec<_> = calls.map(|(name, call)| (name, call.count)).collect();
            let all: u64 = calls.iter().map(|(_, count)| count).sum();
            assert_eq!(profile.tasks.len(), 1);
            assert_eq!(profile.tasks[0].calls, all);
            Some(calls)
        };
        let Some(with_slot) = counts(0) else { return };
        assert!(
            with_slot
                .iter()
                .any(|(name, count)| name == "read" && *count >= 300)
        );
        assert_eq!(counts(SLOTS), Some(with_slot));
    }
}
