//! Waiting for files: `epoll(7)`, `poll(2)`, `eventfd(2)`, `timerfd(2)`, `pipe(2)`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as c;
use tare_hal::clock;
use tare_libos::time::{Duration, Instant};

use super::arguments::Arguments;
use super::descriptors::open as opened;
use super::descriptors::{close, insert};
use super::parts::with_buffer;
use super::time::{duration, micros, put_duration, put_micros};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::epoll::{Epoll, Interest};
use crate::files::pipe::{Event, Pipe};
use crate::files::signal::SignalFile;
use crate::files::timer::{Clock, Setting, Timer};
use crate::files::{File, Open};
use crate::signals::Mask;
use crate::timers;

/// Most events of one call.
const MOST_EVENTS: u64 = 1024;
const POLLNVAL: u32 = 0x20;
/// Bytes of `struct epoll_event`, which is packed: events and data.
const EVENT_BYTES: usize = 12;

/// A deadline in milliseconds; none for a negative number.
pub(super) fn deadline_ms(milliseconds: u64) -> Option<Instant> {
    let ms = u64::try_from(milliseconds as u32 as i32).ok()?;
    Some(Instant::now() + Duration::from_millis(ms))
}

/// A deadline from the `timespec` at an address; none at 0.
pub(super) fn deadline(context: &Context<'_>, at: u64) -> Result<Option<Instant>> {
    match at {
        0 => Ok(None),
        at => Ok(Some(Instant::now() + duration(context, at)?)),
    }
}

