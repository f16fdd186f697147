//! What one process has for all of its disks: mappings of memory that are watched, and
//! descriptors. Each disk has its share of them, whatever its front-end and the others' do.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tare_devices::blk::MAX_QUEUES;

/// Most disks of one daemon.
pub const MOST_DISKS: usize = 16;
/// Most regions of a disk's memory at a time. A front-end sends up to 8 in one message; one by
/// one it may add up to this many.
pub(crate) const MAX_REGIONS: usize = 64;
/// Mappings of a disk: its regions and those that replace them, one that is found invalid
/// after it was mapped, the log of requests in flight and the one that replaces it.
pub(crate) const MAPPINGS_A_DISK: usize = 2 * MAX_REGIONS + 3;
/// Descriptors of a disk: a file for each mapping, three eventfds for each queue, what comes
/// with one message (the `vhost` crate takes 32), and the disk, its ring, sockets and events.
const DESCRIPTORS_A_DISK: usize = MAPPINGS_A_DISK + 3 * MAX_QUEUES as usize + 32 + 32;
/// Descriptors of the process: the control socket and its clients, statistics, what it was
/// started with.
const OWN_DESCRIPTORS: usize = 128;

/// This process may not open as many files as its disks may need.
#[derive(Debug, thiserror::Error)]
#[error("{disks} disks need {needed} descriptors, and this process may have {allowed}")]
pub struct TooFewDescriptors {
    /// Disks.
    pub disks: usize,
    /// What they may need.
    pub needed: u64,
    /// The hard limit (`RLIMIT_NOFILE`).
    pub allowed: u64,
}

/// Raises the soft limit on descriptors to what `disks` disks may need, so that no front-end
/// can use up another's.
pub fn allow_descriptors(disks: usize) -> Result<(), TooFewDescriptors> {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = raised(disks, limit)? else {
        return Ok(());
    };
    let refused = |_| TooFewDescriptors {
        disks,
        needed: current,
        allowed: limit.current.unwrap_or(u64::MAX),
    };
    let current = Some(current);
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).map_err(refused)
}

/// The soft limit to be set; `None`: it is high enough.
fn raised(disks: usize, limit: Rlimit) -> Result<Option<u64>, TooFewDescriptors> {
    let needed = (disks * DESCRIPTORS_A_DISK + OWN_DESCRIPTORS) as u64;
    match (limit.current, limit.maximum) {
        (None, _) => Ok(None),
        (Some(current), _) if current >= needed => Ok(None),
        (_, Some(allowed)) if allowed < needed => Err(TooFewDescriptors {
            disks,
            needed,
            allowed,
        }),
        _ => Ok(Some(needed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_for_all_disks_are_allowed_or_the_disks_refused() {
        let limit = |current, maximum| Rlimit { current, maximum };
        let one = raised(1, limit(Some(64), None)).unwrap().unwrap();
        let all = raised(MOST_DISKS, limit(Some(1024), Some(1 << 20))).unwrap();
        // 64 files and 48 eventfds a disk are a front-end's right.
        assert!(one > 64 + 48 && all.unwrap() > 16 * (64 + 48));
        assert_eq!(raised(1, limit(Some(1024), Some(1024))).unwrap(), None);
        assert_eq!(raised(MOST_DISKS, limit(None, None)).unwrap(), None);
        let refused = raised(MOST_DISKS, limit(Some(1024), Some(1024))).unwrap_err();
        assert_eq!((refused.disks, refused.allowed), (MOST_DISKS, 1024));
        assert_eq!(Some(refused.needed), all);
    }
}
