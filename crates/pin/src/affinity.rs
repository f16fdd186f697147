//! The set of CPUs that a thread may use, as the kernel has it.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tare_policy::placement::CpuMask;

/// Where a thread may run; `ESRCH` if it has ended.
pub fn get(tid: u32) -> Result<CpuMask, Errno> {
    let set = sched_getaffinity(Some(pid(tid)?))?;
    let cpus = 0..CpuSet::MAX_CPU.min(CpuMask::BITS);
    Ok(cpus
        .filter(|cpu| set.is_set(*cpu))
        .filter_map(|cpu| u16::try_from(cpu).ok())
        .collect())
}

/// Puts a thread there and says what the kernel made of it.
pub(crate) fn set(tid: u32, cpus: &CpuMask) -> Result<CpuMask, Errno> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().map(usize::from) {
        if cpu < CpuSet::MAX_CPU {
            set.set(cpu);
        }
    }
    sched_setaffinity(Some(pid(tid)?), &set)?;
    get(tid)
}

fn pid(tid: u32) -> Result<Pid, Errno> {
    let raw = i32::try_from(tid).map_err(|_| Errno::SRCH)?;
    Pid::from_raw(raw).ok_or(Errno::SRCH)
}
