//! `splice(2)`: bytes from or into a pipe, without the program's memory between.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use linux_raw_sys::general::{IN_ACCESS, IN_MODIFY, O_APPEND, POLLHUP, POLLIN};

use super::arguments::Arguments;
use super::descriptors::open;
use super::io::{Begun, write_all};
use super::message::carries_messages;
use super::parts::{STEP, with_buffer};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::pipe::Pipe;
use crate::files::regular::{Regular, notify};
use crate::files::{Device, Open, Way};

/// Its flags (`include/linux/splice.h`): move, do not wait for a pipe, more follows, gift.
const FLAGS: u64 = 0xf;
const NONBLOCK: u64 = 2;

pub(super) fn splice(context: &mut Context<'_>, a: Arguments) -> Result {
    let [from, from_at, to, to_at, count, flags] = a;
    if count == 0 {
        return Ok(0);
    }
    if flags & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let (from, to) = (open(context, from)?, open(context, to)?);
    let (source, target) = (
        from.file.as_kind::<Pipe>().is_some(),
        to.file.as_kind::<Pipe>().is_some(),
    );
    if source && from_at != 0 || target && to_at != 0 {
        return Err(Errno::ESPIPE);
    }
    let offset = |at: u64| match at {
        0 => Ok(None),
        at => context.process.u64(at).map(Some),
    };
    let (from_offset, to_offset) = (offset(from_at)?, offset(to_at)?);
    from.may(Way::Read)?;
    to.may(Way::Write)?;
    context.process.settle(from.file.as_ref())?;
    context.process.settle(to.file.as_ref())?;
    let length = count.min(STEP as u64) as usize;
    let may_wait = flags & NONBLOCK == 0;
    let done = if source {
        out_of_pipe(context, &from, &to, to_offset, length, may_wait)
    } else if target {
        into_pipe(context, &from, from_offset, &to, length, may_wait)
    } else {
        Err(Errno::EINVAL)
    };
    if done == Err(Errno::EPIPE) {
        context.break_pipe();
    }
    let done = done?;
    if let Some(file) = to.file.as_kind::<Regular>() {
        let position = || file.position.load(Ordering::Relaxed).saturating_sub(done);
        let begin = to_offset.unwrap_or_else(position);
        let changed = begin..begin.saturating_add(done);
        context.process.renew(file, changed)?;
    }
    if done > 0 {
        notify(to.file.as_ref(), IN_MODIFY);
        notify(from.file.as_ref(), IN_ACCESS);
    }
    for (at, offset) in [(from_at, from_offset), (to_at, to_offset)] {
        if let Some(offset) = offset {
            context.process.put_u64(at, offset.wrapping_add(done))?;
        }
    }
    Ok(done)
}

/// Whether bytes can go from or to it, at this offset if there is one.
fn is_spliced(open: &Open, offset: Option<u64>) -> Result<()> {
    let file = &open.file;
    let is_regular = file.as_kind::<Regular>().is_some();
    let is_stream = file.endpoint().is_some() && !carries_messages(open);
    let is_other = is_stream || file.as_kind::<Device>().is_some() || is_pipe(open);
    match offset {
        Some(offset) if is_regular && offset <= i64::MAX as u64 => Ok(()),
        None if is_regular || is_other => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

fn is_pipe(open: &Open) -> bool {
    open.file.as_kind::<Pipe>().is_some()
}

/// From a pipe: what the other file does not take stays in it.
fn out_of_pipe(
    context: &Context<'_>,
    from: &Arc<Open>,
    to: &Arc<Open>,
    offset: Option<u64>,
    length: usize,
    may_wait: bool,
) -> Result {
    let pipe = from.file.as_kind::<Pipe>().ok_or(Errno::EINVAL)?;
    let is_same = |other: &Pipe| pipe.is_of(other);
    if to.flags() & O_APPEND != 0 || to.file.as_kind::<Pipe>().is_some_and(is_same) {
        return Err(Errno::EINVAL);
    }
    is_spliced(to, offset)?;
    let waits_for_pipe = may_wait && from.may_wait();
    let waits_for_target = to.may_wait() && (may_wait || !is_pipe(to));
    loop {
        let has_bytes =
            context.attempt(from, waits_for_pipe, None, || match from.file.ready() {
                ready if ready & POLLIN != 0 => Ok(true),
                ready if ready & POLLHUP != 0 => Ok(false),
                _ => Err(Errno::EAGAIN),
            })?;
        if !has_bytes {
            return Ok(0);
        }
        let deadline = to.deadline(Way::Write);
        let done = context.attempt(to, waits_for_target, deadline, || {
            pipe.drain(length, |bytes| match offset {
                Some(offset) => to.file.write_at(offset, bytes),
                None => to.write(bytes),
            })
        })?;
        // Another reader may have been first.
        if done > 0 {
            return Ok(done as u64);
        }
    }
}

/// Into a pipe: no more is read than it has room for.
fn into_pipe(
    context: &mut Context<'_>,
    from: &Arc<Open>,
    offset: Option<u64>,
    to: &Arc<Open>,
    length: usize,
    may_wait: bool,
) -> Result {
    let pipe = to.file.as_kind::<Pipe>().ok_or(Errno::EINVAL)?;
    is_spliced(from, offset)?;
    let room = context.attempt(to, may_wait && to.may_wait(), None, || pipe.room())?;
    let part = length.min(room);
    with_buffer(context, part, |context, buffer| {
        let buffer = &mut buffer[..part];
        let deadline = from.deadline(Way::Read);
        let read = match offset {
            Some(offset) => from.file.read_at(offset, buffer)?,
            None => context.attempt(from, from.may_wait(), deadline, || from.read(buffer))?,
        };
        if read == 0 {
            return Ok(0);
        }
        // It waits only where another writer took the room meanwhile: what was read is not lost.
        write_all(context, to, &buffer[..read], true, Begun::No)
    })
}
