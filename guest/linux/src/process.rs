//! The one process.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general as c;
use tare_libos::sync::SpinLock;
use tare_libos::time::Instant;
use tare_program::Start;

use crate::errno;
use crate::files::endpoint::Name;
use crate::files::tree::Tree;
use crate::files::unix::Named;
use crate::files::{MOST, Table, Watchers};
use crate::futex::Futexes;
use crate::owned::{Lines, Word};
use crate::pending::{MOST_WAITING, Pending};
use crate::shared::Mappings;
use crate::signals::Actions;
use crate::space::{FIRST_STACK_BYTES, Space};
use crate::thread::Thread;
use crate::timers::{Counted, Timers};

/// The process's number.
pub(crate) const PID: u32 = 1;
/// Most threads.
pub(crate) const MOST_THREADS: usize = 4096;

/// A limit of a resource: the one that holds, and what it may be raised to.
pub(crate) type Limit = [u64; 2];

/// The limits of resources by number, as a program begins with them.
fn first_limits() -> [Limit; c::RLIM_NLIMITS as usize] {
    let mut limits = [[u64::MAX; 2]; c::RLIM_NLIMITS as usize];
    for (resource, limit) in [
        (c::RLIMIT_NOFILE, MOST as u64),
        (c::RLIMIT_STACK, FIRST_STACK_BYTES),
        (c::RLIMIT_NPROC, MOST_THREADS as u64),
        (c::RLIMIT_SIGPENDING, MOST_WAITING as u64),
        (c::RLIMIT_CORE, 0),
    ] {
        limits[resource as usize] = [limit; 2];
    }
    limits
}

/// Signals that came for the process or a thread of it.
#[derive(Default)]
pub(crate) struct Arrivals {
    count: AtomicU64,
    pub(crate) watchers: Watchers,
}

impl Arrivals {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Notes one.
    pub(crate) fn note(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.watchers.wake();
    }
}

/// What a process shows of its program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// For `/proc/self/exe`.
    pub(crate) path: String,
    /// For `/proc/self/cmdline`.
    pub(crate) command: String,
}

impl Shown {
    pub(crate) fn of(start: &Start) -> Self {
        Self {
            path: start.path.clone(),
            command: format!("{}\0", start.arguments.join("\0")),
        }
    }
}

/// What the program's threads share.
pub(crate) struct Process {
    pub(crate) space: SpinLock<Space>,
    /// Files of a volume that are mapped for writing.
    pub(crate) shared: Mappings,
    pub(crate) files: SpinLock<Table>,
    pub(crate) tree: Tree,
    /// Sockets with abstract names.
    pub(crate) abstract_names: SpinLock<BTreeMap<Name, Named>>,
    /// Permissions that new files do not get (`umask`).
    pub(crate) mask: AtomicU32,
    pub(crate) timers: Timers,
    /// The working directory, absolute.
    pub(crate) directory: SpinLock<String>,
    pub(crate) threads: SpinLock<BTreeMap<u32, Arc<Thread>>>,
    pub(crate) last_number: AtomicU32,
    pub(crate) futexes: Futexes,
    /// Those that the kernel hands from owner to owner.
    pub(crate) owned_futexes: Lines,
    pub(crate) actions: SpinLock<Actions>,
    /// Signals for any thread.
    pub(crate) pending: Pending,
    /// Signals that came, for whom they are files.
    pub(crate) arrivals: Arrivals,
    /// CPU time of threads that have ended, and the most that a look has found of all.
    pub(crate) ended_ns: AtomicU64,
    pub(crate) seen_ns: AtomicU64,
    pub(crate) limits: SpinLock<[Limit; c::RLIM_NLIMITS as usize]>,
    /// Calls that are not served, by number: how often each was made.
    pub(crate) unknown: SpinLock<Vec<(u32, u32)>>,
    pub(crate) shown: SpinLock<Shown>,
    pub(crate) hostname: String,
}

/// A word of the program's that is a futex.
pub(crate) struct FutexWord<'a> {
    pub(crate) process: &'a Process,
    pub(crate) address: u64,
}

impl Word for FutexWord<'_> {
    fn exchange(&self, expected: u32, new: u32) -> errno::Result<u32> {
        let process = self.process;
        process.exchange_futex_word(self.address, expected, new)
    }
}

impl Process {
    /// As it is before its first thread and its program are there.
    pub(crate) fn new(tree: Tree, files: Table, start: &Start) -> Self {
        Self {
            space: SpinLock::new(Space::new()),
            shared: SpinLock::new(Vec::new()),
            files: SpinLock::new(files),
            tree,
            abstract_names: SpinLock::new(BTreeMap::new()),
            mask: AtomicU32::new(0o022),
            timers: Timers::default(),
            directory: SpinLock::new(start.directory.trim_end_matches('/').into()),
            threads: SpinLock::new(BTreeMap::new()),
            last_number: AtomicU32::new(PID),
            futexes: Futexes::new(),
            owned_futexes: Lines::new(),
            actions: SpinLock::new(Actions::new()),
            pending: Pending::new(),
            arrivals: Arrivals::default(),
            ended_ns: AtomicU64::new(0),
            seen_ns: AtomicU64::new(0),
            limits: SpinLock::new(first_limits()),
            unknown: SpinLock::new(Vec::new()),
            shown: SpinLock::new(Shown::of(start)),
            hostname: start.hostname.clone(),
        }
    }

    /// One without files, with its first thread.
    #[cfg(test)]
    pub(crate) fn of_test() -> (Arc<Self>, Arc<Thread>) {
        let process = Self::new(Tree::new(&[]), Table::new(), &Start::default());
        let thread = Thread::first(PID, [0; 16]);
        process.threads.lock().insert(PID, thread.clone());
        (Arc::new(process), thread)
    }

    /// The path of its program.
    pub(crate) fn path(&self) -> String {
        self.shown.lock().path.clone()
    }

    /// The CPU time of its threads; does not go back.
    pub(crate) fn cpu_ns(&self, now_ns: u64) -> u64 {
        self.cpu_use(now_ns).0
    }

    /// The same, and how many threads run.
    pub(crate) fn cpu_use(&self, now_ns: u64) -> (u64, usize) {
        let threads = self.threads.lock();
        let (mut live_ns, mut running) = (0, 0);
        for thread in threads.values() {
            live_ns += thread.cpu_time.ns(now_ns);
            running += usize::from(thread.cpu_time.runs());
        }
        let ns = self.ended_ns.load(Ordering::Relaxed) + live_ns;
        let ns = ns.max(self.seen_ns.fetch_max(ns, Ordering::Relaxed));
        (ns, running)
    }

    /// How much of what a timer counts has passed, nanoseconds; 0 for a thread that has ended.
    pub(crate) fn counted_ns(&self, counted: Counted) -> u64 {
        let now_ns = Instant::now().as_nanos();
        match counted {
            Counted::Time(_) => now_ns,
            Counted::Process => self.cpu_ns(now_ns),
            Counted::Thread(number) => {
                let threads = self.threads.lock();
                let thread = threads.get(&number);
                thread.map_or(0, |thread| thread.cpu_time.ns(now_ns))
            }
        }
    }
}
