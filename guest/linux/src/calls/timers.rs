//! Timers that send signals: `setitimer(2)`, `alarm(2)`, `timer_create(2)`.

use linux_raw_sys::general as c;
use tare_hal::clock;
use tare_libos::time::Duration;

use super::events::{put_setting, setting};
use super::time::{ClockOf, clock_of, micros};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::timer::{Clock, Setting};
use crate::ring;
use crate::signals::END;
use crate::timers::{Notify, Timer};

const ITIMER_REAL: u32 = 0;

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
    put_timer(context, to, context.process.timers.alarm())
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
    ring::set_alarm(context.process, Setting { next_ns, period_ns })
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

/// `timer_create(2)`. There are none for CPU time.
pub(super) fn timer_create(context: &Context<'_>, id: u64, event: u64, to: u64) -> Result {
    let clock = match clock_of(id)? {
        ClockOf::Wall => Clock::Wall,
        ClockOf::Start { for_sleep: true } => Clock::Monotonic,
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let process = context.process;
    let (notify, signal, value) = if event == 0 {
        (Notify::Process, c::SIGALRM, None)
    } else {
        // `struct sigevent`: the value, the signal, how, and the thread.
        let word = |at: u64| process.u32(event.wrapping_add(at));
        let (value, signal) = (process.u64(event)?, word(8)?);
        let notify = match word(12)? {
            c::SIGEV_SIGNAL | c::SIGEV_THREAD => Notify::Process,
            c::SIGEV_NONE => Notify::None,
            how if how == c::SIGEV_SIGNAL | c::SIGEV_THREAD_ID => {
                let number = word(16)?;
                if !process.threads.lock().contains_key(&number) {
                    return Err(Errno::EINVAL);
                }
                Notify::Thread(number)
            }
            _ => return Err(Errno::EINVAL),
        };
        if notify != Notify::None && !(1..END).contains(&signal) {
            return Err(Errno::EINVAL);
        }
        (notify, signal, Some(value))
    };
    let timer = Timer::new(clock, notify, signal, 0);
    let id = process.timers.add(timer, value)?;
    if let Err(errno) = process.put_u32(to, id) {
        ring::remove_timer(process, id)?;
        return Err(errno);
    }
    Ok(0)
}

pub(super) fn timer_settime(
    context: &Context<'_>,
    id: u64,
    flags: u64,
    new: u64,
    old: u64,
) -> Result {
    if new == 0 {
        return Err(Errno::EINVAL);
    }
    let clock = context.process.timers.clock(id as u32);
    // The times come first, as in Linux.
    let given = setting(context, clock.unwrap_or(Clock::Monotonic), flags, new)?;
    clock?;
    let before = ring::set_timer(context.process, id as u32, given)?;
    match old {
        0 => Ok(0),
        old => put_setting(context, old, before),
    }
}

pub(super) fn timer_gettime(context: &Context<'_>, id: u64, to: u64) -> Result {
    put_setting(context, to, context.process.timers.setting(id as u32)?)
}

pub(super) fn timer_getoverrun(context: &Context<'_>, id: u64) -> Result {
    context.process.timers.overruns(id as u32)
}

pub(super) fn timer_delete(context: &Context<'_>, id: u64) -> Result {
    ring::remove_timer(context.process, id as u32)?;
    Ok(0)
}
