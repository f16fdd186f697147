//! Loads, arms, and how much of each.

use std::time::Duration;

use super::database;
use crate::request::Depth;

/// Commands in flight.
pub(super) const CIF: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Those of the mixed load: the question is about a deep reader.
pub(super) const CIF_DEEP: [u32; 1] = [32];
/// Those of QEMU's own device, each of whose machines takes seconds to start.
pub(super) const CIF_QEMU: [u32; 4] = [1, 8, 32, 64];

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
}

impl Load {
    pub(super) const ALL: [Self; 4] =
        [Self::Random, Self::Mixed, Self::Sequential, Self::Committer];

    /// Words for the guest.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Random => "block=4K read=100 order=random",
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
        }
    }

    /// For people.
    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::Random => "4 KiB random reads",
            Self::Mixed => "8 KiB, two thirds reads",
            Self::Sequential => "64 KiB sequential reads",
            Self::Committer => "4 KiB random reads beside one that commits",
        }
    }
}

/// Who interrupts, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// Tare's device, every completion delivered.
    Off,
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
            Self::Off => ",coalesce=off",
            Self::Vic => ",coalesce=auto",
            Self::Plain => ",coalesce=1/8",
            Self::Qemu => "",
        }
    }

    /// The arms of a load.
    pub(super) const fn of(load: Load) -> &'static [Self] {
        match load {
            Load::Random => &[Self::Off, Self::Vic, Self::Qemu],
            Load::Mixed | Load::Sequential => &[Self::Off, Self::Vic],
            Load::Committer => &[Self::Off, Self::Vic, Self::Plain],
        }
    }
}

/// The depths of an arm under a load.
pub(super) const fn depths(load: Load, arm: Arm) -> &'static [u32] {
    match (load, arm) {
        (Load::Committer, _) => &CIF_DEEP,
        (_, Arm::Qemu) => &CIF_QEMU,
        _ => &CIF,
    }
}

/// How much of it all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) rounds: usize,
    /// Time that counts, of each depth.
    pub(super) counted: Duration,
    /// Time before: two epochs of the rule, so that its ratio is settled.
    pub(super) warm_up: Duration,
    /// Size of the disk.
    pub(super) disk_mib: u64,
    /// The database's part; none in tests that have no such guest.
    pub(super) database: Option<database::Plan>,
}

impl Plan {
    pub(super) const fn of(depth: Depth) -> Self {
        let (rounds, ms) = match depth {
            Depth::Quick => (1, 1000),
            Depth::Standard => (3, 2000),
            Depth::Full => (10, 5000),
        };
        Self {
            rounds,
            counted: Duration::from_millis(ms),
            warm_up: Duration::from_millis(450),
            disk_mib: 64,
            database: Some(database::Plan::of(depth)),
        }
    }

    pub(super) fn took(&self) -> Duration {
        let runs = Load::ALL.iter().flat_map(|load| {
            let arms = Arm::of(*load).iter();
            arms.map(|arm| (depths(*load, *arm).len() as u32, *arm))
        });
        let each = self.counted + self.warm_up + Duration::from_millis(250);
        let of = |(depths, arm): (u32, Arm)| match arm {
            Arm::Qemu => each * depths + Duration::from_secs(6),
            _ => each * depths + Duration::from_secs(1),
        };
        let database = self.database.map(|plan| plan.took());
        runs.map(of).sum::<Duration>() * self.rounds as u32 + database.unwrap_or_default()
    }
}
