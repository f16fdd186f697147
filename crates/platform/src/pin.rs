//! Threads on CPUs: set, and read back.

use std::io;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A placement that the kernel did not take.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// It refused.
    #[error("cannot place thread {tid} on CPUs {cpus:?}")]
    Refused {
        /// The thread.
        tid: u32,
        /// Where it was to be.
        cpus: Vec<u32>,
        /// Why.
        source: io::Error,
    },
    /// It took another.
    #[error("thread {tid} was placed on CPUs {asked:?} and is on {got:?}")]
    Other {
        /// The thread.
        tid: u32,
        /// Where it was to be.
        asked: Vec<u32>,
        /// Where it is.
        got: Vec<u32>,
    },
}

/// CPUs that this process may use.
pub fn allowed() -> Vec<u32> {
    sched_getaffinity(None).map_or_else(|_| vec![0], |set| listed(&set))
}

/// Places a thread on `cpus` and reads back that it is there. A thread that is gone
/// is fine.
pub fn place(tid: u32, cpus: &[u32]) -> Result<(), PinError> {
    let Some(pid) = i32::try_from(tid).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize);
    }
    let gone = |errno| errno == rustix::io::Errno::SRCH;
    match sched_setaffinity(Some(pid), &set) {
        Err(errno) if gone(errno) => return Ok(()),
        Err(errno) => {
            return Err(PinError::Refused {
                tid,
                cpus: cpus.to_vec(),
                source: errno.into(),
            });
        }
        Ok(()) => {}
    }
    match sched_getaffinity(Some(pid)) {
        Ok(set) if listed(&set) != cpus => Err(PinError::Other {
            tid,
            asked: cpus.to_vec(),
            got: listed(&set),
        }),
        _ => Ok(()),
    }
}

fn listed(set: &CpuSet) -> Vec<u32> {
    (0..CpuSet::MAX_CPU as u32)
        .filter(|cpu| set.is_set(*cpu as usize))
        .collect()
}

/// CPUs as the kernel's lists write them.
pub fn list(cpus: &[u32]) -> String {
    let words: Vec<String> = cpus.iter().map(u32::to_string).collect();
    words.join(",")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_read_back() {
        let mut child = std::process::Command::new("sleep")
            .arg("9")
            .spawn()
            .unwrap();
        let last = *allowed().last().unwrap();
        place(child.id(), &[last]).unwrap();
        let refused = place(child.id(), &[1023]).unwrap_err();
        assert!(matches!(refused, PinError::Refused { .. }), "{refused:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        place(child.id(), &[last]).unwrap();
        assert_eq!(list(&[0, 2]), "0,2");
    }
}
