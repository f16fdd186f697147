//! Whether others wanted the CPU while a run measured: the time that the run's own threads were
//! ready and had none, and what others used meanwhile. A thread reads both each second, so
//! that what has ended since counts up to its last reading. What lives for less than that is in
//! the CPU time that the kernel keeps of children that have ended. A machine's network helper
//! (passt) is in neither, since it detaches itself: who finds one says so with [`Helper::new`].

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::CpuReading;

/// Between two readings: rare enough to cost nothing, some 0.3 ms each.
const EACH: Duration = Duration::from_secs(1);
/// Of `/proc/stat`: nanoseconds of a tick.
const TICK_NS: f64 = 1e7;

/// The helpers that live.
static HELPERS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A process that belongs to the run without being its descendant, until this is dropped.
#[derive(Debug)]
pub(crate) struct Helper(u32);

impl Helper {
    pub(crate) fn new(pid: u32) -> Self {
        helpers(|all| all.push(pid));
        Self(pid)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        helpers(|all| {
            let at = all.iter().position(|pid| *pid == self.0);
            at.map(|at| all.swap_remove(at));
        });
    }
}

fn helpers<T>(of: impl FnOnce(&mut Vec<u32>) -> T) -> T {
    of(&mut HELPERS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What a run's threads had, and others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Crowd {
    /// Of the time that its threads wanted a CPU, the share that they waited for one, percent.
    pub own_wait_pct: f64,
    /// CPU time of others, percent of all CPUs.
    pub others_cpu_pct: f64,
}

/// Watches from when it is made.
#[derive(Debug)]
pub struct Crowding {
    stop: Sender<()>,
    thread: JoinHandle<Sums>,
    begin: Option<Ticks>,
    own_begin: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    run_ns: f64,
    helper_ns: f64,
    wait_ns: f64,
}

/// Ticks of all CPUs since the computer began.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    all: f64,
    busy: f64,
}

impl Ticks {
    fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<f64> = line
            .split_whitespace()
            .filter_map(|t| t.parse().ok())
            .collect();
        let all: f64 = ticks.iter().take(8).sum();
        let idle: f64 = ticks.get(3..5)?.iter().sum();
        Some(Self {
            all,
            busy: all - idle,
        })
    }
}

/// CPU time of this process and of its children that have ended, ticks (proc(5), `stat`).
fn own_ticks() -> Option<f64> {
    own_ticks_of(&fs::read_to_string("/proc/self/stat").ok()?)
}

fn own_ticks_of(stat: &str) -> Option<f64> {
    // The name before it may hold anything. From the state on, utime is the 12th field.
    let (_, fields) = stat.rsplit_once(')')?;
    let times: Option<Vec<f64>> = fields
        .split_whitespace()
        .skip(11)
        .take(4)
        .map(|time| time.parse().ok())
        .collect();
    times.filter(|it| it.len() == 4).map(|it| it.iter().sum())
}

impl Crowding {
    /// Watches this process and what it starts; `None` if no thread can be made.
    pub fn begin() -> Option<Self> {
        let (stop, stopped) = channel::<()>();
        let (begin, own_begin) = (Ticks::read(), own_ticks());
        let of_this = || {
            let helpers = helpers(|all| all.clone());
            CpuReading::read(std::process::id(), &helpers).ok()
        };
        let first = of_this();
        let watch = move || {
            let (mut sums, mut last) = (Sums::default(), first);
            loop {
                let over = stopped.recv_timeout(EACH) != Err(RecvTimeoutError::Timeout);
                let now = of_this();
                if let (Some(now), Some(before)) = (&now, &last) {
                    let spent = now.since(before);
                    sums.run_ns += spent.monitor_ns as f64;
                    sums.helper_ns += spent.helper_ns as f64;
                    sums.wait_ns += spent.wait_ns as f64;
                }
                if over {
                    return sums;
                }
                last = now.or(last);
            }
        };
        let thread = thread::Builder::new().name("crowding".to_owned());
        Some(Self {
            stop,
            thread: thread.spawn(watch).ok()?,
            begin,
            own_begin,
        })
    }

