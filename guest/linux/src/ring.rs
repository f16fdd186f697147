//! Timers that are set and ring: the thread that waits for all that count time, which the first one
//! that is set starts.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tare_libos::thread;
use tare_libos::time::Instant;

use crate::errno::{Errno, Result};
use crate::expiries;
use crate::files::timer::Setting;
use crate::process::Process;
use crate::signals::Mask;
use crate::thread::Thread;
use crate::timers::{Counted, Interval, Notify, Ring};

/// Stack of the thread that waits, bytes.
const STACK_BYTES: usize = 16 * 1024;

/// Sets the alarm; gives what it was set to.
pub(crate) fn set_alarm(process: &Arc<Process>, setting: Setting) -> Result<Setting> {
    let old = process.timers.set_alarm(setting);
    look_again(process, setting)?;
    Ok(old)
}

/// Sets a timer of `setitimer` that counts CPU time; gives what it was set to.
pub(crate) fn set_interval(
    process: &Process,
    by: &Thread,
    interval: Interval,
    setting: Setting,
) -> Setting {
    let old = process.timers.set_interval(interval, setting);
    look_now(process, Counted::Process, by);
    old
}

/// Sets a timer; gives what it was set to.
pub(crate) fn set_timer(
    process: &Arc<Process>,
    by: &Thread,
    id: u32,
    setting: Setting,
) -> Result<Setting> {
    let now_of = |counted| process.counted_ns(counted);
    let counted = process.timers.counted(id)?;
    let old = process.timers.set(id, setting, now_of)?;
    match counted {
        Counted::Time(_) => look_again(process, setting)?,
        counted => look_now(process, counted, by),
    }
    Ok(old)
}

/// A timer's signal is taken by a thread: the timer goes on. Gives what `siginfo` says of it.
pub(crate) fn taken(process: &Process, by: &Thread, id: u32) -> u64 {
    let now_of = |counted| process.counted_ns(counted);
    let (origin, goes_on) = process.timers.taken(id, now_of);
    match goes_on {
        None => {}
        Some(Counted::Time(_)) => {
            if let Some(waiter) = &*process.timers.waiter.lock() {
                waiter.unpark();
            }
        }
        Some(counted) => look_now(process, counted, by),
    }
    origin
}

/// Removes a timer, and its signal if that waits.
pub(crate) fn remove_timer(process: &Process, id: u32) -> Result<()> {
    process.timers.remove(id)?;
    process.pending.remove_timer(id);
    let threads = process.threads.lock();
    threads
        .values()
        .for_each(|thread| thread.pending.remove_timer(id));
    Ok(())
}

/// Has those look that count for a timer of CPU time which `by` has set, or which goes on.
fn look_now(process: &Process, counted: Counted, by: &Thread) {
    let threads: Vec<_> = process.threads.lock().values().cloned().collect();
    let counts = |thread: &Thread| match counted {
        Counted::Time(_) => false,
        Counted::Process => true,
        Counted::Thread(number) => number == thread.number,
    };
    let counting = threads.iter().filter(|thread| counts(thread));
    let looks = counting.clone().map(|thread| &thread.cpu_look_ns);
    process.timers.look_now(looks);
    // One that waits looks when it goes on.
    counting
        .filter(|thread| thread.number != by.number && thread.cpu_time.runs())
        .for_each(|thread| thread.interrupt());
}

/// Has the thread that waits look at the times again, or starts it for the first that is set.
fn look_again(process: &Arc<Process>, setting: Setting) -> Result<()> {
    let mut waiter = process.timers.waiter.lock();
    if let Some(waiter) = &*waiter {
        waiter.unpark();
        return Ok(());
    }
    if setting.next_ns == 0 {
        return Ok(());
    }
    let process = process.clone();
    let started = thread::Builder::new()
        .name("timers")
        .stack_size(STACK_BYTES)
        .spawn(move || wait(&process))
        .map_err(|_| Errno::ENOMEM)?;
    *waiter = Some(started.thread().clone());
    Ok(())
}

fn wait(process: &Process) {
    let mut due = Vec::new();
    loop {
        let next_ns = process.timers.ring(&mut due);
        for one in due.drain(..) {
            expiries::count_timer(process, one.2.timer);
            send(process, None, one);
        }
        match next_ns {
            Some(next_ns) => thread::park_until(Instant::from_nanos(next_ns)),
            None => thread::park(),
        }
    }
}

/// Sends a timer's signal. The thread that has found it due takes it if it can: another one would
/// be interrupted.
pub(crate) fn send(process: &Process, by: Option<&Thread>, (notify, signal, info): Ring) {
    let takes = |thread: &&Thread| thread.mask().0 & Mask::of(signal).0 == 0;
    let sent = match notify {
        Notify::None => Ok(()),
        Notify::Process if by.filter(takes).is_some() => process.leave(None, signal, info),
        Notify::Process => process.send(None, signal, info),
        Notify::Thread(number) => match by.filter(|thread| thread.number == number) {
            Some(thread) => process.leave(Some(thread), signal, info),
            None => {
                let thread = process.threads.lock().get(&number).cloned();
                // One that has ended gets nothing.
                thread.map_or(Ok(()), |thread| process.send(Some(&thread), signal, info))
            }
        },
    };
    if let Err(Errno(errno)) = sent {
        log::debug!("a timer's signal {signal} is lost: error {errno}");
    }
}
