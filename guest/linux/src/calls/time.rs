//! Clocks and sleeping. CPU time is the time that the program's threads do not wait.

use linux_raw_sys::general as c;
use tare_hal::clock;
use tare_libos::time::{Duration, Instant};

use super::threads::thread_of;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::process::PID;

const CLOCK_TAI: u32 = 11;
/// Clocks of CPU time, as numbers (kernel `include/linux/posix-timers_types.h`): the inverse of a
/// process's or thread's, then a bit for a thread, then two for what is counted.
const CPU_OF_THREAD: u32 = 4;
const CPU_KIND: u32 = 3;
const NO_CPU_KIND: u32 = 3;

/// A `timespec` at the program's address.
pub(super) fn duration(context: &Context<'_>, at: u64) -> Result<Duration> {
    let seconds = context.process.u64(at)?;
    let ns = context.process.u64(at.wrapping_add(8))?;
    if seconds > i64::MAX as u64 || ns >= 1_000_000_000 {
        return Err(Errno::EINVAL);
    }
    // Some hundred years are forever.
    Ok(Duration::new(seconds.min(u32::MAX.into()), ns as u32))
}

/// A `timeval` at the program's address; none at 0.
pub(super) fn micros(context: &Context<'_>, at: u64) -> Result<Option<Duration>> {
    if at == 0 {
        return Ok(None);
    }
    let (seconds, micros) = (
        context.process.u64(at)?,
        context.process.u64(at.wrapping_add(8))?,
    );
    if seconds > i64::MAX as u64 || micros > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let seconds = Duration::from_secs(seconds.min(u32::MAX.into()));
    Ok(Some(seconds + Duration::from_micros(micros)))
}

pub(super) fn put_duration(context: &Context<'_>, to: u64, duration: Duration) -> Result {
    let part = duration.subsec_nanos();
    put_seconds(context, to, duration, part)
}

/// Writes a `timeval`.
pub(super) fn put_micros(context: &Context<'_>, to: u64, duration: Duration) -> Result {
    let part = duration.subsec_micros();
    put_seconds(context, to, duration, part)
}

fn put_seconds(context: &Context<'_>, to: u64, duration: Duration, part: u32) -> Result {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&duration.as_secs().to_le_bytes());
    bytes[8..].copy_from_slice(&u64::from(part).to_le_bytes());
    context.process.write(to, &bytes)?;
    Ok(0)
}

/// What a clock's number names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockOf {
    Wall,
    /// The time since the start; whether a program may sleep by it.
    Start {
        for_sleep: bool,
    },
    Process,
    /// The thread with this number; 0 is the one that calls.
    Thread(u32),
}

pub(super) fn clock_of(id: u64) -> Result<ClockOf> {
    let id = id as u32;
    match id {
        c::CLOCK_REALTIME | c::CLOCK_REALTIME_COARSE | c::CLOCK_REALTIME_ALARM | CLOCK_TAI => {
            Ok(ClockOf::Wall)
        }
        c::CLOCK_MONOTONIC | c::CLOCK_BOOTTIME | c::CLOCK_BOOTTIME_ALARM => {
            Ok(ClockOf::Start { for_sleep: true })
        }
        c::CLOCK_MONOTONIC_RAW | c::CLOCK_MONOTONIC_COARSE => {
            Ok(ClockOf::Start { for_sleep: false })
        }
        c::CLOCK_PROCESS_CPUTIME_ID => Ok(ClockOf::Process),
        c::CLOCK_THREAD_CPUTIME_ID => Ok(ClockOf::Thread(0)),
        _ if id as i32 >= 0 || id & CPU_KIND == NO_CPU_KIND => Err(Errno::EINVAL),
        _ => match (!(id as i32 >> 3) as u32, id & CPU_OF_THREAD) {
            (number, CPU_OF_THREAD) => Ok(ClockOf::Thread(number)),
            (0 | PID, _) => Ok(ClockOf::Process),
            _ => Err(Errno::EINVAL),
        },
    }
}

fn now_ns(context: &Context<'_>, id: u64) -> Result {
    let now_ns = clock::now_ns();
    Ok(match clock_of(id)? {
        ClockOf::Wall => clock::wall_ns(),
        ClockOf::Start { .. } => now_ns,
        ClockOf::Process => context.process.cpu_ns(now_ns),
        ClockOf::Thread(number) => {
            let thread = thread_of(context, number.into()).map_err(|_| Errno::EINVAL)?;
            thread.cpu_time.ns(now_ns)
        }
    })
}

pub(super) fn clock_gettime(context: &Context<'_>, id: u64, to: u64) -> Result {
    put_duration(context, to, Duration::from_nanos(now_ns(context, id)?))
}

pub(super) fn clock_getres(context: &Context<'_>, id: u64, to: u64) -> Result {
    now_ns(context, id)?;
    match to {
        0 => Ok(0),
        to => put_duration(context, to, Duration::from_nanos(1)),
    }
}

/// `clock_settime(2)`: the host's time is not the program's to set.
pub(super) fn clock_settime(context: &Context<'_>, id: u64, from: u64) -> Result {
    match clock_of(id)? {
        ClockOf::Start { .. } => Err(Errno::EINVAL),
        _ => {
            duration(context, from)?;
            Err(Errno::EPERM)
        }
    }
}

/// `gettimeofday(2)`, where the zone is UTC.
pub(super) fn gettimeofday(context: &Context<'_>, to: u64, zone: u64) -> Result {
    if to != 0 {
        put_micros(context, to, Duration::from_nanos(clock::wall_ns()))?;
    }
    if zone != 0 {
        context.process.put_u64(zone, 0)?;
    }
    Ok(0)
}

pub(super) fn time(context: &Context<'_>, to: u64) -> Result {
    let seconds = clock::wall_ns() / 1_000_000_000;
    if to != 0 {
        context.process.put_u64(to, seconds)?;
    }
    Ok(seconds)
}

/// `nanosleep(2)` and `clock_nanosleep(2)`.
pub(super) fn sleep(context: &Context<'_>, id: u64, flags: u64, request: u64, rest: u64) -> Result {
    match clock_of(id)? {
        ClockOf::Thread(0) => return Err(Errno::EINVAL),
        ClockOf::Wall | ClockOf::Start { for_sleep: true } => {}
        _ => return Err(Errno::EOPNOTSUPP),
    }
    let wanted = duration(context, request)?;
    let is_absolute = flags & 1 != 0;
    let wanted = if is_absolute {
        wanted.saturating_sub(Duration::from_nanos(now_ns(context, id)?))
    } else {
        wanted
    };
    let deadline = Instant::now() + wanted;
    let slept: Result<()> = context.wait(&[], Some(deadline), || Err(Errno::EAGAIN));
    match slept {
        Err(Errno::EINTR) if !is_absolute && rest != 0 => {
            put_duration(context, rest, deadline.duration_since(Instant::now()))?;
            Err(Errno::EINTR)
        }
        Err(Errno::EAGAIN) | Ok(()) => Ok(0),
        Err(errno) => Err(errno),
    }
}