    /// What was seen until now; `None` where /proc does not say it.
    pub fn end(self) -> Option<Crowd> {
        let (begin, own_begin) = (self.begin, self.own_begin);
        let mut own = self.sums()?;
        if let Some((begin, end)) = own_begin.zip(own_ticks()) {
            own.run_ns = own.run_ns.max((end - begin) * TICK_NS);
        }
        own.run_ns += own.helper_ns;
        let (begin, end) = (begin?, Ticks::read()?);
        Crowd::of(own, end.all - begin.all, end.busy - begin.busy)
    }

    fn sums(self) -> Option<Sums> {
        drop(self.stop);
        self.thread.join().ok()
    }
}

impl Crowd {
    fn of(own: Sums, all_ticks: f64, busy_ticks: f64) -> Option<Self> {
        let wanted = own.run_ns + own.wait_ns;
        if all_ticks <= 0.0 || wanted <= 0.0 {
            return None;
        }
        let others = (busy_ticks - own.run_ns / TICK_NS) / all_ticks;
        Some(Self {
            own_wait_pct: own.wait_ns / wanted * 100.0,
            others_cpu_pct: (others * 100.0).clamp(0.0, 100.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use tare_probe::clock::thread_cpu_ns;

    use super::*;

    /// CPU time in which the scheduler's tick charges something, whatever its rate.
    const WORK_NS: u64 = 40_000_000;

    #[test]
    fn waiting_and_others_are_shares_of_what_was_wanted_and_of_all_cpus() {
        let own = Sums {
            run_ns: 3e9,
            wait_ns: 1e9,
            ..Sums::default()
        };
        // 10 s on two CPUs, busy for 8 s of CPU time, of which 3 s are the run's own.
        let crowd = Crowd::of(own, 2000.0, 800.0).unwrap();
        assert_eq!((crowd.own_wait_pct, crowd.others_cpu_pct), (25.0, 25.0));
        assert_eq!(Crowd::of(Sums::default(), 2000.0, 800.0), None);
        let ticks = Ticks::parse("cpu  10 0 20 60 10 0 0 0 5 0\ncpu0 1\n").unwrap();
        assert_eq!((ticks.all, ticks.busy), (100.0, 30.0));
        assert!(Ticks::parse("intr 1").is_none());
    }

    #[test]
    fn children_that_have_ended_count_as_the_runs_own() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 90 0 1 0 10 20 300 4000 20 0 1 0 5 6 7";
        assert_eq!(own_ticks_of(stat), Some(4330.0));
        assert_eq!(own_ticks_of("7 (a) S 1"), None);
        assert!(own_ticks().is_some());
    }

    #[test]
    fn a_run_that_works_is_watched_to_its_end() {
        let crowding = Crowding::begin().unwrap();
        // This thread's own: the process's sum falls where a thread of another test ends.
        let (before, mut turns) = (thread_cpu_ns(), 0u64);
        while thread_cpu_ns() - before < WORK_NS {
            turns = std::hint::black_box(turns + 1);
        }
        let crowd = crowding.end().unwrap();
        assert!((0.0..=100.0).contains(&crowd.own_wait_pct), "{crowd:?}");
    }

    /// It has passt's name, and is not a child of this process.
    #[test]
    fn a_helper_that_has_detached_itself_is_the_runs_own() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("passt");
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let crowding = Crowding::begin().unwrap();
        let script = format!(
            "{} -c 'i=0; while [ $i -lt 100000000 ]; do i=$((i+1)); done' >/dev/null 2>&1 & echo $!",
            program.display()
        );
        let started = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        let pid: u32 = String::from_utf8(started.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let helper = Helper::new(pid);
        let stat = format!("/proc/{pid}/schedstat");
        let spent = || {
            let text = fs::read_to_string(&stat).unwrap();
            text.split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        while spent() < WORK_NS {
            thread::sleep(Duration::from_millis(5));
        }
        let sums = crowding.sums().unwrap();
        let raw = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(raw, rustix::process::Signal::KILL).unwrap();
        assert!(sums.helper_ns >= WORK_NS as f64, "{sums:?}");
        drop(helper);
        assert!(helpers(|all| !all.contains(&pid)));
    }
}
