//! CPUs and memory of a machine, as far as they can be checked before KVM is opened.

use tare_abi::layout::{MAX_CPUS, MIB, MIN_MEMORY_MIB};
use tare_control::exit::ExitCode;

use crate::failure::Explain;
use crate::memory_size::MemorySize;

/// Memory in MiB that a guest needs beside image and files.
const GUEST_RESERVE_MIB: u64 = 4;

/// Parses a number of CPUs; KVM's limit is checked later.
pub fn cpus_written(text: &str) -> Result<u32, String> {
    let number = text.parse();
    number.map_err(|_| format!("use 1 to {MAX_CPUS} CPUs"))
}

/// An unavailable machine size.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    /// No CPU, or too many.
    #[error("{0} CPUs: use 1 to {MAX_CPUS}")]
    Cpus(u32),
    /// Less than any guest needs.
    #[error("{mib} MiB of memory is too small: the minimum is {MIN_MEMORY_MIB} MiB")]
    MemoryTooSmall {
        /// Asked for.
        mib: u32,
    },
    /// More than this host has.
    #[error("{mib} MiB of memory is more than this host has ({host_mib} MiB)")]
    MemoryTooLarge {
        /// Asked for.
        mib: u32,
        /// What there is, with swap.
        host_mib: u64,
    },
}

impl Explain for SizeError {
    fn code(&self) -> ExitCode {
        match self {
            Self::Cpus(_) => ExitCode::Cpus,
            Self::MemoryTooSmall { .. } | Self::MemoryTooLarge { .. } => ExitCode::Memory,
        }
    }
}

/// The number of CPUs, if KVM and the host allow it.
pub(crate) fn cpus(asked: u32) -> Result<u8, SizeError> {
    match u8::try_from(asked) {
        Ok(cpus) if (1..=MAX_CPUS).contains(&cpus) => Ok(cpus),
        _ => Err(SizeError::Cpus(asked)),
    }
}

/// Memory in MiB, if this host can give it.
pub(crate) fn memory_mib(asked: MemorySize) -> Result<u32, SizeError> {
    let info = rustix::system::sysinfo();
    let host_mib = (info.totalram + info.totalswap) * u64::from(info.mem_unit) / MIB;
    within(asked.mib, host_mib)
}

fn within(mib: u32, host_mib: u64) -> Result<u32, SizeError> {
    if mib < MIN_MEMORY_MIB {
        return Err(SizeError::MemoryTooSmall { mib });
    }
    if u64::from(mib) > host_mib {
        return Err(SizeError::MemoryTooLarge { mib, host_mib });
    }
    Ok(mib)
}

/// Most bytes of files that fit beside an image into guest memory.
pub(crate) fn room_for_files(memory_mib: u32, image_bytes: u64) -> u64 {
    let mib = u64::from(memory_mib).saturating_sub(GUEST_RESERVE_MIB);
    (mib * MIB).saturating_sub(image_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_one_to_sixteen_cpus() {
        assert_eq!(cpus(0), Err(SizeError::Cpus(0)));
        assert_eq!(cpus(1), Ok(1));
        assert_eq!(cpus(16), Ok(16));
        assert_eq!(cpus(17), Err(SizeError::Cpus(17)));
        assert_eq!(cpus(257), Err(SizeError::Cpus(257)));
    }

    #[test]
    fn memory_is_bounded_on_both_sides() {
        assert_eq!(within(7, 1000), Err(SizeError::MemoryTooSmall { mib: 7 }));
        assert_eq!(within(8, 1000), Ok(8));
        assert!(within(1001, 1000).is_err());
        assert!(memory_mib(MemorySize { mib: u32::MAX }).is_err());
    }

    #[test]
    fn files_get_what_the_guest_does_not_need() {
        assert_eq!(room_for_files(64, MIB), 59 * MIB);
        assert_eq!(room_for_files(8, 100 * MIB), 0);
    }
}
