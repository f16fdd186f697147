//! Limits of resources (`getrlimit(2)`): kept and read back. Only that of descriptors has an effect.

use linux_raw_sys::general as c;

use super::threads::thread_of;
use crate::capabilities::SYS_RESOURCE;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::MOST;
use crate::process::Limit;

/// `prlimit64(2)`: ESRCH for another process.
pub(super) fn prlimit(
    context: &Context<'_>,
    number: u64,
    resource: u64,
    new: u64,
    old: u64,
) -> Result {
    let new = match new {
        0 => None,
        at => Some(given(context, at)?),
    };
    thread_of(context, number)?;
    let before = exchange(context, resource, new)?;
    match old {
        0 => Ok(0),
        old => put(context, old, before),
    }
}

pub(super) fn getrlimit(context: &Context<'_>, resource: u64, to: u64) -> Result {
    put(context, to, exchange(context, resource, None)?)
}

pub(super) fn setrlimit(context: &Context<'_>, resource: u64, from: u64) -> Result {
    let new = given(context, from)?;
    exchange(context, resource, Some(new)).map(|_| 0)
}

/// Sets a limit, if there is a new one; gives what it was (`do_prlimit` in Linux's kernel/sys.c).
fn exchange(context: &Context<'_>, resource: u64, new: Option<Limit>) -> Result<Limit> {
    let process = context.process;
    let mut limits = process.limits.lock();
    let limit = limits.get_mut(resource as u32 as usize);
    let limit = limit.ok_or(Errno::EINVAL)?;
    let before = *limit;
    if let Some(new) = new {
        let [current, most] = new;
        let is_of_files = resource as u32 == c::RLIMIT_NOFILE;
        if current > most {
            return Err(Errno::EINVAL);
        }
        let own = context.thread.credentials.lock();
        let may_rise = own.capabilities.has(SYS_RESOURCE);
        if is_of_files && most > MOST as u64 || most > before[1] && !may_rise {
            return Err(Errno::EPERM);
        }
        *limit = new;
        match resource as u32 {
            c::RLIMIT_NOFILE => process.files.lock().limit = current as usize,
            c::RLIMIT_AS => process.space.lock().limits.all = current,
            c::RLIMIT_DATA => process.space.lock().limits.data = current,
            _ => {}
        }
    }
    Ok(before)
}

fn given(context: &Context<'_>, at: u64) -> Result<Limit> {
    let word = |at| context.process.u64(at);
    Ok([word(at)?, word(at.wrapping_add(8))?])
}

fn put(context: &Context<'_>, to: u64, [current, most]: Limit) -> Result {
    context.process.put_u64(to, current)?;
    context.process.put_u64(to.wrapping_add(8), most)?;
    Ok(0)
}
