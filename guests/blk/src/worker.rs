//! A thread with one command in flight, and the one that commits.

use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use core::time::Duration;

use tare_libos::block::{BlockError, Disk, SECTOR_BYTES};
use tare_libos::hal::clock;
use tare_libos::thread;
use tare_libos::time::Instant;

use crate::histogram::Histogram;
use crate::job::{Job, Switch};
use crate::pattern;
use crate::places::{Places, Random};

/// Sectors before a buffer's begin on the heap: buffers are aligned to them, as
/// direct I/O on the host wants it.
const ALIGN: usize = SECTOR_BYTES;
/// Blocks whose content a thread remembers when it verifies.
const REMEMBERED: u64 = 64;

/// What the threads of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Disk,
    pub(crate) job: Job,
    pub(crate) threads: u32,
    pub(crate) places: Places,
    /// Commands that still count and may begin.
    pub(crate) left: AtomicI64,
    /// Clock ticks at which counting begins.
    pub(crate) from: AtomicU64,
    pub(crate) stop: AtomicBool,
}

/// What a thread has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Times of reads and writes, in ticks.
    pub times: Histogram,
    /// Times of flushes, in ticks.
    pub flushes: Histogram,
    /// Times of a write and its flush together, in ticks.
    pub commits: Histogram,
    /// Commands that failed, by what the disk said.
    pub errors: u64,
    /// The last of these.
    pub error: Option<BlockError>,
    /// Blocks that held something else than was written.
    pub mismatches: u64,
}

impl Seen {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.times.merge(&other.times);
        self.flushes.merge(&other.flushes);
        self.commits.merge(&other.commits);
        self.errors += other.errors;
        self.error = self.error.or(other.error);
        self.mismatches += other.mismatches;
    }

    fn failed(&mut self, error: BlockError) {
        self.errors += 1;
        self.error = Some(error);
    }
}

/// Sends commands until the run ends.
pub(crate) fn work(shared: &Shared, index: u32) -> Seen {
    let mut worker = Worker::new(shared, index);
    let begins_ns = shared.job.ramp_ms * 1_000_000 * u64::from(index) / u64::from(shared.threads);
    if begins_ns > 0 {
        thread::sleep(Duration::from_nanos(begins_ns));
    }
    match shared.job.rate {
        None => worker.closed_loop(),
        Some(rate) => worker.paced(rate, index),
    }
    worker.read_back();
    worker.seen
}

/// Writes a block and flushes until the run ends.
pub(crate) fn commit(shared: &Shared) -> Seen {
    let mut seen = Seen::default();
    let mut buffer = vec![0x5a; shared.job.block as usize + ALIGN];
    let buffer = aligned(&mut buffer);
    // Behind the blocks of the others.
    let sector = shared.places.blocks * (shared.job.block / SECTOR_BYTES as u64);
    while !shared.stop.load(Ordering::Relaxed) {
        let begun = clock::ticks();
        let written = shared.disk.write(sector, buffer);
        let middle = clock::ticks();
        let flushed = written.and_then(|()| shared.disk.flush());
        let ended = clock::ticks();
        if begun < shared.from.load(Ordering::Relaxed) {
            continue;
        }
        match flushed {
            Ok(()) => {
                seen.flushes.note(ended.saturating_sub(middle));
                seen.commits.note(ended.saturating_sub(begun));
            }
            Err(error) => seen.failed(error),
        }
    }
    seen
}

