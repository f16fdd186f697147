//! Threads and what they share: `clone(2)`, `futex(2)`, scheduling, signals.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as c;
use tare_hal::clock;
use tare_libos::time::{Duration, Instant};
use tare_program::offered::ThreadFlag;

use super::arguments::Arguments;
use super::time::duration;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::process::PID;
use crate::signals::{Action, END, Mask};
use crate::thread::{NewThread, SignalStack};

/// Flags of a thread of this process.
const THREAD: u32 = c::CLONE_VM | c::CLONE_SIGHAND | c::CLONE_THREAD;
const COMMAND: u32 = 0x7f;
const SS_DISABLE: u32 = 2;

/// What a new thread begins with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clone {
    pub(super) flags: u64,
    pub(super) stack: u64,
    pub(super) parent_number: u64,
    pub(super) child_number: u64,
    pub(super) tls: u64,
}

pub(super) fn clone(context: &mut Context<'_>, request: Clone) -> Result {
    if request.flags as u32 & THREAD != THREAD {
        return refuse_fork(context, "clone");
    }
    (context.start_thread)(context, &request_of(&request))
}

pub(super) fn clone3(context: &mut Context<'_>, at: u64, bytes: u64) -> Result {
    if bytes < 64 {
        return Err(Errno::EINVAL);
    }
    let word = |number: u64| context.process.u64(at.wrapping_add(number * 8));
    let request = Clone {
        flags: word(0)?,
        child_number: word(2)?,
        parent_number: word(3)?,
        stack: word(5)?.wrapping_add(word(6)?),
        tls: word(7)?,
    };
    clone(context, request)
}

/// What the run loop takes.
fn request_of(request: &Clone) -> NewThread {
    let flags = request.flags as u32 & ThreadFlag::MASK;
    let has = |bit: u32| flags & bit != 0;
    NewThread {
        stack: request.stack,
        tls: has(c::CLONE_SETTLS).then_some(request.tls),
        parent_number: has(c::CLONE_PARENT_SETTID).then_some(request.parent_number),
        child_number: has(c::CLONE_CHILD_SETTID).then_some(request.child_number),
        clear_at_end: if has(c::CLONE_CHILD_CLEARTID) {
            request.child_number
        } else {
            0
        },
    }
}

/// One process only: says which call, and what to set.
pub(super) fn refuse_fork(context: &Context<'_>, call: &str) -> Result {
    let hint = if context.process.path.ends_with("nginx") {
        ": set `daemon off; master_process off;`"
    } else {
        ": set the program to run in the foreground, as one process"
    };
    log::warn!("the program calls {call}; it has one process here{hint}");
    Err(Errno::ENOSYS)
}

pub(super) fn futex(context: &Context<'_>, a: Arguments) -> Result {
    let [address, operation, value, timeout, second, third] = a;
    let operation = operation as u32;
    let process = context.process;
    let is_value = |expected: u64| {
        let word = process.futex_word(address)?;
        if word == expected as u32 {
            Ok(())
        } else {
            Err(Errno::EAGAIN)
        }
    };
    let count = |value: u64| (value as u32 as i32).max(0) as usize;
    match operation & COMMAND {
        command @ (c::FUTEX_WAIT | c::FUTEX_WAIT_BITSET) => {
            let (bits, deadline) = match (command, timeout) {
                (c::FUTEX_WAIT, 0) => (u32::MAX, None),
                (c::FUTEX_WAIT, at) => (u32::MAX, Some(Instant::now() + duration(context, at)?)),
                (_, 0) => (third as u32, None),
                (_, at) => {
                    let until = duration(context, at)?;
                    let now = match operation & c::FUTEX_CLOCK_REALTIME {
                        0 => clock::now_ns(),
                        _ => clock::wall_ns(),
                    };
                    let rest = until.saturating_sub(Duration::from_nanos(now));
                    (third as u32, Some(Instant::now() + rest))
                }
            };
            if bits == 0 {
                return Err(Errno::EINVAL);
            }
            // The page comes before the lock is held.
            process.futex_word(address)?;
            let sleeper = process.futexes.sleep(address, bits, || is_value(value))?;
            let woken = context.wait(&[], deadline, || {
                if sleeper.is_woken() {
                    Ok(0)
                } else {
                    Err(Errno::EAGAIN)
                }
            });
            if woken.is_err() {
                process.futexes.leave(&sleeper);
                if sleeper.is_woken() {
                    return Ok(0);
                }
            }
            woken.map_err(|errno| match errno {
                Errno::EAGAIN => Errno::ETIMEDOUT,
                errno => errno,
            })
        }
        c::FUTEX_WAKE => Ok(process.futexes.wake(address, count(value), u32::MAX) as u64),
        c::FUTEX_WAKE_BITSET => {
            Ok(process.futexes.wake(address, count(value), third as u32) as u64)
        }
        c::FUTEX_REQUEUE => {
            let counts = (count(value), count(timeout));
            Ok(process
                .futexes
                .requeue::<Errno>(address, second, counts, || Ok(()))? as u64)
        }
        c::FUTEX_CMP_REQUEUE => {
            process.futex_word(address)?;
            let counts = (count(value), count(timeout));
            Ok(process
                .futexes
                .requeue(address, second, counts, || is_value(third))? as u64)
        }
        _ => Err(Errno::ENOSYS),
    }
}

pub(super) fn sched_getaffinity(context: &Context<'_>, bytes: u64, to: u64) -> Result {
    if bytes < 8 {
        return Err(Errno::EINVAL);
    }
    let cpus = (1_u64 << tare_libos::thread::cores().min(63)) - 1;
    context.process.put_u64(to, cpus)?;
    Ok(8)
}

