//! Threads and what they share: `clone(2)`, `futex(2)`.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as c;
use tare_hal::clock;
use tare_libos::time::{Duration, Instant};
use tare_program::offered::ThreadFlag;

use super::arguments::Arguments;
use super::time::duration;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::futex::Sleeper;
use crate::process::{FutexWord, Process};
use crate::thread::{NewThread, Thread};

/// Flags of a thread of this process.
const THREAD: u32 = c::CLONE_VM | c::CLONE_SIGHAND | c::CLONE_THREAD;
const COMMAND: u32 = 0x7f;
/// Bytes of the head of a list of robust futexes.
const ROBUST_LIST_BYTES: u64 = 24;
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
    let hint = if context.process.path().ends_with("nginx") {
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
    // What is private is known by its address alone, as in Linux (`get_futex_key`).
    let expect_key = |address: u64| {
        if operation & c::FUTEX_PRIVATE_FLAG == 0 || !address.is_multiple_of(4) {
            return process.futex_word(address).map(drop);
        }
        Process::is_own(address, 4)
    };
    let count = |value: u64| (value as u32 as i32).max(0) as usize;
    match operation & COMMAND {
        command @ (c::FUTEX_WAIT | c::FUTEX_WAIT_BITSET) => {
            let (bits, deadline) = match (command, timeout) {
                (c::FUTEX_WAIT, 0) => (u32::MAX, None),
                (c::FUTEX_WAIT, at) => (u32::MAX, Some(Instant::now() + duration(context, at)?)),
                (_, 0) => (third as u32, None),
                (_, at) => {
                    let is_wall = operation & c::FUTEX_CLOCK_REALTIME != 0;
                    (third as u32, Some(instant(duration(context, at)?, is_wall)))
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
        c::FUTEX_WAKE => {
            expect_key(address)?;
            Ok(process.futexes.wake(address, count(value), u32::MAX) as u64)
        }
        c::FUTEX_WAKE_BITSET => {
            expect_key(address)?;
            Ok(process.futexes.wake(address, count(value), third as u32) as u64)
        }
        c::FUTEX_REQUEUE => {
            expect_key(address)?;
            expect_key(second)?;
            let counts = (count(value), count(timeout));
            Ok(process
                .futexes
                .requeue::<Errno>(address, second, counts, || Ok(()))? as u64)
        }
        c::FUTEX_CMP_REQUEUE => {
            process.futex_word(address)?;
            expect_key(second)?;
            let counts = (count(value), count(timeout));
            Ok(process
                .futexes
                .requeue(address, second, counts, || is_value(third))? as u64)
        }
        command @ (c::FUTEX_LOCK_PI | c::FUTEX_LOCK_PI2) => {
            let is_wall = command == c::FUTEX_LOCK_PI || operation & c::FUTEX_CLOCK_REALTIME != 0;
            if command == c::FUTEX_LOCK_PI && operation & c::FUTEX_CLOCK_REALTIME != 0 {
                return Err(Errno::ENOSYS);
            }
            let deadline = match timeout {
                0 => None,
                at => Some(instant(duration(context, at)?, is_wall)),
            };
            lock_owned(context, address, deadline)
        }
        c::FUTEX_TRYLOCK_PI => acquire(context, address, false).map(|_| 0),
        c::FUTEX_UNLOCK_PI => {
            let word = FutexWord { process, address };
            let lines = &process.owned_futexes;
            lines.hand_over((address, &word), context.thread.number, 0)?;
            Ok(0)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// When a clock of the program's will be `until`.
fn instant(until: Duration, is_wall: bool) -> Instant {
    let now = if is_wall {
        clock::wall_ns()
    } else {
        clock::now_ns()
    };
    Instant::now() + until.saturating_sub(Duration::from_nanos(now))
}

/// Makes this thread the owner of a futex, or lets it wait in line if `waits`.
fn acquire(context: &Context<'_>, address: u64, waits: bool) -> Result<Option<Arc<Sleeper>>> {
    let process = context.process;
    let word = FutexWord { process, address };
    let is_thread = |number| process.threads.lock().contains_key(&number);
    let lines = &process.owned_futexes;
    lines.acquire((address, &word), context.thread.number, is_thread, waits)
}

/// `FUTEX_LOCK_PI`. A signal's handler runs, and then the call goes on whatever the handler asks for
/// (ERESTARTNOINTR).
fn lock_owned(context: &Context<'_>, address: u64, deadline: Option<Instant>) -> Result {
    context.goes_on.set(true);
    let Some(sleeper) = acquire(context, address, true)? else {
        return Ok(0);
    };
    let waited = context.wait(&[], deadline, || {
        if sleeper.is_woken() {
            Ok(0)
        } else {
            Err(Errno::EAGAIN)
        }
    });
    if waited.is_ok() {
        return Ok(0);
    }
    context.process.owned_futexes.leave(address, &sleeper);
    match waited {
        _ if sleeper.is_woken() => Ok(0),
        Err(Errno::EAGAIN) => Err(Errno::ETIMEDOUT),
        other => other,
    }
}

/// The thread with a number; 0 is the one that calls.
pub(super) fn thread_of(context: &Context<'_>, number: u64) -> Result<Arc<Thread>> {
    match number as u32 {
        0 => Ok(context.thread.clone()),
        number => {
            let threads = context.process.threads.lock();
            threads.get(&number).cloned().ok_or(Errno::ESRCH)
        }
    }
}

/// `set_robust_list(2)`.
pub(super) fn set_robust_list(context: &Context<'_>, head: u64, bytes: u64) -> Result {
    if bytes != ROBUST_LIST_BYTES {
        return Err(Errno::EINVAL);
    }
    context.thread.robust_list.store(head, Ordering::Relaxed);
    Ok(0)
}

/// `get_robust_list(2)`, of a thread of this process.
pub(super) fn get_robust_list(context: &Context<'_>, number: u64, head: u64, bytes: u64) -> Result {
    let thread = thread_of(context, number)?;
    let process = context.process;
    process.put_u64(bytes, ROBUST_LIST_BYTES)?;
    process.put_u64(head, thread.robust_list.load(Ordering::Relaxed))?;
    Ok(0)
}
