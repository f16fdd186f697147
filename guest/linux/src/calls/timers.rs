//! Timers that send signals: `setitimer(2)`, `alarm(2)`, `timer_create(2)`.

use linux_raw_sys::general as c;
use tare_hal::clock;

use super::events::{put_setting, setting, setting_on};
use super::time::{ClockOf, clock_of};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::timer::{Clock, Setting};
use crate::ring;
use crate::signals::END;
use crate::timers::{Counted, Interval, Notify, Timer};

/// A timer of `setitimer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Real,
    Cpu(Interval),
}

impl Which {
    fn of(number: u64) -> Result<Self> {
        match number as u32 {
            0 => Ok(Self::Real),
            1 => Ok(Self::Cpu(Interval::Virtual)),
            2 => Ok(Self::Cpu(Interval::Prof)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// What its clock shows.
    fn now_ns(self, context: &Context<'_>) -> u64 {
        match self {
            Self::Real => clock::now_ns(),
            Self::Cpu(_) => context.process.counted_ns(Counted::Process),
        }
    }
}

/// `setitimer(2)`: EINVAL for another timer, and for times that `timeval` does not have.
pub(super) fn setitimer(context: &Context<'_>, which: u64, new: u64, old: u64) -> Result {
    let (period_ns, first_ns) = match new {
        // As Linux, against the manual page.
        0 => (0, 0),
        new => (
            interval_ns(context, new)?,
            interval_ns(context, new.wrapping_add(16))?,
        ),
    };
    let which = Which::of(which)?;
    let now_ns = which.now_ns(context);
    let next_ns = match first_ns {
        0 => 0,
        ns => now_ns.saturating_add(ns),
    };
    let setting = Setting { next_ns, period_ns };
    let before = match which {
        Which::Real => ring::set_alarm(context.process, setting)?,
        Which::Cpu(interval) => {
            ring::set_interval(context.process, context.thread, interval, setting)
        }
    };
    if old != 0 {
        put_timer(context, old, before, now_ns)?;
    }
    Ok(0)
}

/// `getitimer(2)`.
pub(super) fn getitimer(context: &Context<'_>, which: u64, to: u64) -> Result {
    let which = Which::of(which)?;
    let timers = &context.process.timers;
    let setting = match which {
        Which::Real => timers.alarm(),
        Which::Cpu(interval) => timers.interval(interval),
    };
    put_timer(context, to, setting, which.now_ns(context))
}

/// `alarm(2)`: gives the seconds that were left.
pub(super) fn alarm(context: &Context<'_>, seconds: u64) -> Result {
    let now_ns = clock::now_ns();
    let next_ns = match u64::from(seconds as u32) {
        0 => 0,
        seconds => now_ns.saturating_add(seconds * 1_000_000_000),
    };
    let setting = Setting {
        next_ns,
        period_ns: 0,
    };
    let before = ring::set_alarm(context.process, setting)?;
    Ok(rest_ns(before, now_ns).div_ceil(1_000_000_000))
}

/// The `timeval` at an address, nanoseconds.
fn interval_ns(context: &Context<'_>, at: u64) -> Result {
    let seconds = context.process.u64(at)?;
    let micros = context.process.u64(at.wrapping_add(8))?;
    if seconds > i64::MAX as u64 || micros >= 1_000_000 {
        return Err(Errno::EINVAL);
    }
    // Some hundred years are forever.
    Ok(seconds.min(u32::MAX.into()) * 1_000_000_000 + micros * 1000)
}

fn rest_ns(setting: Setting, now_ns: u64) -> u64 {
    match setting.next_ns {
        0 => 0,
        next_ns => next_ns.saturating_sub(now_ns).max(1000),
    }
}

fn put_timer(context: &Context<'_>, to: u64, setting: Setting, now_ns: u64) -> Result {
    for (at, ns) in [
        (to, setting.period_ns),
        (to.wrapping_add(16), rest_ns(setting, now_ns)),
    ] {
        context.process.put_u64(at, ns / 1_000_000_000)?;
        let micros = ns % 1_000_000_000 / 1000;
        context.process.put_u64(at.wrapping_add(8), micros)?;
    }
    Ok(0)
}

/// `timer_create(2)`: EINVAL for the CPU time of a thread that does not exist, and EOPNOTSUPP
/// for clocks that only can be read.
pub(super) fn timer_create(context: &Context<'_>, id: u64, event: u64, to: u64) -> Result {
    let counted = match clock_of(id)? {
        ClockOf::Wall => Counted::Time(Clock::Wall),
        ClockOf::Start { for_sleep: true } => Counted::Time(Clock::Monotonic),
        ClockOf::Start { for_sleep: false } => return Err(Errno::EOPNOTSUPP),
        ClockOf::Process => Counted::Process,
        ClockOf::Thread(0) => Counted::Thread(context.thread.number),
        ClockOf::Thread(number) if has_thread(context, number) => Counted::Thread(number),
        ClockOf::Thread(_) => return Err(Errno::EINVAL),
    };
    let process = context.process;
    let (notify, signal, value) = if event == 0 {
        (Notify::Process, c::SIGALRM, None)
    } else {
        // `struct sigevent`: the value, the signal, how, and the thread.
        let bytes: [u8; 64] = process.array(event)?;
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at / 4]);
        let (value, signal) = (u64::from(word(0)) | u64::from(word(4)) << 32, word(8));
        let notify = match word(12) {
            c::SIGEV_SIGNAL | c::SIGEV_THREAD => Notify::Process,
            c::SIGEV_NONE => Notify::None,
            how if how == c::SIGEV_SIGNAL | c::SIGEV_THREAD_ID => {
                let number = word(16);
                if !has_thread(context, number) {
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
    let timer = Timer::new(counted, notify, signal, 0);
    let id = process.timers.add(timer, value)?;
    if let Err(errno) = process.put_u32(to, id) {
        ring::remove_timer(process, id)?;
        return Err(errno);
    }
    Ok(0)
}

fn has_thread(context: &Context<'_>, number: u32) -> bool {
    context.process.threads.lock().contains_key(&number)
}

/// `timer_settime(2)`: ESRCH for the CPU time of a thread that has ended.
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
    let (process, id) = (context.process, id as u32);
    let counted = process.timers.counted(id);
    // The times come first, as in Linux.
    let given = match counted {
        Ok(Counted::Time(clock)) => setting(context, clock, flags, new)?,
        Ok(counted) => {
            let now_ns = process.counted_ns(counted);
            setting_on(context, (now_ns, |ns| ns), flags, new)?
        }
        Err(_) => setting(context, Clock::Monotonic, flags, new)?,
    };
    let counted = counted?;
    if let Counted::Thread(number) = counted
        && !has_thread(context, number)
    {
        return Err(Errno::ESRCH);
    }
    let before = ring::set_timer(process, context.thread, id, given)?;
    match old {
        0 => Ok(0),
        old => put_setting(context, old, before, process.counted_ns(counted)),
    }
}

pub(super) fn timer_gettime(context: &Context<'_>, id: u64, to: u64) -> Result {
    let process = context.process;
    let now_of = |counted| process.counted_ns(counted);
    let setting = process.timers.setting(id as u32, now_of)?;
    let counted = process.timers.counted(id as u32)?;
    put_setting(context, to, setting, process.counted_ns(counted))
}

pub(super) fn timer_getoverrun(context: &Context<'_>, id: u64) -> Result {
    context.process.timers.overruns(id as u32)
}

pub(super) fn timer_delete(context: &Context<'_>, id: u64) -> Result {
    ring::remove_timer(context.process, id as u32)?;
    Ok(0)
}
