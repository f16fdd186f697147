//! CHR: how many of a host's cores a container is assigned.
//!
//! CPU-Pinning 2020's ranges are those of its slide 30. Its slide 25 gives the next
//! higher range for each class; the study does not say which holds.

/// What an application spends its time with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Computing.
    CpuBound,
    /// Computing and waiting for input and output.
    IoBound,
    /// Waiting for input and output nearly all the time.
    UltraIoBound,
}

/// A range of CHR, thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChrRange {
    /// Lower end.
    pub low_permille: u16,
    /// Upper end.
    pub high_permille: u16,
}

/// Share of the time that a thread is not idle by its own choice, from which on an
/// application is bound by the CPU, and below which by input and output alone.
const CPU_BOUND_PERMILLE: u64 = 700;
const ULTRA_IO_PERMILLE: u64 = 200;

impl Class {
    /// By time on a CPU (or waiting for one) and time in input and output. `None`
    /// if there was neither.
    pub fn of(busy_ns: u64, io_ns: u64) -> Option<Self> {
        let all = u128::from(busy_ns) + u128::from(io_ns);
        let busy_permille = (u128::from(busy_ns) * 1000).checked_div(all)? as u64;
        Some(match busy_permille {
            CPU_BOUND_PERMILLE.. => Self::CpuBound,
            ULTRA_IO_PERMILLE.. => Self::IoBound,
            _ => Self::UltraIoBound,
        })
    }

    /// The range that CPU-Pinning 2020's slide 30 advises.
    pub const fn chr(self) -> ChrRange {
        let (low_permille, high_permille) = match self {
            Self::CpuBound => (70, 140),
            Self::IoBound => (140, 280),
            Self::UltraIoBound => (280, 570),
        };
        ChrRange {
            low_permille,
            high_permille,
        }
    }
}

/// `assigned` of `host` cores, thousandths; `None` for a host without cores.
/// Assigned cores come in thousandths too, since a quota may be a part of one.
pub fn chr_permille(assigned_millicpus: u64, host_cpus: u64) -> Option<u16> {
    let permille = assigned_millicpus.checked_div(host_cpus)?;
    Some(permille.min(1000) as u16)
}

impl ChrRange {
    /// Whole cores of a host that lie within the range, fewest and most; `None` if
    /// the host has too few for any.
    pub fn cores(self, host_cpus: u64) -> Option<(u64, u64)> {
        let least = (u64::from(self.low_permille) * host_cpus).div_ceil(1000);
        let most = u64::from(self.high_permille) * host_cpus / 1000;
        let least = least.max(1);
        (least <= most).then_some((least, most))
    }

    /// Where a CHR lies.
    pub fn place(self, permille: u16) -> core::cmp::Ordering {
        use core::cmp::Ordering;
        match permille {
            chr if chr < self.low_permille => Ordering::Less,
            chr if chr > self.high_permille => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }
}
