//! Signals: what they do, who takes them, and sending them (`signal(7)`).

use core::sync::atomic::Ordering;

use linux_raw_sys::general as c;
use tare_libos::time::Instant;

use super::arguments::Arguments;
use super::threads::thread_of;
use super::time::duration;
use crate::context::Context;
use crate::delivery::does;
use crate::errno::{Errno, Result};
use crate::pending::{Info, SI_TKILL, SI_USER};
use crate::process::PID;
use crate::signals::{Action, END, Mask};
use crate::thread::SignalStack;

/// Least bytes of a stack for handlers (`MINSIGSTKSZ`).
const LEAST_STACK: u64 = 2048;

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
        if does(action, signal).is_none() {
            process.discard(context.thread, signal);
        }
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
    let rsp = context.registers.rsp;
    let mut stack = context.thread.signal_stack.lock();
    let before = *stack;
    if new != 0 {
        let flags = process.u32(new.wrapping_add(8))? & !c::SS_AUTODISARM;
        let given = SignalStack {
            base: process.u64(new)?,
            bytes: process.u64(new.wrapping_add(16))?,
        };
        if before.holds(rsp) {
            return Err(Errno::EPERM);
        }
        *stack = match flags {
            0 | c::SS_ONSTACK if given.bytes < LEAST_STACK => return Err(Errno::ENOMEM),
            0 | c::SS_ONSTACK => given,
            c::SS_DISABLE => SignalStack::default(),
            _ => return Err(Errno::EINVAL),
        };
    }
    drop(stack);
    if old != 0 {
        process.put_u64(old, before.base)?;
        process.put_u64(old.wrapping_add(8), before.flags(rsp).into())?;
        process.put_u64(old.wrapping_add(16), before.bytes)?;
    }
    Ok(0)
}

/// A signal's number; none for 0, with which a call only checks.
fn signal_of(number: u64) -> Result<Option<u32>> {
    match number as u32 {
        0 => Ok(None),
        signal if signal < END => Ok(Some(signal)),
        _ => Err(Errno::EINVAL),
    }
}

/// `kill(2)`: by the number of any thread too. There is no other process for `-1`, which leaves out
/// who calls.
pub(super) fn kill(context: &Context<'_>, process: u64, signal: u64) -> Result {
    match process as u32 as i32 {
        -1 => return Err(Errno::ESRCH),
        0 => {}
        number if number.unsigned_abs() == PID || is_thread(context, process) => {}
        _ => return Err(Errno::ESRCH),
    }
    if let Some(signal) = signal_of(signal)? {
        // As where `kill` finds no room for what `siginfo` says: one waits already.
        context
            .process
            .send(None, signal, Info::sent(SI_USER, PID))
            .ok();
    }
    Ok(0)
}

/// `tgkill(2)`, and `tkill(2)` of the own process.
pub(super) fn tgkill(context: &Context<'_>, process: u64, number: u64, signal: u64) -> Result {
    expect_thread(process, number)?;
    let thread = thread_of(context, number)?;
    if let Some(signal) = signal_of(signal)? {
        context
            .process
            .send(Some(&thread), signal, Info::sent(SI_TKILL, PID))?;
    }
    Ok(0)
}

/// `rt_sigqueueinfo(2)`: to the process.
pub(super) fn rt_sigqueueinfo(
    context: &Context<'_>,
    process: u64,
    signal: u64,
    info: u64,
) -> Result {
    let info = given_info(context, info)?;
    if process as u32 != PID && !is_thread(context, process) {
        return Err(Errno::ESRCH);
    }
    if let Some(signal) = signal_of(signal)? {
        context.process.send(None, signal, info)?;
    }
    Ok(0)
}

/// `rt_tgsigqueueinfo(2)`: to a thread.
pub(super) fn rt_tgsigqueueinfo(context: &Context<'_>, a: Arguments) -> Result {
    let [process, number, signal, info, ..] = a;
    let info = given_info(context, info)?;
    expect_thread(process, number)?;
    let thread = thread_of(context, number)?;
    if let Some(signal) = signal_of(signal)? {
        context.process.send(Some(&thread), signal, info)?;
    }
    Ok(0)
}

/// EINVAL for numbers that no process and thread have, and ESRCH for another process's thread.
fn expect_thread(process: u64, number: u64) -> Result<()> {
    if process as i32 <= 0 || number as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    match process as u32 {
        PID => Ok(()),
        _ => Err(Errno::ESRCH),
    }
}

fn is_thread(context: &Context<'_>, number: u64) -> bool {
    let threads = context.process.threads.lock();
    threads.contains_key(&(number as u32))
}

/// What the program says of a signal that it sends itself.
fn given_info(context: &Context<'_>, at: u64) -> Result<Info> {
    let bytes: [u8; 32] = context.process.array(at)?;
    let word = |at: usize| {
        let word = bytes[at..].first_chunk();
        word.map_or(0, |word| u64::from_le_bytes(*word))
    };
    Ok(Info {
        code: word(8) as u32 as i32,
        origin: word(16),
        value: word(24),
        timer: None,
    })
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

fn put_info(context: &Context<'_>, to: u64, (signal, info): (u32, Info)) -> Result {
    if to != 0 {
        let mut bytes = [0; 128];
        let content = info.bytes(signal);
        bytes[..content.len()].copy_from_slice(&content);
        context.process.write(to, &bytes)?;
    }
    Ok(signal.into())
}
