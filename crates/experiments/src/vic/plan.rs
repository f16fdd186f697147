//! Loads, arms, and how much of each.

use std::time::Duration;

use tare_lab::kit::Depth;

use super::database;

/// Commands in flight. From 3 to 8 the rule begins to hold completions: each is measured.
pub(super) const CIF: [u32; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64];
/// Those that a machine goes through.
const CIF_SHALLOW: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// Those of a disk that answers at once.
const CIF_CACHED: [u32; 2] = [1, 32];
/// Threads for each command that is to be with the disk while the guest is busy.
const BUSY_THREADS: u32 = 2;

/// What the guest asks of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// 4 KiB random reads.
    Random,
    /// 8 KiB, two thirds reads, random: as SQLIOSim.
    Mixed,
    /// 64 KiB sequential reads.
    Sequential,
    /// 4 KiB random reads, and one thread that writes and flushes.
    Committer,
    /// The first, where it is not the disk that is waited for: a disk that is faster
    /// than the guest, and more threads than commands are with it.
    Busy,
    /// The first on the file as it is, in the host's cache.
    Cached,
}

impl Load {
    pub(super) const ALL: [Self; 6] = [
        Self::Random,
        Self::Mixed,
        Self::Sequential,
        Self::Committer,
        Self::Busy,
        Self::Cached,
    ];

    /// Words for the guest.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Random | Self::Cached => "block=4K read=100 order=random",
            // More requests than a queue has descriptors for.
            Self::Busy => "block=4K read=100 order=random blk_indirect=on",
            Self::Mixed => "block=8K read=67 order=random",
            Self::Sequential => "block=64K read=100 order=sequential",
            Self::Committer => "block=4K read=100 order=random committer=on",
        }
    }

    /// What stands between a figure's name and its arm; the first has none.
    pub(super) const fn infix(self) -> &'static str {
        match self {
            Self::Random => "",
            Self::Mixed => ".mixed8k",
            Self::Sequential => ".seq64k",
            Self::Committer => ".committer",
            Self::Busy => ".busy",
            Self::Cached => ".cached",
        }
    }

    /// For people.
    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::Random => "4 KiB random reads",
            Self::Mixed => "8 KiB, two thirds reads",
            Self::Sequential => "64 KiB sequential reads",
            Self::Committer => "4 KiB random reads beside one that commits",
            Self::Busy => "4 KiB random reads of a guest that is never idle",
            Self::Cached => "4 KiB random reads from the host's cache",
        }
    }

    /// Threads of the guest for `cif` commands with the disk.
    pub(super) const fn threads(self, cif: u32) -> u32 {
        match self {
            Self::Busy => cif * BUSY_THREADS,
            _ => cif,
        }
    }

    /// Requests in flight that this number of threads keeps.
    pub(super) const fn cif(self, threads: u32) -> u32 {
        threads / self.threads(1)
    }

    /// Whether it makes sense where the disk takes no longer than it does: there the
    /// first load is this one.
    pub(super) const fn needs_slow_disk(self) -> bool {
        matches!(self, Self::Busy | Self::Cached)
    }
}

/// Who interrupts, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// Tare's device, every completion delivered.
    Off,
    /// The same again: what two arms that are the same differ by.
    Again,
    /// Tare's device with vIC.
    Vic,
    /// Tare's device, one in eight whatever the depth: what vIC is not.
    Plain,
    /// QEMU's own device on the same KVM.
    Qemu,
}

impl Arm {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Again => "again",
            Self::Vic => "vic",
            Self::Plain => "plain",
            Self::Qemu => "qemu",
        }
    }

    pub(super) const fn engine(self) -> &'static str {
        match self {
            Self::Qemu => "qemu-kvm",
            _ => "tare",
        }
    }

    /// What follows the file in `--disk`.
    pub(super) const fn disk_words(self) -> &'static str {
        match self {
            Self::Off | Self::Again => ",coalesce=off",
            Self::Vic => ",coalesce=auto",
            Self::Plain => ",coalesce=1/8",
            Self::Qemu => "",
        }
    }

    /// The arms of a load.
    pub(super) const fn of(load: Load) -> &'static [Self] {
        match load {
            Load::Random => &[Self::Off, Self::Vic, Self::Again, Self::Qemu],
            Load::Cached => &[Self::Off, Self::Vic, Self::Qemu],
            Load::Mixed | Load::Sequential => &[Self::Off, Self::Vic],
            Load::Busy => &[Self::Off, Self::Vic, Self::Again],
            Load::Committer => &[Self::Off, Self::Vic, Self::Plain],
        }
    }
}

