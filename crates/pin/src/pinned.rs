//! Moving threads, reading back, catching those that begin meanwhile.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustix::io::Errno;
use tare_policy::placement::CpuMask;
use tare_probe::vm::Role;

use crate::affinity;
use crate::cpu_list::CpuList;
use crate::journal::{Entry, Journal, Store, StoreError, Undone, write_cpusets};
use crate::plan::{Plan, Seat};
use crate::target::Cpuset;
use crate::task::TaskId;

/// Most looks for threads that begin while others are moved.
const ROUNDS: usize = 200;
/// Looks in a row without a new thread that end the work.
const QUIET: usize = 2;

/// Why a placement was not made; what had been changed is put back.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] StoreError),
    /// The kernel refused.
    #[error("the kernel refuses to move thread {tid} ({name}) to CPU {cpus}")]
    Refused {
        /// The thread.
        tid: u32,
        /// Its name.
        name: String,
        /// Where to.
        cpus: Box<CpuList>,
        /// Why.
        source: Errno,
    },
    /// The kernel took something else.
    #[error("thread {tid} ({name}) was pinned to CPU {cpus}, but the kernel reports {got}")]
    Changed {
        /// The thread.
        tid: u32,
        /// Its name.
        name: String,
        /// Where to.
        cpus: Box<CpuList>,
        /// Where it is.
        got: Box<CpuList>,
    },
    /// A cgroup cannot be changed.
    #[error("cannot give {folder} the CPUs {cpus}")]
    Cpuset {
        /// The cgroup.
        folder: PathBuf,
        /// Which CPUs.
        cpus: Box<CpuList>,
        /// Why.
        source: std::io::Error,
    },
    /// Threads begin faster than they can be moved.
    #[error("{0} starts threads faster than tare can pin them")]
    Restless(String),
    /// It has ended.
    #[error("{0} has ended")]
    Ended(String),
    /// The user asked to stop.
    #[error("interrupted; the old placement is restored")]
    Interrupted,
}

/// A placement that is put back when this is dropped, unless it is kept.
#[derive(Debug)]
pub struct Pinned {
    plan: Plan,
    journal: Option<Journal>,
    known: BTreeMap<TaskId, CpuMask>,
    /// First threads' CPUs before, by process: what a new thread would have had.
    before: BTreeMap<u32, CpuMask>,
}

/// Threads that one look found.
struct Caught {
    fresh: usize,
    moved: usize,
}

/// What was done about one thread.
#[derive(PartialEq, Eq)]
enum Seated {
    /// Nothing: it is in its place, or it has ended.
    There,
    /// It was moved.
    Moved,
}

/// Places every thread of the plan's target; `stop` is called between steps.
pub fn pin(
    store: &Store,
    asked: &str,
    plan: &Plan,
    stop: &dyn Fn() -> bool,
) -> Result<Pinned, PinError> {
    let mut pinned = Pinned {
        plan: plan.clone(),
        journal: Some(store.begin(asked, &plan.target)?),
        known: BTreeMap::new(),
        before: BTreeMap::new(),
    };
    if let Some(cpuset) = plan.cpuset() {
        pinned.bound(cpuset)?;
    }
    pinned.pin_until_stable(stop)?;
    Ok(pinned)
}

impl Pinned {
    /// What was planned.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Threads that were placed so far, also those that have ended.
    pub fn placed(&self) -> usize {
        self.known.len()
    }

    /// Places threads that have begun since; says how many. Call it again and again
    /// while the placement shall hold.
    pub fn catch(&mut self) -> Result<usize, PinError> {
        Ok(self.look()?.fresh)
    }

    /// Each thread with the CPUs that the kernel says it has now.
    pub fn read_back(&self) -> Vec<(Seat, CpuMask)> {
        let seats = self.plan.seats().into_iter();
        seats
            .filter_map(|seat| {
                let now = affinity::get(seat.task.id.tid).ok()?;
                Some((seat, now))
            })
            .collect()
    }

    /// Leaves the placement as it is when this process ends.
    pub fn keep(mut self) -> Result<(), PinError> {
        match self.journal.take() {
            Some(journal) => Ok(journal.keep()?),
            None => Ok(()),
        }
    }

    /// Puts everything back.
    pub fn undo(mut self) -> Undone {
        let journal = self.journal.take();
        journal.map(Journal::undo).unwrap_or_default()
    }

    fn look(&mut self) -> Result<Caught, PinError> {
        let seats = self.plan.seats();
        let fresh: Vec<Seat> = seats
            .into_iter()
            .filter(|seat| !self.known.contains_key(&seat.task.id))
            .collect();
        let count = fresh.len();
        let moved = match count {
            0 => 0,
            _ => self.place(fresh)?,
        };
        Ok(Caught {
            fresh: count,
            moved,
        })
    }