/// The signal mask at an address; none at 0.
pub(super) fn mask(context: &Context<'_>, at: u64, bytes: u64) -> Result<Option<Mask>> {
    match (at, bytes) {
        (0, _) => Ok(None),
        (at, 8) => Ok(Some(Mask(context.process.u64(at)?))),
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn epoll_create(context: &Context<'_>, flags: u64) -> Result {
    only(flags, c::O_CLOEXEC)?;
    insert(
        context,
        Open::new(Arc::new(Epoll::default()), c::O_RDWR),
        flags as u32,
    )
}

pub(super) fn epoll_ctl(
    context: &Context<'_>,
    queue: u64,
    operation: u64,
    number: u64,
    event: u64,
) -> Result {
    let queue = opened(context, queue)?;
    let open = opened(context, number)?;
    if !open.file.has_events() {
        return Err(Errno::EPERM);
    }
    let epoll = queue.file.as_kind::<Epoll>().ok_or(Errno::EINVAL)?;
    if Arc::ptr_eq(&queue, &open) {
        return Err(Errno::EINVAL);
    }
    let interest = || -> Result<Interest> {
        let bytes: [u8; EVENT_BYTES] = context.process.array(event)?;
        let (events, data) = bytes.split_at(4);
        Ok(Interest {
            events: events.first_chunk().map_or(0, |b| u32::from_le_bytes(*b)),
            data: data.first_chunk().map_or(0, |b| u64::from_le_bytes(*b)),
        })
    };
    match operation as u32 {
        c::EPOLL_CTL_ADD => epoll.add(number, &open, interest()?)?,
        c::EPOLL_CTL_MOD => epoll.modify(number, &open, interest()?)?,
        c::EPOLL_CTL_DEL => epoll.remove(number, &open)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

pub(super) fn epoll_wait(
    context: &mut Context<'_>,
    [queue, to, most, ..]: Arguments,
    deadline: Option<Instant>,
    mask: Option<Mask>,
) -> Result {
    let queue = opened(context, queue)?;
    let epoll = queue.file.as_kind::<Epoll>().ok_or(Errno::EINVAL)?;
    let most = i64::from(most as i32).clamp(0, MOST_EVENTS as i64) as usize;
    if most == 0 {
        return Err(Errno::EINVAL);
    }
    // Who does not wait wants to know all.
    let waits = deadline.is_none_or(|deadline| Instant::now() < deadline);
    let look = || {
        let found = epoll.take(if waits { epoll.part_of(most) } else { most });
        if found.is_empty() {
            Err(Errno::EAGAIN)
        } else {
            Ok(found)
        }
    };
    let watched = [queue.file.as_ref()];
    let found = context.with_mask(mask, || until_ready(context, &watched, deadline, look))?;
    let Some(found) = found else {
        return Ok(0);
    };
    let length = found.len() * EVENT_BYTES;
    with_buffer(context, length, |context, buffer| {
        for (slot, event) in buffer.chunks_mut(EVENT_BYTES).zip(&found) {
            slot[..4].copy_from_slice(&event.events.to_le_bytes());
            slot[4..].copy_from_slice(&event.data.to_le_bytes());
        }
        context.process.write(to, &buffer[..length])
    })?;
    Ok(found.len() as u64)
}

pub(super) fn poll(
    context: &Context<'_>,
    list: u64,
    count: u64,
    deadline: Option<Instant>,
    mask: Option<Mask>,
) -> Result {
    if count as u32 as usize > context.process.files.lock().limit {
        return Err(Errno::EINVAL);
    }
    let mut entries = context.process.bytes(list, count as u32 as usize * 8)?;
    let mut files: Vec<Option<(Arc<Open>, u32)>> = Vec::new();
    for entry in entries.chunks(8) {
        let number = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let wanted = u32::from(u16::from_le_bytes([entry[4], entry[5]]));
        files.push(match number {
            ..0 => None,
            number => match opened(context, number as u64) {
                Ok(open) => Some((open, wanted | c::POLLERR | c::POLLHUP)),
                Err(_) => Some((Open::new(Arc::new(crate::files::Device::Null), 0), POLLNVAL)),
            },
        });
    }
    let watched: Vec<&dyn File> = files
        .iter()
        .flatten()
        .map(|(open, _)| open.file.as_ref())
        .collect();
    let look = || {
        let mut ready = 0;
        for (file, entry) in files.iter().zip(entries.chunks_mut(8)) {
            let events = match file {
                None => 0,
                Some((_, POLLNVAL)) => POLLNVAL,
                Some((open, wanted)) => open.file.shown(open.file.ready()) & wanted,
            };
            entry[6..].copy_from_slice(&(events as u16).to_le_bytes());
            ready += u64::from(events != 0);
        }
        ready
    };
    let ready = count_ready(context, &watched, deadline, mask, look)?;
    context.process.write(list, &entries)?;
    Ok(ready)
}

pub(super) fn poll_ms(context: &Context<'_>, list: u64, count: u64, timeout: u64) -> Result {
    poll(context, list, count, deadline_ms(timeout), None)
}

pub(super) fn ppoll(context: &Context<'_>, a: Arguments) -> Result {
    let [list, count, timeout, at, bytes, _] = a;
    let deadline = deadline(context, timeout)?;
    let ready = poll(context, list, count, deadline, mask(context, at, bytes)?);
    put_rest(context, timeout, deadline, put_duration);
    ready
}

/// Writes by `put` how much of the time until `deadline` is left: whatever a call gives, an
/// interruption too (`poll_select_finish` in Linux's fs/select.c). Memory that may not be written
/// is not an error.
fn put_rest(
    context: &Context<'_>,
    to: u64,
    deadline: Option<Instant>,
    put: impl FnOnce(&Context<'_>, u64, Duration) -> Result,
) {
    if let Some(deadline) = deadline {
        put(context, to, deadline.duration_since(Instant::now())).ok();
    }
}

/// `pselect6(2)`: the sixth argument points to a mask's address and size.
pub(super) fn pselect(context: &Context<'_>, a: Arguments) -> Result {
    let deadline = deadline(context, a[4])?;
    let mask = match a[5] {
        0 => None,
        at => {
            let bytes = context.process.u64(at.wrapping_add(8))?;
            mask(context, context.process.u64(at)?, bytes)?
        }
    };
    let ready = select_until(context, a, deadline, mask);
    put_rest(context, a[4], deadline, put_duration);
    ready
}

/// `select(2)`.
pub(super) fn select(context: &Context<'_>, a: Arguments) -> Result {
    let timeout = micros(context, a[4])?;
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let ready = select_until(context, a, deadline, None);
    put_rest(context, a[4], deadline, put_micros);
    ready
}

/// The sets of `select`, as a list for [`poll`].
fn select_until(
    context: &Context<'_>,
    a: Arguments,
    deadline: Option<Instant>,
    mask: Option<Mask>,
) -> Result {
    let count = (a[0] as usize).min(1024);
    let bytes = count.div_ceil(64) * 8;
    let sets = [a[1], a[2], a[3]];
    let mut wanted: [Vec<u8>; 3] = Default::default();
    for (set, address) in wanted.iter_mut().zip(sets) {
        *set = match address {
            0 => alloc::vec![0; bytes],
            address => context.process.bytes(address, bytes)?,
        };
    }
    let has = |set: &[u8], number: usize| set[number / 8] & 1 << (number % 8) != 0;
    let events = [
        c::POLLIN | c::POLLHUP | c::POLLERR,
        c::POLLOUT | c::POLLERR,
        c::POLLPRI,
    ];
    let mut files = Vec::new();
    for number in 0..count {
        let bits = wanted
            .iter()
            .zip(events)
            .filter(|(set, _)| has(set, number));
        let bits = bits.fold(0, |all, (_, event)| all | event);
        if bits != 0 {
            files.push((number, opened(context, number as u64)?, bits));
        }
    }
    let mut found: [Vec<u8>; 3] = Default::default();
    let watched: Vec<&dyn File> = files
        .iter()
        .map(|(_, open, _)| open.file.as_ref())
        .collect();
    let look = || {
        found = core::array::from_fn(|_| alloc::vec![0; bytes]);
        let mut ready = 0;
        for (number, open, bits) in &files {
            let now = open.file.ready() & bits;
            for ((set, event), wanted) in found.iter_mut().zip(events).zip(&wanted) {
                if now & event != 0 && has(wanted, *number) {
                    set[number / 8] |= 1 << (number % 8);
                    ready += 1;
                }
            }
        }
        ready
    };
    let ready = count_ready(context, &watched, deadline, mask, look)?;
    for (set, address) in found.iter().zip(sets).filter(|(_, address)| *address != 0) {
        context.process.write(address, set)?;
    }
    Ok(ready)
}

/// How many of `files` are ready, as `look` counts them, at once or within the time, in which
/// the signals of `mask` are blocked instead of the thread's own.
fn count_ready(
    context: &Context<'_>,
    files: &[&dyn File],
    deadline: Option<Instant>,
    mask: Option<Mask>,
    mut look: impl FnMut() -> u64,
) -> Result {
    let look = || match look() {
        0 => Err(Errno::EAGAIN),
        ready => Ok(ready),
    };
    let ready = context.with_mask(mask, || {
        unless_signalled(context, until_ready(context, files, deadline, look)?)
    })?;
    Ok(ready.unwrap_or(0))
}

/// What `look` finds at once or, where the deadline is still to come, after a wait for
/// `files`; `None` if it finds nothing (EAGAIN) by then.
fn until_ready<R>(
    context: &Context<'_>,
    files: &[&dyn File],
    deadline: Option<Instant>,
    mut look: impl FnMut() -> Result<R>,
) -> Result<Option<R>> {
    let found = match look() {
        Err(Errno::EAGAIN) if deadline.is_none_or(|deadline| Instant::now() < deadline) => {
            context.wait(files, deadline, look)
        }
        found => found,
    };
    match found {
        Err(Errno::EAGAIN) => Ok(None),
        found => found.map(Some),
    }
}

/// Refuses flags that a call does not have.
fn only(flags: u64, known: u32) -> Result<()> {
    match flags as u32 & !known {
        0 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// EINTR where nothing was found and a signal waits, also without a wait: as `poll` and
/// `select` do, and `epoll_wait` does not.
fn unless_signalled<R>(context: &Context<'_>, found: Option<R>) -> Result<Option<R>> {
    if found.is_none() && context.process.claim_signal(context.thread) {
        return Err(Errno::EINTR);
    }
    Ok(found)
}

pub(super) fn eventfd(context: &Context<'_>, count: u64, flags: u64) -> Result {
    only(flags, c::O_CLOEXEC | c::O_NONBLOCK | c::EFD_SEMAPHORE)?;
    let flags = flags as u32;
    let event = Event::new(u64::from(count as u32), flags & c::EFD_SEMAPHORE != 0);
    insert(
        context,
        Open::new(Arc::new(event), flags & c::O_NONBLOCK | c::O_RDWR),
        flags,
    )
}

/// `signalfd(2)`: EINVAL for another size of the set, other flags, and a descriptor that is not of
/// such a file.
pub(super) fn signalfd(context: &Context<'_>, a: Arguments, flags: u64) -> Result {
    let [number, set, bytes, ..] = a;
    if bytes != 8 {
        return Err(Errno::EINVAL);
    }
    let set = Mask(context.process.u64(set)?).blockable();
    only(flags, c::O_CLOEXEC | c::O_NONBLOCK)?;
    let flags = flags as u32;
    if number as u32 != u32::MAX {
        let open = opened(context, number)?;
        let file = open.file.as_kind::<SignalFile>().ok_or(Errno::EINVAL)?;
        file.set(set);
        return Ok(u64::from(number as u32));
    }
    let file = SignalFile::new(context.process, set);
    let open = Open::new(Arc::new(file), flags & c::O_NONBLOCK | c::O_RDWR);
    insert(context, open, flags)
}

pub(super) fn put_pair(context: &Context<'_>, to: u64, ends: [Arc<Open>; 2], flags: u32) -> Result {
    let [first, second] = ends;
    let first = insert(context, first, flags)?;
    let put = insert(context, second, flags).and_then(|second| {
        let put = context.process.put_u64(to, first | second << 32);
        if put.is_err() {
            close(context, second)?;
        }
        put
    });
    if put.is_err() {
        close(context, first)?;
    }
    put.map(|()| 0)
}

pub(super) fn pipe(context: &Context<'_>, to: u64, flags: u64) -> Result {
    only(flags, c::O_CLOEXEC | c::O_NONBLOCK | c::O_DIRECT)?;
    let flags = flags as u32;
    let kept = flags & c::O_NONBLOCK;
    let (reader, writer) = Pipe::pair();
    let ends = [
        Open::new(Arc::new(reader), kept),
        Open::new(Arc::new(writer), kept | c::O_WRONLY),
    ];
    put_pair(context, to, ends, flags)
}

pub(super) fn timerfd_create(context: &Context<'_>, clock: u64, flags: u64) -> Result {
    let timer = match clock as u32 {
        c::CLOCK_REALTIME | c::CLOCK_REALTIME_ALARM => Timer::new(Clock::Wall),
        c::CLOCK_MONOTONIC | c::CLOCK_BOOTTIME | c::CLOCK_BOOTTIME_ALARM => {
            Timer::new(Clock::Monotonic)
        }
        _ => return Err(Errno::EINVAL),
    };
    only(flags, c::O_CLOEXEC | c::O_NONBLOCK)?;
    let open = Open::new(Arc::new(timer), flags as u32 & c::O_NONBLOCK | c::O_RDWR);
    insert(context, open, flags as u32)
}

pub(super) fn timerfd_settime(
    context: &Context<'_>,
    number: u64,
    flags: u64,
    new: u64,
    old: u64,
) -> Result {
    let open = opened(context, number)?;
    let timer = open.file.as_kind::<Timer>().ok_or(Errno::EINVAL)?;
    let before = timer.set(setting(context, timer.clock(), flags, new)?);
    if old != 0 {
        let now_ns = clock::now_ns();
        put_setting(context, old, left(before, now_ns), now_ns)?;
    }
    Ok(0)
}

/// What is left of a setting, of which no expiration may have been read.
fn left(setting: Setting, now_ns: u64) -> Setting {
    let next_ns = match (setting.next_ns, setting.period_ns) {
        (next_ns, _) if next_ns == 0 || next_ns > now_ns => next_ns,
        (_, 0) => 0,
        (next_ns, period_ns) => timers::next(next_ns, period_ns, now_ns),
    };
    Setting { next_ns, ..setting }
}

pub(super) fn timerfd_gettime(context: &Context<'_>, number: u64, to: u64) -> Result {
    let open = opened(context, number)?;
    let timer = open.file.as_kind::<Timer>().ok_or(Errno::EINVAL)?;
    let now_ns = clock::now_ns();
    put_setting(context, to, left(timer.setting(), now_ns), now_ns)
}

/// The setting of a timer by the `itimerspec` at an address, on the monotonic clock.
pub(super) fn setting(context: &Context<'_>, clock: Clock, flags: u64, at: u64) -> Result<Setting> {
    let absolute = |ns| clock.monotonic_ns(ns);
    setting_on(context, (clock::now_ns(), absolute), flags, at)
}

/// The same on a clock that shows `now_ns`, and has absolute times by `absolute`.
pub(super) fn setting_on(
    context: &Context<'_>,
    (now_ns, absolute): (u64, impl Fn(u64) -> u64),
    flags: u64,
    at: u64,
) -> Result<Setting> {
    let period_ns = duration(context, at)?.as_nanos() as u64;
    let first_ns = duration(context, at.wrapping_add(16))?.as_nanos() as u64;
    let is_absolute = flags & 1 != 0;
    let next_ns = match first_ns {
        0 => 0,
        first_ns if is_absolute => absolute(first_ns).max(1),
        first_ns => now_ns.saturating_add(first_ns),
    };
    Ok(Setting { next_ns, period_ns })
}

/// Puts a setting on a clock that shows `now_ns`, as `itimerspec`.
pub(super) fn put_setting(context: &Context<'_>, to: u64, setting: Setting, now_ns: u64) -> Result {
    let rest = match setting.next_ns {
        0 => 0,
        next_ns => next_ns.saturating_sub(now_ns).max(1),
    };
    put_duration(context, to, Duration::from_nanos(setting.period_ns))?;
    put_duration(context, to.wrapping_add(16), Duration::from_nanos(rest))
}