/// The depths of an arm under a load, those that a machine goes through together: each has a disk
/// with its own latency. QEMU's machines take seconds to start.
pub(super) const fn machines(load: Load, arm: Arm) -> &'static [&'static [u32]] {
    match (load, arm) {
        (Load::Cached, _) => &[&CIF_CACHED],
        // The question is about a deep reader.
        (Load::Committer | Load::Mixed, _) | (_, Arm::Qemu) => &[&[32]],
        (Load::Sequential, _) => &[&[64]],
        (Load::Busy, _) => &[&[32], &[64]],
        _ => &[&CIF_SHALLOW, &[16], &[32], &[64]],
    }
}

/// Reads a second of a disk that is waited for, at whatever depth: the rule acts from 2,000 on, and
/// the guest's part of a latency is not the disk's. The slower the disk, the smaller that part.
pub(super) const DISK_IOPS: f64 = 2_300.0;
/// The depth that makes as many on the disk of a machine which goes through the shallow ones.
const SHALLOW_DEPTH: u32 = 4;

/// What makes the latency of a disk for these depths, of those commands that are with it at once:
/// as many in [`DISK_IOPS`], as many at the guest's pace, or its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Latency {
    Disk(u32),
    Guest(u32),
    Own,
}

impl Latency {
    pub(super) fn under(load: Load, depths: &[u32]) -> Self {
        let deepest = depths.last().copied().unwrap_or(1);
        match load {
            Load::Cached => Self::Own,
            Load::Busy => Self::Guest(deepest),
            _ if deepest == CIF_SHALLOW[CIF_SHALLOW.len() - 1] => Self::Disk(SHALLOW_DEPTH),
            _ => Self::Disk(deepest),
        }
    }
}

/// Latencies of the disk in the time that counts, at least: what a window says of shares is
/// as exact as it has turns of the queue.
const COUNTED_LATENCIES: u32 = 40;
/// Latencies before: a trial of holds settles over 4 and is judged after 16, and there are three at
/// the deepest (`policy/src/coalesce/trial.rs`).
const WARM_UP_LATENCIES: u32 = 80;

/// How much of it all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) rounds: usize,
    /// Time that counts, of each depth, at least.
    pub(super) counted: Duration,
    /// Time before, besides latencies: seven epochs of the rule. The load is new for two, is measured
    /// without holds in one or two more, and the comparison ends with an epoch.
    pub(super) warm_up: Duration,
    /// Size of the disk.
    pub(super) disk_mib: u64,
    /// The database's part; none in tests that have no such guest.
    pub(super) database: Option<database::Plan>,
}

impl Plan {
    pub(super) fn of(depth: Depth) -> Self {
        let (rounds, ms) = depth.of([(1, 1000), (6, 1000), (10, 5000)]);
        Self {
            rounds,
            counted: Duration::from_millis(ms),
            warm_up: Duration::from_millis(1400),
            disk_mib: 64,
            database: Some(database::Plan::of(depth)),
        }
    }

    /// Time that counts on a disk of such a latency.
    pub(super) fn counted_on(&self, latency: Duration) -> Duration {
        self.counted.max(latency * COUNTED_LATENCIES)
    }

    /// Time before, in which the rule decides.
    pub(super) fn warm_up_on(&self, latency: Duration) -> Duration {
        self.warm_up + latency * WARM_UP_LATENCIES
    }

    pub(super) fn took(&self) -> Duration {
        let runs = Load::ALL.iter().flat_map(|load| {
            let arms = Arm::of(*load).iter();
            arms.flat_map(|arm| {
                let machines = machines(*load, *arm).iter();
                machines.map(|depths| (*depths, *load, *arm))
            })
        });
        let each = |depths: &[u32], load| {
            let latency = match Latency::under(load, depths) {
                Latency::Disk(depth) => Duration::from_secs_f64(f64::from(depth) / DISK_IOPS),
                Latency::Guest(_) | Latency::Own => Duration::ZERO,
            };
            let between = Duration::from_millis(100) + latency;
            (self.counted_on(latency) + self.warm_up_on(latency) + between) * depths.len() as u32
        };
        let of = |(depths, load, arm): (&[u32], Load, Arm)| match arm {
            Arm::Qemu => each(depths, load) + Duration::from_secs(6),
            _ => each(depths, load) + Duration::from_millis(500),
        };
        let database = self.database.map(|plan| plan.took());
        runs.map(of).sum::<Duration>() * self.rounds as u32 + database.unwrap_or_default()
    }
}