    fn append(&mut self, entries: Vec<Entry>) -> Result<(), PinError> {
        match &mut self.journal {
            Some(journal) => Ok(journal.append(entries)?),
            None => Ok(()),
        }
    }

    /// A cgroup's CPUs bound all its threads at once, also those that begin later.
    fn bound(&mut self, cpuset: &Cpuset) -> Result<(), PinError> {
        let wanted = self.plan.placement.all;
        let seats = self.plan.seats();
        let threads = seats.iter().filter_map(|seat| {
            let before = affinity::get(seat.task.id.tid).ok()?;
            Some(Entry::Thread {
                id: seat.task.id,
                before: CpuList(before),
                wanted: CpuList(wanted),
            })
        });
        let mut entries: Vec<Entry> = threads.collect();
        let mut steps = Vec::new();
        for (depth, cpuset) in cpuset.with_descendants().into_iter().enumerate() {
            let Some(before) = cpuset.cpus() else {
                continue;
            };
            // One below without CPUs takes those of the one above.
            if depth > 0 && before.is_empty() {
                continue;
            }
            entries.push(Entry::Cpuset {
                folder: cpuset.folder.clone(),
                before: CpuList(before),
                wanted: CpuList(wanted),
            });
            steps.push((cpuset.folder, wanted));
        }
        self.append(entries)?;
        write_cpusets(&steps).map_err(|(folder, source)| PinError::Cpuset {
            folder,
            cpus: Box::new(CpuList(wanted)),
            source,
        })
    }

    fn pin_until_stable(&mut self, stop: &dyn Fn() -> bool) -> Result<(), PinError> {
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            if stop() {
                return Err(PinError::Interrupted);
            }
            // A new thread that is in its place already has a maker that is, too.
            quiet = match self.look()?.moved {
                0 => quiet + 1,
                _ => 0,
            };
            if quiet >= QUIET {
                return if self.known.is_empty() {
                    Err(PinError::Ended(self.plan.target.name.clone()))
                } else {
                    Ok(())
                };
            }
        }
        Err(PinError::Restless(self.plan.target.name.clone()))
    }

    /// Journals these threads, then moves them; says how many it moved.
    fn place(&mut self, seats: Vec<Seat>) -> Result<usize, PinError> {
        if self.plan.cpuset().is_none() {
            let entries = seats.iter().filter_map(|seat| self.entry(seat)).collect();
            self.append(entries)?;
        }
        let mut moved = 0;
        for seat in seats {
            moved += usize::from(self.seat(&seat)? == Seated::Moved);
            self.known.insert(seat.task.id, seat.cpus);
        }
        Ok(moved)
    }

    fn entry(&mut self, seat: &Seat) -> Option<Entry> {
        let id = seat.task.id;
        let now = affinity::get(id.tid).ok()?;
        let first = self.before.get(&id.pid).copied();
        let before = match first {
            // A thread that began on CPUs that were given has them from its maker.
            Some(first) if self.known.values().any(|given| *given == now) => first,
            _ => now,
        };
        if id.tid == id.pid {
            self.before.entry(id.pid).or_insert(before);
        }
        Some(Entry::Thread {
            id,
            before: CpuList(before),
            wanted: CpuList(seat.cpus),
        })
    }

    fn seat(&self, seat: &Seat) -> Result<Seated, PinError> {
        let tid = seat.task.id.tid;
        let name = || seat.task.name.clone();
        let cpus = Box::new(CpuList(seat.cpus));
        let bounded = self.plan.cpuset().is_some();
        let outcome = match affinity::get(tid) {
            // Its own narrower choice within the cgroup's CPUs stays.
            Ok(now) if bounded && now.is_within(&seat.cpus) => return Ok(Seated::There),
            Ok(now) if now == seat.cpus => return Ok(Seated::There),
            Ok(_) => affinity::set(tid, &seat.cpus),
            Err(errno) => Err(errno),
        };
        match outcome {
            Ok(got) if got == seat.cpus => Ok(Seated::Moved),
            // It ended meanwhile.
            Err(Errno::SRCH) => Ok(Seated::There),
            // The kernel keeps some of its threads where they are.
            Err(Errno::INVAL) if is_kernel(seat) => Ok(Seated::There),
            Ok(got) => Err(PinError::Changed {
                tid,
                name: name(),
                cpus,
                got: Box::new(CpuList(got)),
            }),
            Err(source) => Err(PinError::Refused {
                tid,
                name: name(),
                cpus,
                source,
            }),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            journal.undo();
        }
    }
}

fn is_kernel(seat: &Seat) -> bool {
    matches!(seat.role, Role::Kvm | Role::Vhost)
}
