//! Host CPUs that belong to one machine's vCPUs alone (`--halt dedicated`).
//!
//! A lock on the CPU's directory in sysfs marks it as taken for as long as the machine lives:
//! machines of all users see the lock, and nothing is left behind.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::thread::{CpuSet, sched_getaffinity};
use tare_control::exit::ExitCode;

use crate::failure::Explain;

/// Where the kernel shows CPUs.
const CPUS: &str = "/sys/devices/system/cpu";

/// A CPU that is taken for as long as this value lives.
#[derive(Debug)]
pub(crate) struct DedicatedCpu {
    /// Its number.
    pub(crate) cpu: u16,
    /// Its lock.
    pub(crate) lock: File,
}

/// CPUs are unavailable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DedicatedCpuError {
    /// Too few of them.
    #[error(
        "{asked} dedicated vCPUs need as many CPUs of this host alone, and {free} of the {usable} \
         that this process may use are free"
    )]
    TooFew {
        /// vCPUs.
        asked: u8,
        /// CPUs that no other machine has.
        free: usize,
        /// CPUs that this process may use.
        usable: usize,
    },
    /// The list of CPUs is unreadable.
    #[error("cannot read which CPUs this process may use")]
    Unknown(#[source] io::Error),
}

impl Explain for DedicatedCpuError {
    fn code(&self) -> ExitCode {
        match self {
            Self::TooFew { .. } => ExitCode::Cpus,
            Self::Unknown(_) => ExitCode::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        matches!(self, Self::TooFew { .. }).then(|| {
            "give the machine fewer CPUs, stop another that has CPUs alone, or use --halt budget=1"
                .to_owned()
        })
    }
}

/// Takes a CPU for each of `asked` vCPUs, the last ones first: interrupts and services of the host
/// mostly run on the first.
pub(crate) fn take(asked: u8) -> Result<Vec<DedicatedCpu>, DedicatedCpuError> {
    take_in(Path::new(CPUS), &usable()?, asked)
}

fn usable() -> Result<Vec<u16>, DedicatedCpuError> {
    let set = sched_getaffinity(None).map_err(|errno| DedicatedCpuError::Unknown(errno.into()))?;
    let all = 0..u16::try_from(CpuSet::MAX_CPU).unwrap_or(u16::MAX);
    Ok(all.filter(|cpu| set.is_set(usize::from(*cpu))).collect())
}

fn take_in(
    directory: &Path,
    usable: &[u16],
    asked: u8,
) -> Result<Vec<DedicatedCpu>, DedicatedCpuError> {
    let free = usable.iter().rev().filter_map(|cpu| {
        let lock = fs::File::open(directory.join(format!("cpu{cpu}"))).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(DedicatedCpu { cpu: *cpu, lock })
    });
    let taken: Vec<DedicatedCpu> = free.take(asked.into()).collect();
    if taken.len() == usize::from(asked) {
        Ok(taken)
    } else {
        Err(DedicatedCpuError::TooFew {
            asked,
            free: taken.len(),
            usable: usable.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_had_by_one_machine_at_a_time() {
        let keep = tempfile::tempdir().unwrap();
        for cpu in 0..3 {
            fs::create_dir(keep.path().join(format!("cpu{cpu}"))).unwrap();
        }
        let take = |asked| take_in(keep.path(), &[0, 1, 2], asked);
        let first = take(2).unwrap();
        assert_eq!(first.iter().map(|own| own.cpu).collect::<Vec<_>>(), [2, 1]);
        let error = take(2).unwrap_err();
        assert!(error.to_string().contains("1 of the 3"), "{error}");
        assert_eq!(error.code(), ExitCode::Cpus);
        drop(first);
        // A process that another test starts holds copies of the locks until its exec.
        let mut tries = (0..1000).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            take(3)
        });
        let all = tries.find_map(Result::ok);
        assert_eq!(all.unwrap().len(), 3);
    }
}
