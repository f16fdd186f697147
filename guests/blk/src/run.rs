//! Runs of a job.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use core::time::Duration;

use tare_libos::block::{Access, Disk, DiskStats, SECTOR_BYTES};
use tare_libos::hal::clock;
use tare_libos::thread::{self, JoinHandle, SpawnError};

use crate::job::{Job, Length, Switch};
use crate::places::Places;
use crate::worker::{self, Seen, Shared};

/// Stack of a thread, bytes.
const STACK_BYTES: usize = 16 * 1024;
/// How often the end of a run of this many commands is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// Why a job cannot be done on a disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// It would write.
    #[error("the disk {0} is read-only, and the job writes: read=100, committer=off")]
    ReadOnly(String),
    /// There are not enough blocks.
    #[error("the disk {disk} has {blocks} blocks of that size and span, {wanted} are needed")]
    TooSmall {
        /// The disk.
        disk: String,
        /// Blocks that there are.
        blocks: u64,
        /// Blocks that the threads need.
        wanted: u64,
    },
    /// No memory for a thread.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

/// What came out of a run.
#[derive(Clone, Debug)]
pub struct JobResult {
    /// Commands in flight.
    pub cif: u32,
    /// Ticks for which commands counted.
    pub ticks: u64,
    /// What all threads saw.
    pub seen: Seen,
    /// What happened at the device while commands counted.
    pub device: DiskStats,
}

/// What a run has come to, while all threads are at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// From now on commands count.
    Begin,
    /// And now no longer.
    End,
}

/// Does the job once with `cif` commands in flight; `at` is called at its edges.
pub fn run(
    job: &Job,
    disk: &Disk,
    cif: u32,
    mut at: impl FnMut(Edge),
) -> Result<JobResult, RunError> {
    let places = places(job, disk, cif)?;
    let shared = Arc::new(Shared {
        disk: disk.clone(),
        job: job.clone(),
        threads: cif,
        places,
        left: AtomicI64::new(match job.length {
            Length::Count(count) => count as i64,
            Length::Ms(_) => i64::MAX,
        }),
        from: AtomicU64::new(u64::MAX),
        stop: AtomicBool::new(false),
    });
    let threads = start(&shared)?;
    thread::sleep(Duration::from_millis(job.warm_ms));
    at(Edge::Begin);
    let before = disk.stats();
    let from = clock::ticks();
    shared.from.store(from, Ordering::Relaxed);
    match job.length {
        Length::Ms(ms) => thread::sleep(Duration::from_millis(ms)),
        Length::Count(_) => {
            while shared.left.load(Ordering::Relaxed) > 0 {
                thread::sleep(LOOK);
            }
        }
    }
    let after = disk.stats();
    let ticks = clock::ticks().saturating_sub(from);
    at(Edge::End);
    shared.stop.store(true, Ordering::Relaxed);
    let mut seen = Seen::default();
    for thread in threads {
        seen.merge(&thread.join());
    }
    Ok(JobResult {
        cif,
        ticks,
        seen,
        device: difference(&before, &after),
    })
}

fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<Seen>>, SpawnError> {
    let cores = thread::cores();
    let mut threads = Vec::new();
    let mut spawn = |core: usize, shared: Arc<Shared>, index: Option<u32>| {
        let builder = thread::Builder::new().stack_size(STACK_BYTES).core(core);
        let thread = builder.spawn(move || match index {
            Some(index) => worker::work(&shared, index),
            None => worker::commit(&shared),
        });
        thread.map(|thread| threads.push(thread))
    };
    let mut spawned = Ok(());
    if shared.job.committer == Switch::On {
        spawned = spawn(0, Arc::clone(shared), None);
    }
    for index in 0..shared.threads {
        spawned = spawned.and_then(|()| {
            let core = index as usize % cores;
            spawn(core, Arc::clone(shared), Some(index))
        });
    }
    if let Err(error) = spawned {
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join();
        }
        return Err(error);
    }
    Ok(threads)
}

/// The blocks of the job; one behind them is the committer's.
fn places(job: &Job, disk: &Disk, cif: u32) -> Result<Places, RunError> {
    let writes = job.read < 100 || job.committer == Switch::On;
    if writes && disk.access() == Access::ReadOnly {
        return Err(RunError::ReadOnly(disk.name().into()));
    }
    let bytes = job.span.unwrap_or(u64::MAX).min(disk.bytes());
    let blocks = (bytes / job.block).saturating_sub(u64::from(job.committer == Switch::On));
    let wanted = match job.verify {
        Switch::On => cif.into(),
        Switch::Off => 1,
    };
    if blocks < wanted {
        return Err(RunError::TooSmall {
            disk: disk.name().into(),
            blocks,
            wanted,
        });
    }
    debug_assert!(job.block.is_multiple_of(SECTOR_BYTES as u64));
    Ok(Places::new(blocks, job.order))
}

fn difference(before: &DiskStats, after: &DiskStats) -> DiskStats {
    DiskStats {
        interrupts: after.interrupts - before.interrupts,
        completions: after.completions - before.completions,
        errors: after.errors - before.errors,
        notifications: after.notifications - before.notifications,
        waits_for_room: after.waits_for_room - before.waits_for_room,
    }
}