struct Worker<'a> {
    shared: &'a Shared,
    sectors: u64,
    random: Random,
    buffer: Vec<u8>,
    stripe: Stripe,
    writes: u32,
    seen: Seen,
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared, index: u32) -> Self {
        Self {
            shared,
            sectors: shared.job.block / SECTOR_BYTES as u64,
            random: Random::new(shared.job.seed, index.into()),
            buffer: vec![0xa5; shared.job.block as usize + ALIGN],
            stripe: Stripe::new(shared, index),
            writes: 0,
            seen: Seen::default(),
        }
    }

    fn closed_loop(&mut self) {
        let mut now = clock::ticks();
        while let Some(counted) = self.next(now) {
            now = self.command(now, counted);
        }
    }

    /// Commands at their times, whether or not the last one was late.
    fn paced(&mut self, rate: u64, index: u32) {
        let threads = u64::from(self.shared.threads);
        let interval = Duration::from_nanos(1_000_000_000 * threads / rate);
        let first = Duration::from_nanos(1_000_000_000 * u64::from(index) / rate);
        let mut due = Instant::now() + first;
        loop {
            thread::sleep_until(due);
            let late = Instant::now() - due;
            let ticks = late.as_nanos() as u64 * (clock::ticks_per_s() / 1000) / 1_000_000;
            let begun = clock::ticks().saturating_sub(ticks);
            let Some(counted) = self.next(begun) else {
                return;
            };
            self.command(begun, counted);
            due += interval;
        }
    }

    /// Whether a command that begins `now` counts; `None` if it may not begin. Asked once for each:
    /// counting may begin while a command runs, which then took none of those that are left.
    fn next(&self, now: u64) -> Option<bool> {
        if self.shared.stop.load(Ordering::Relaxed) {
            return None;
        }
        if now < self.shared.from.load(Ordering::Relaxed) {
            return Some(false);
        }
        (self.shared.left.fetch_sub(1, Ordering::Relaxed) > 0).then_some(true)
    }

    /// One command; its time, which is noted if it is `counted`, is from `begun` to what it returns.
    fn command(&mut self, begun: u64, counted: bool) -> u64 {
        let reads = self.random.below(100) < u64::from(self.shared.job.read);
        let result = match (self.shared.job.verify, reads) {
            (Switch::On, _) => self.checked(reads),
            (Switch::Off, true) => {
                let sector = self.shared.places.next(&mut self.random) * self.sectors;
                self.shared.disk.read(sector, aligned(&mut self.buffer))
            }
            (Switch::Off, false) => {
                let sector = self.shared.places.next(&mut self.random) * self.sectors;
                self.shared.disk.write(sector, aligned(&mut self.buffer))
            }
        };
        let ended = clock::ticks();
        match result {
            Ok(()) if counted => self.seen.times.note(ended.saturating_sub(begun)),
            Ok(()) => {}
            Err(error) => self.seen.failed(error),
        }
        match (reads, self.shared.job.flush_every) {
            (false, Some(every)) => self.flush(every),
            _ => ended,
        }
    }

    fn flush(&mut self, every: u32) -> u64 {
        self.writes += 1;
        if self.writes < every {
            return clock::ticks();
        }
        self.writes = 0;
        let begun = clock::ticks();
        let result = self.shared.disk.flush();
        let ended = clock::ticks();
        match result {
            Ok(()) => self.seen.flushes.note(ended.saturating_sub(begun)),
            Err(error) => self.seen.failed(error),
        }
        ended
    }

    /// Reads or writes a block of the thread's own, and knows what must be there.
    fn checked(&mut self, reads: bool) -> Result<(), BlockError> {
        let place = self.random.below(self.stripe.generations.len() as u64) as usize;
        let block = self.stripe.block(place);
        let buffer = aligned(&mut self.buffer);
        let generation = self.stripe.generations[place];
        if reads && generation > 0 {
            self.shared.disk.read(block * self.sectors, buffer)?;
            self.seen.mismatches += u64::from(!pattern::matches(buffer, block, generation));
            return Ok(());
        }
        let next = generation.wrapping_add(1).max(1);
        pattern::fill(buffer, block, next);
        self.shared.disk.write(block * self.sectors, buffer)?;
        self.stripe.generations[place] = next;
        Ok(())
    }

    /// All blocks that were written must hold what was last written.
    fn read_back(&mut self) {
        for place in 0..self.stripe.generations.len() {
            let (block, generation) = (self.stripe.block(place), self.stripe.generations[place]);
            if generation == 0 {
                continue;
            }
            let buffer = aligned(&mut self.buffer);
            match self.shared.disk.read(block * self.sectors, buffer) {
                Ok(()) => {
                    let matches = pattern::matches(buffer, block, generation);
                    self.seen.mismatches += u64::from(!matches);
                }
                Err(error) => self.seen.failed(error),
            }
        }
    }
}

/// The blocks that only one thread writes.
struct Stripe {
    index: u64,
    threads: u64,
    generations: Vec<u32>,
}

impl Stripe {
    fn new(shared: &Shared, index: u32) -> Self {
        let own = shared.places.blocks / u64::from(shared.threads);
        let remembered = match shared.job.verify {
            Switch::On => own.clamp(1, REMEMBERED),
            Switch::Off => 0,
        };
        Self {
            index: index.into(),
            threads: shared.threads.into(),
            generations: vec![0; remembered as usize],
        }
    }

    fn block(&self, place: usize) -> u64 {
        place as u64 * self.threads + self.index
    }
}

/// The part of a buffer that begins at a multiple of [`ALIGN`].
fn aligned(buffer: &mut [u8]) -> &mut [u8] {
    let skip = buffer.as_ptr().align_offset(ALIGN).min(ALIGN);
    let len = buffer.len() - ALIGN;
    &mut buffer[skip..skip + len]
}

#[cfg(test)]
mod tests {
    use tare_libos::block::Access;

    use super::*;

    #[test]
    fn a_command_that_runs_when_counting_begins_does_not_count() {
        let job = Job::parse("count=1 warm_ms=0".split_whitespace()).unwrap();
        let shared = Shared {
            disk: Disk::in_memory("disk0", vec![0; 1 << 20], Access::ReadWrite),
            threads: 1,
            places: Places::new(16, job.order),
            left: AtomicI64::new(1),
            from: AtomicU64::new(u64::MAX),
            stop: AtomicBool::new(false),
            job,
        };
        let mut worker = Worker::new(&shared, 0);
        let (late, first) = (clock::ticks(), clock::ticks() + 1);
        let counted = worker.next(late).unwrap();
        shared.from.store(late, Ordering::Relaxed);
        worker.command(late, counted);
        assert_eq!(worker.seen.times.count(), 0);
        let counted = worker.next(first).unwrap();
        worker.command(first, counted);
        assert_eq!(worker.seen.times.count(), 1);
        assert_eq!(worker.next(first), None);
    }
}