pub(super) fn rt_sigaction(context: &Context<'_>, a: Arguments) -> Result {
    let [signal, new, old, bytes, ..] = a;
    if bytes != 8 {
        return Err(Errno::EINVAL);
    }
    let signal = u32::try_from(signal)
        .ok()
        .filter(|signal| (1..END).contains(signal));
    let signal = signal.ok_or(Errno::EINVAL)?;
    let process = context.process;
    let mut before = process.actions.lock().get(signal);
    if new != 0 {
        let word = |number: u64| process.u64(new.wrapping_add(number * 8));
        let action = Action {
            handler: word(0)?,
            flags: word(1)?,
            restorer: word(2)?,
            mask: word(3)?,
        };
        before = process.actions.lock().set(signal, action)?;
    }
    if old != 0 {
        let words = [before.handler, before.flags, before.restorer, before.mask];
        for (number, word) in (0..).zip(words) {
            process.put_u64(old.wrapping_add(number * 8), word)?;
        }
    }
    Ok(0)
}

pub(super) fn rt_sigprocmask(context: &Context<'_>, how: u64, new: u64, old: u64) -> Result {
    let thread = context.thread;
    let before = thread.blocked.load(Ordering::Relaxed);
    if new != 0 {
        let given = context.process.u64(new)?;
        let mask = match how as u32 {
            c::SIG_BLOCK => before | given,
            c::SIG_UNBLOCK => before & !given,
            c::SIG_SETMASK => given,
            _ => return Err(Errno::EINVAL),
        };
        thread
            .blocked
            .store(Mask(mask).blockable().0, Ordering::Relaxed);
    }
    if old != 0 {
        context.process.put_u64(old, before)?;
    }
    Ok(0)
}

pub(super) fn rt_sigsuspend(context: &Context<'_>, mask: u64) -> Result {
    let mask = Mask(context.process.u64(mask)?);
    context.with_mask(Some(mask), || {
        context.wait(&[], None, || Err(Errno::EAGAIN))
    })
}

pub(super) fn sigaltstack(context: &Context<'_>, new: u64, old: u64) -> Result {
    let process = context.process;
    let mut stack = context.thread.signal_stack.lock();
    let before = *stack;
    if new != 0 {
        let flags = process.u32(new.wrapping_add(8))?;
        let given = SignalStack {
            base: process.u64(new)?,
            bytes: process.u64(new.wrapping_add(16))?,
        };
        *stack = match flags & SS_DISABLE {
            0 if given.bytes < 2048 => return Err(Errno::ENOMEM),
            0 => given,
            _ => SignalStack::default(),
        };
    }
    drop(stack);
    if old != 0 {
        process.put_u64(old, before.base)?;
        let flags = if before.bytes == 0 { SS_DISABLE } else { 0 };
        process.put_u64(old.wrapping_add(8), flags.into())?;
        process.put_u64(old.wrapping_add(16), before.bytes)?;
    }
    Ok(0)
}

pub(super) fn kill(context: &Context<'_>, process: u64, signal: u64) -> Result {
    match process as u32 as i32 {
        -1 | 0 => {}
        number if number.unsigned_abs() == PID => {}
        _ => return Err(Errno::ESRCH),
    }
    match signal as u32 {
        0 => {}
        signal if signal < END => context.process.send(None, signal),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

pub(super) fn tgkill(context: &Context<'_>, number: u64, signal: u64) -> Result {
    let thread = context
        .process
        .threads
        .lock()
        .get(&(number as u32))
        .cloned();
    let thread = thread.ok_or(Errno::ESRCH)?;
    match signal as u32 {
        0 => {}
        signal if signal < END => context.process.send(Some(&thread), signal),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// `sigpending(2)`.
pub(super) fn rt_sigpending(context: &Context<'_>, to: u64) -> Result {
    let (process, thread) = (context.process, context.thread);
    let blocked = process.waiting(thread).0 & thread.mask().0;
    process.put_u64(to, blocked)?;
    Ok(0)
}

/// `sigtimedwait(2)`: gives a signal of a set without calling its handler.
pub(super) fn rt_sigtimedwait(context: &Context<'_>, set: u64, info: u64, timeout: u64) -> Result {
    let set = Mask(context.process.u64(set)?).blockable();
    let deadline = match timeout {
        0 => None,
        at => Some(Instant::now() + duration(context, at)?),
    };
    let (process, thread) = (context.process, context.thread);
    // While it waits, what it waits for ends its wait.
    let found = context.with_mask(Some(Mask(thread.mask().0 & !set.0)), || {
        let take = || process.take_of(thread, set).ok_or(Errno::EAGAIN);
        match take() {
            Err(_) => context.wait(&[], deadline, take),
            found => found,
        }
    });
    if found == Err(Errno::EINTR) {
        // One with a handler, or one of the set, which came behind the look.
        if let Some(found) = process.take_of(thread, set) {
            thread.restore_mask();
            return put_info(context, info, found);
        }
    }
    put_info(context, info, found?)
}

fn put_info(context: &Context<'_>, info: u64, (signal, code): (u32, i32)) -> Result {
    if info != 0 {
        let mut bytes = [0; 128];
        bytes[..4].copy_from_slice(&signal.to_le_bytes());
        bytes[8..12].copy_from_slice(&code.to_le_bytes());
        bytes[16..20].copy_from_slice(&PID.to_le_bytes());
        context.process.write(info, &bytes)?;
    }
    Ok(signal.into())
}

/// `set_robust_list(2)`: what a thread held is not released where it ends alone.
pub(super) fn set_robust_list(bytes: u64) -> Result {
    match bytes {
        24 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}
