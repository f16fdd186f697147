//! Users, groups and capabilities (`credentials(7)`, `capabilities(7)`).

use alloc::vec::Vec;

use linux_raw_sys::general::{
    _LINUX_CAPABILITY_VERSION_1, _LINUX_CAPABILITY_VERSION_2, _LINUX_CAPABILITY_VERSION_3,
};

use super::arguments::Arguments;
use super::threads::thread_of;
use crate::capabilities::Sets;
use crate::context::Context;
use crate::credentials::{Change, MOST_GROUPS, Whose};
use crate::errno::{Errno, Result};

/// Versions of capabilities, with the words of each set.
const CAPABILITY_VERSIONS: [(u32, usize); 3] = [
    (_LINUX_CAPABILITY_VERSION_1, 1),
    (_LINUX_CAPABILITY_VERSION_2, 2),
    (_LINUX_CAPABILITY_VERSION_3, 2),
];

/// `getuid(2)` and `getgid(2)`.
pub(super) fn real(context: &Context<'_>, whose: Whose) -> Result {
    Ok(context.thread.credentials.lock().ids(whose).real.into())
}

/// `geteuid(2)` and `getegid(2)`; `setfsuid(2)` and `setfsgid(2)`, which give what was: for
/// files nothing depends on them.
pub(super) fn effective(context: &Context<'_>, whose: Whose) -> Result {
    Ok(context
        .thread
        .credentials
        .lock()
        .ids(whose)
        .effective
        .into())
}

/// `getresuid(2)`, `getresgid(2)`.
pub(super) fn all(context: &Context<'_>, whose: Whose, to: Arguments) -> Result {
    let ids = context.thread.credentials.lock().ids(whose);
    for (at, id) in to.into_iter().zip([ids.real, ids.effective, ids.saved]) {
        context.process.put_u32(at, id)?;
    }
    Ok(0)
}

/// `setuid(2)` and its kin.
pub(super) fn change(context: &Context<'_>, whose: Whose, change: Change) -> Result {
    let mut own = context.thread.credentials.lock();
    own.change(whose, change).map(|()| 0)
}

/// `getgroups(2)`: EINVAL for less room than there are groups.
pub(super) fn getgroups(context: &Context<'_>, most: u64, to: u64) -> Result {
    let groups: Vec<u32> = context.thread.credentials.lock().groups().into();
    let most = most as u32 as i32;
    if most < 0 || most != 0 && (most as usize) < groups.len() {
        return Err(Errno::EINVAL);
    }
    if most != 0 {
        put_words(context, to, &groups)?;
    }
    Ok(groups.len() as u64)
}

/// `setgroups(2)`: EPERM without `CAP_SETGID`.
pub(super) fn setgroups(context: &Context<'_>, count: u64, from: u64) -> Result {
    if !context.thread.credentials.lock().may_set_groups() {
        return Err(Errno::EPERM);
    }
    let count = count as u32 as usize;
    if count > MOST_GROUPS {
        return Err(Errno::EINVAL);
    }
    let bytes = context.process.bytes(from, count * 4)?;
    let (words, _) = bytes.as_chunks::<4>();
    let groups: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if groups.contains(&u32::MAX) {
        return Err(Errno::EINVAL);
    }
    context.thread.credentials.lock().set_groups(groups);
    Ok(0)
}

/// The words of each set by the header's version; another version gets the newest one.
fn capability_words(context: &Context<'_>, header: u64) -> Result<Option<usize>> {
    let version = context.process.u32(header)?;
    let known = CAPABILITY_VERSIONS.iter().find(|known| known.0 == version);
    if known.is_none() {
        context.process.put_u32(header, CAPABILITY_VERSIONS[2].0)?;
    }
    Ok(known.map(|known| known.1))
}

/// `capget(2)`: ESRCH for no thread.
pub(super) fn capget(context: &Context<'_>, header: u64, to: u64) -> Result {
    let words = match capability_words(context, header)? {
        Some(words) => words,
        None if to == 0 => return Ok(0),
        None => return Err(Errno::EINVAL),
    };
    if to == 0 {
        return Ok(0);
    }
    let number = context.process.u32(header.wrapping_add(4))?;
    if (number as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let thread = thread_of(context, number.into())?;
    let own = thread.credentials.lock().capabilities.sets();
    // The lower words of all, then the upper ones.
    let sets = [own.effective, own.permitted, own.inheritable];
    let lower = sets.map(|set| set as u32);
    let upper = sets.map(|set| (set >> 32) as u32);
    put_words(context, to, &[lower, upper].as_flattened()[..words * 3])
}

fn put_words(context: &Context<'_>, to: u64, words: &[u32]) -> Result {
    for (at, word) in (0..).zip(words) {
        context.process.put_u32(to.wrapping_add(at * 4), *word)?;
    }
    Ok(0)
}

/// `capset(2)`: EPERM for what the thread has not, and for another thread.
pub(super) fn capset(context: &Context<'_>, header: u64, from: u64) -> Result {
    let words = capability_words(context, header)?.ok_or(Errno::EINVAL)?;
    let number = u64::from(context.process.u32(header.wrapping_add(4))?);
    if number != 0 && number != u64::from(context.thread.number) {
        return Err(Errno::EPERM);
    }
    let bytes = context.process.bytes(from, words * 12)?;
    let (given, _) = bytes.as_chunks::<4>();
    let word = |at: usize| given.get(at).map_or(0, |word| u32::from_le_bytes(*word));
    let set = |at| u64::from(word(at)) | u64::from(word(at + 3)) << 32;
    let new = Sets {
        effective: set(0),
        permitted: set(1),
        inheritable: set(2),
    };
    let mut own = context.thread.credentials.lock();
    own.capabilities.set(new).map(|()| 0)
}
