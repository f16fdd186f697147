//! How threads want to be scheduled (`sched(7)`): kept and read back.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as c;
use tare_libos::time::Duration;

use super::threads::thread_of;
use super::time::put_duration;
use crate::capabilities::SYS_NICE;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::thread::{Scheduling, Thread};

/// Policies by number, with the range of their priorities.
const POLICIES: [(u32, u32, u32); 6] = [
    (c::SCHED_NORMAL, 0, 0),
    (c::SCHED_FIFO, 1, 99),
    (c::SCHED_RR, 1, 99),
    (c::SCHED_BATCH, 0, 0),
    (c::SCHED_IDLE, 0, 0),
    (c::SCHED_DEADLINE, 0, 0),
];
/// What `SCHED_RR` has (kernel `include/linux/sched/rt.h`), and what others have at most.
const ROUND: Duration = Duration::from_millis(100);
const SLICE: Duration = Duration::from_millis(4);

/// Bytes of `struct sched_attr` at first, as its fields are known here, and at most.
const ATTRIBUTES_AT_FIRST: u32 = 48;
const ATTRIBUTES: usize = 56;
const ATTRIBUTES_MOST: u32 = 4096;
/// Flags of `sched_attr` (kernel `include/uapi/linux/sched.h`): all, those that leave something as
/// it is, and clamps, which Debian's kernel has not.
const RESET_ON_FORK: u64 = 0x01;
const KEEP_POLICY: u64 = 0x08;
const KEEP_PARAMETERS: u64 = 0x10;
const CLAMPS: u64 = 0x60;
const ALL_FLAGS: u64 = 0x7f;

