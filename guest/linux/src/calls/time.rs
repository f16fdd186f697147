//! Clocks and sleeping.

use linux_raw_sys::general as c;
use tare_hal::clock;
use tare_libos::time::{Duration, Instant};

use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::timer::Setting;

const CLOCK_TAI: u32 = 11;
const ITIMER_REAL: u32 = 0;

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
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&duration.as_secs().to_le_bytes());
    bytes[8..].copy_from_slice(&u64::from(duration.subsec_nanos()).to_le_bytes());
    context.process.write(to, &bytes)?;
    Ok(0)
}

fn now_ns(id: u64) -> Result {
    match id as u32 {
        c::CLOCK_REALTIME | c::CLOCK_REALTIME_COARSE | CLOCK_TAI => Ok(clock::wall_ns()),
        c::CLOCK_MONOTONIC
        | c::CLOCK_MONOTONIC_RAW
        | c::CLOCK_MONOTONIC_COARSE
        | c::CLOCK_BOOTTIME
        | c::CLOCK_PROCESS_CPUTIME_ID
        | c::CLOCK_THREAD_CPUTIME_ID => Ok(clock::now_ns()),
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn clock_gettime(context: &Context<'_>, id: u64, to: u64) -> Result {
    put_duration(context, to, Duration::from_nanos(now_ns(id)?))
}

pub(super) fn clock_getres(context: &Context<'_>, id: u64, to: u64) -> Result {
    now_ns(id)?;
    match to {
        0 => Ok(0),
        to => put_duration(context, to, Duration::from_nanos(1)),
    }
}

pub(super) fn gettimeofday(context: &Context<'_>, to: u64) -> Result {
    let now = Duration::from_nanos(clock::wall_ns());
    context.process.put_u64(to, now.as_secs())?;
    context
        .process
        .put_u64(to.wrapping_add(8), now.subsec_micros().into())?;
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
    let wanted = duration(context, request)?;
    let is_absolute = flags & 1 != 0;
    let wanted = if is_absolute {
        wanted.saturating_sub(Duration::from_nanos(now_ns(id)?))
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

/// `setitimer(2)`, for real time.
pub(super) fn setitimer(context: &Context<'_>, which: u64, new: u64, old: u64) -> Result {
    if which as u32 != ITIMER_REAL {
        return Err(Errno::EINVAL);
    }
    let [period, first] = [new, new.wrapping_add(16)].map(|at| micros(context, at));
    let ns = |value: Option<Duration>| value.map_or(0, |value| value.as_nanos() as u64);
    let before = set_alarm(context, ns(first?), ns(period?))?;
    if old != 0 {
        put_timer(context, old, before)?;
    }
    Ok(0)
}

/// `getitimer(2)`, for real time.
pub(super) fn getitimer(context: &Context<'_>, which: u64, to: u64) -> Result {
    if which as u32 != ITIMER_REAL {
        return Err(Errno::EINVAL);
    }
    put_timer(context, to, context.process.alarm.setting())
}

/// `alarm(2)`: gives the seconds that were left.
pub(super) fn alarm(context: &Context<'_>, seconds: u64) -> Result {
    let ns = u64::from(seconds as u32) * 1_000_000_000;
    let before = set_alarm(context, ns, 0)?;
    Ok(rest_ns(before).div_ceil(1_000_000_000))
}

fn set_alarm(context: &Context<'_>, first_ns: u64, period_ns: u64) -> Result<Setting> {
    let next_ns = match first_ns {
        0 => 0,
        ns => clock::now_ns().saturating_add(ns),
    };
    let process = context.process.clone();
    let ring = move || process.send(None, c::SIGALRM);
    let alarm = &context.process.alarm;
    alarm.set(Setting { next_ns, period_ns }, ring)
}

fn rest_ns(setting: Setting) -> u64 {
    match setting.next_ns {
        0 => 0,
        next_ns => next_ns.saturating_sub(clock::now_ns()).max(1000),
    }
}

fn put_timer(context: &Context<'_>, to: u64, setting: Setting) -> Result {
    for (at, ns) in [
        (to, setting.period_ns),
        (to.wrapping_add(16), rest_ns(setting)),
    ] {
        context.process.put_u64(at, ns / 1_000_000_000)?;
        let micros = ns % 1_000_000_000 / 1000;
        context.process.put_u64(at.wrapping_add(8), micros)?;
    }
    Ok(0)
}