/// `sched_setscheduler(2)`. Threads of a core run in turns whatever they ask for.
pub(super) fn sched_setscheduler(
    context: &Context<'_>,
    number: u64,
    policy: u64,
    parameters: u64,
) -> Result {
    if (policy as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    set_scheduling(context, number, Some(policy as u32), parameters)
}

pub(super) fn sched_setparam(context: &Context<'_>, number: u64, parameters: u64) -> Result {
    set_scheduling(context, number, None, parameters)
}

fn set_scheduling(
    context: &Context<'_>,
    number: u64,
    policy: Option<u32>,
    parameters: u64,
) -> Result {
    if parameters == 0 || (number as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = context.process.u32(parameters)?;
    let thread = thread_of(context, number)?;
    let mut scheduling = thread.scheduling.lock();
    let policy = policy.unwrap_or(scheduling.policy);
    let (least, most) = priorities(policy & !c::SCHED_RESET_ON_FORK)?;
    // Deadlines come by another call.
    if policy & !c::SCHED_RESET_ON_FORK == c::SCHED_DEADLINE || !(least..=most).contains(&priority)
    {
        return Err(Errno::EINVAL);
    }
    *scheduling = Scheduling { policy, priority };
    Ok(0)
}

pub(super) fn sched_getscheduler(context: &Context<'_>, number: u64) -> Result {
    if (number as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let thread = thread_of(context, number)?;
    let scheduling = *thread.scheduling.lock();
    Ok(scheduling.policy.into())
}

pub(super) fn sched_getparam(context: &Context<'_>, number: u64, to: u64) -> Result {
    if to == 0 || (number as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let thread = thread_of(context, number)?;
    let scheduling = *thread.scheduling.lock();
    context.process.put_u32(to, scheduling.priority)?;
    Ok(0)
}

fn priorities(policy: u32) -> Result<(u32, u32)> {
    let known = POLICIES.iter().find(|known| known.0 == policy);
    let (_, least, most) = known.ok_or(Errno::EINVAL)?;
    Ok((*least, *most))
}

pub(super) fn sched_get_priority_max(policy: u64) -> Result {
    Ok(priorities(policy as u32)?.1.into())
}

pub(super) fn sched_get_priority_min(policy: u64) -> Result {
    Ok(priorities(policy as u32)?.0.into())
}

pub(super) fn sched_rr_get_interval(context: &Context<'_>, number: u64, to: u64) -> Result {
    let policy = sched_getscheduler(context, number)? as u32 & !c::SCHED_RESET_ON_FORK;
    let interval = match policy {
        c::SCHED_RR => ROUND,
        c::SCHED_FIFO => Duration::ZERO,
        _ => SLICE,
    };
    put_duration(context, to, interval)
}

/// `struct sched_attr`, without deadlines and clamps.
#[derive(Clone, Copy, Debug, Default)]
struct Attributes {
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
}

impl Attributes {
    fn of(bytes: &[u8; ATTRIBUTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_le_bytes(word)
        };
        Self {
            policy: word(4),
            flags: u64::from(word(8)) | u64::from(word(12)) << 32,
            nice: (word(16) as i32).clamp(-20, 19),
            priority: word(20),
        }
    }

    fn bytes(self, size: u32) -> [u8; ATTRIBUTES] {
        let mut bytes = [0; ATTRIBUTES];
        bytes[..4].copy_from_slice(&size.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.policy.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.flags.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.nice.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.priority.to_le_bytes());
        bytes
    }

    /// What a thread has kept: one of a real-time policy has a priority, another a nice value.
    fn kept(thread: &Thread) -> Self {
        let scheduling = *thread.scheduling.lock();
        let policy = scheduling.policy & !c::SCHED_RESET_ON_FORK;
        let is_real_time = policy == c::SCHED_FIFO || policy == c::SCHED_RR;
        Self {
            policy,
            flags: u64::from(scheduling.policy != policy) * RESET_ON_FORK,
            nice: if is_real_time {
                0
            } else {
                thread.nice.load(Ordering::Relaxed)
            },
            priority: scheduling.priority,
        }
    }
}

/// Reads `struct sched_attr`: E2BIG for a size out of bounds and for fields that are not known
/// here, and the known size is written back.
fn attributes(context: &Context<'_>, at: u64) -> Result<Attributes> {
    let size = match context.process.u32(at)? {
        0 => ATTRIBUTES_AT_FIRST,
        size => size,
    };
    let too_big = || {
        context.process.put_u32(at, ATTRIBUTES as u32)?;
        Err(Errno::E2BIG)
    };
    if !(ATTRIBUTES_AT_FIRST..=ATTRIBUTES_MOST).contains(&size) {
        return too_big();
    }
    let bytes = match context.process.versioned(at, size as usize) {
        Err(Errno::E2BIG) => return too_big(),
        bytes => bytes?,
    };
    let attributes = Attributes::of(&bytes);
    if attributes.flags & CLAMPS != 0 && (size as usize) < ATTRIBUTES {
        return Err(Errno::EINVAL);
    }
    Ok(attributes)
}

/// `sched_setattr(2)`: EBUSY for deadlines, as where no CPU has time left for them, and EPERM for a
/// higher nice value without `CAP_SYS_NICE`.
pub(super) fn sched_setattr(context: &Context<'_>, number: u64, at: u64, flags: u64) -> Result {
    if at == 0 || (number as i32) < 0 || flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = attributes(context, at)?;
    if (wanted.policy as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let thread = thread_of(context, number)?;
    let kept = Attributes::kept(&thread);
    let (policy, reset) = if wanted.flags & KEEP_POLICY == 0 {
        (wanted.policy, wanted.flags & RESET_ON_FORK)
    } else {
        (kept.policy, kept.flags)
    };
    let keeps = wanted.flags & KEEP_PARAMETERS != 0;
    let (nice, priority) = if keeps {
        (kept.nice, kept.priority)
    } else {
        (wanted.nice, wanted.priority)
    };
    let (least, most) = priorities(policy)?;
    if wanted.flags & !ALL_FLAGS != 0 || !(least..=most).contains(&priority) {
        return Err(Errno::EINVAL);
    }
    if policy == c::SCHED_DEADLINE {
        return Err(Errno::EBUSY);
    }
    if wanted.flags & CLAMPS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let is_real_time = least > 0;
    let may = context.thread.credentials.lock().capabilities.has(SYS_NICE);
    let rises = is_real_time || nice < thread.nice.load(Ordering::Relaxed);
    if rises && !may {
        return Err(Errno::EPERM);
    }
    // Linux takes the policy for one of the parameters (`__sched_setscheduler`).
    let policy = if keeps { kept.policy } else { policy };
    if !is_real_time && !keeps {
        thread.nice.store(nice, Ordering::Relaxed);
    }
    let reset = if reset == 0 {
        0
    } else {
        c::SCHED_RESET_ON_FORK
    };
    *thread.scheduling.lock() = Scheduling {
        policy: policy | reset,
        priority,
    };
    Ok(0)
}

/// `sched_getattr(2)`.
pub(super) fn sched_getattr(
    context: &Context<'_>,
    number: u64,
    at: u64,
    size: u64,
    flags: u64,
) -> Result {
    let size = size as u32;
    let is_sound = (ATTRIBUTES_AT_FIRST..=ATTRIBUTES_MOST).contains(&size);
    if at == 0 || (number as i32) < 0 || !is_sound || flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let thread = thread_of(context, number)?;
    let size = size.min(ATTRIBUTES as u32);
    let bytes = Attributes::kept(&thread).bytes(size);
    context.process.write(at, &bytes[..size as usize])?;
    Ok(0)
}
