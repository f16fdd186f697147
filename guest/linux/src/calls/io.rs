//! Reading and writing (`read(2)`, `readv(2)`, `pread(2)`, `sendfile(2)` and their kin).

use alloc::vec::Vec;

use linux_raw_sys::general::{
    IN_ACCESS, IN_MODIFY, O_APPEND, POLLHUP, POLLIN, RWF_APPEND, RWF_DSYNC, RWF_HIPRI, RWF_NOWAIT,
    RWF_SYNC, SEEK_CUR, SEEK_SET,
};

use super::arguments::Arguments;
use super::descriptors::open;
use super::message::{self, carries_messages, has_data};
use super::parts::{STEP, gather, scatter, total, with_buffer};
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::epoll::Epoll;
use crate::files::pipe::{Event, Pipe};
use crate::files::regular::{Regular, node_of, notify};
use crate::files::socket::Socket;
use crate::files::timer::Timer;
use crate::files::unix::Unix;
use crate::files::{Device, Open, Way};
use crate::memory::PAGE;
use crate::process::Process;

use core::sync::atomic::Ordering;

/// Most bytes of one call, as Linux has it.
const MOST: u64 = 0x7fff_f000;

/// Reads steps of at most [`STEP`] with `step`, which gets the bytes done; ends after
/// a short one, or where the program has no memory: `give_back` gets the bytes read too
/// many.
fn in_steps(
    context: &mut Context<'_>,
    address: u64,
    length: u64,
    mut step: impl FnMut(&mut Context<'_>, u64, &mut [u8]) -> Result<usize>,
    give_back: impl Fn(usize),
) -> Result {
    let length = length.min(MOST);
    let mut done = 0;
    loop {
        let part = (length - done).min(STEP as u64) as usize;
        let result = with_buffer(context, part, |context, buffer| {
            let count = step(context, done, &mut buffer[..part])?;
            let to = address.wrapping_add(done);
            let written = context.process.write_some(to, &buffer[..count]);
            if written < count {
                give_back(count - written);
            }
            match written {
                0 if count > 0 => Err(Errno::EFAULT),
                written => Ok(written),
            }
        });
        match result {
            Ok(count) => done += count as u64,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => return Ok(done),
        }
        if done == length || result != Ok(part) {
            return Ok(done);
        }
    }
}

/// Reports that some of a file was read or written.
fn notify_of(open: &Open, event: u32, done: u64) -> Result {
    if done > 0 {
        notify(open.file.as_ref(), event);
    }
    Ok(done)
}

pub(super) fn read(context: &mut Context<'_>, number: u64, to: u64, length: u64) -> Result {
    let open = open(context, number)?;
    let done = read_part(context, &open, to, length)?;
    notify_of(&open, IN_ACCESS, done)
}

/// Reads what a call, or a part of its vector, asks for.
fn read_part(context: &mut Context<'_>, open: &Open, to: u64, length: u64) -> Result {
    let is_regular = open.file.as_kind::<Regular>().is_some();
    let is_stream = open.file.as_kind::<Pipe>().is_some() || open.file.endpoint().is_some();
    open.may(Way::Read)?;
    Process::is_own(to, length)?;
    if length == 0 && is_stream {
        return Ok(0);
    }
    if carries_messages(open) {
        return message::receive_parts(context, open, &[(to, length as usize)]);
    }
    let mut length = if is_regular {
        context.process.settle(open.file.as_ref())?;
        length
    } else {
        length.min(STEP as u64)
    };
    if !is_regular && length != 0 && has_data(open) {
        // What is read is gone where it came from.
        context.process.may_write(to)?;
        let holds_bytes = is_stream && open.file.as_kind::<Socket>().is_none();
        if let (true, Ok(there)) = (holds_bytes, open.file.readable_bytes()) {
            let part = length.min(there);
            let writable = context.process.writable(to, part as usize);
            if (writable as u64) < part {
                let pipe = open.file.as_kind::<Pipe>();
                length = pipe.map_or(writable, |pipe| pipe.in_whole_pages(writable)) as u64;
                if length == 0 {
                    return Err(Errno::EFAULT);
                }
            }
        }
    }
    let read = |context: &mut Context<'_>, _, buffer: &mut [u8]| {
        context.attempt(open, open.may_wait(), open.deadline(Way::Read), || {
            open.read(buffer)
        })
    };
    in_steps(context, to, length, read, |rest| {
        if is_regular {
            open.file.seek(-(rest as i64), SEEK_CUR).ok();
        }
    })
}

pub(super) fn pread(context: &mut Context<'_>, a: Arguments) -> Result {
    let [number, to, length, offset, ..] = a;
    if offset > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let open = open(context, number)?;
    let done = pread_part(context, &open, [to, length, offset])?;
    notify_of(&open, IN_ACCESS, done)
}

fn pread_part(context: &mut Context<'_>, open: &Open, part: [u64; 3]) -> Result {
    let [to, length, offset] = part;
    may_at(open, Way::Read)?;
    Process::is_own(to, length)?;
    ends_in_a_file(offset, length)?;
    context.process.settle(open.file.as_ref())?;
    let read =
        |_: &mut Context<'_>, done, buffer: &mut [u8]| open.file.read_at(offset + done, buffer);
    in_steps(context, to, length, read, |_| {})
}

pub(super) fn readv(context: &mut Context<'_>, number: u64, parts: u64, count: u64) -> Result {
    let opened = open(context, number)?;
    opened.may(Way::Read)?;
    let list = context.process.parts(parts, count)?;
    if opened.file.as_kind::<Epoll>().is_some() {
        // Also for nothing.
        return Err(Errno::EINVAL);
    }
    if opened.file.as_kind::<Event>().is_some() || opened.file.as_kind::<Timer>().is_some() {
        return read_count(context, &opened, &list);
    }
    // Part by part, an error behind the first would be lost.
    let is_socket = opened.file.endpoint().is_some();
    if is_socket && total(&list) > 0 {
        return message::receive_parts(context, &opened, &list);
    }
    let mut done = 0;
    for (base, length) in list {
        if length == 0 {
            continue;
        }
        match read_part(context, &opened, base, length as u64) {
            Ok(count) => {
                done += count;
                if count < length as u64 || opened.file.ready() & POLLIN == 0 {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    notify_of(&opened, IN_ACCESS, done)
}

/// Reads a counter or a timer into a vector whose parts may be shorter than its count.
fn read_count(context: &mut Context<'_>, open: &Open, list: &[(u64, usize)]) -> Result {
    let length = total(list).min(8);
    if length == 0 {
        return Ok(0);
    }
    let mut bytes = [0; 8];
    let to = &mut bytes[..length];
    let deadline = open.deadline(Way::Read);
    let count = context.attempt(open, open.may_wait(), deadline, || open.read(to))?;
    scatter(context, list, 0, &bytes[..count])?;
    Ok(count as u64)
}

/// Whether a call has written something before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    Yes,
    No,
}

impl Begun {
    pub(super) fn with(done: u64) -> Self {
        if done > 0 { Self::Yes } else { Self::No }
    }
}

/// Writes `bytes`, all of them where the file may wait. A socket without a peer sends no SIGPIPE
/// behind a part (`unix_stream_sendmsg` in Linux's net/unix/af_unix.c), but a pipe does
/// (`pipe_write`).
pub(super) fn write_all(
    context: &mut Context<'_>,
    open: &Open,
    bytes: &[u8],
    may_wait: bool,
    begun: Begun,
) -> Result {
    let deadline = open.deadline(Way::Write);
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        match context.attempt(open, may_wait, deadline, || open.write(rest)) {
            Ok(count) => {
                done += count;
                if !may_wait && done < bytes.len() {
                    break;
                }
            }
            Err(errno) if done == 0 => {
                let signals = begun == Begun::No || open.file.as_kind::<Pipe>().is_some();
                if errno == Errno::EPIPE && signals {
                    context.break_pipe();
                }
                return Err(errno);
            }
            Err(_) => break,
        }
    }
    Ok(done as u64)
}

pub(super) fn write(context: &mut Context<'_>, number: u64, from: u64, length: u64) -> Result {
    let open = open(context, number)?;
    let may_wait = open.may_wait();
    write_parts(context, &open, &[(from, length as usize)], may_wait)
}

pub(super) fn pwrite(context: &mut Context<'_>, a: Arguments) -> Result {
    let [number, from, length, offset, ..] = a;
    if offset > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let open = open(context, number)?;
    let done = pwrite_part(context, &open, [from, length, offset])?;
    notify_of(&open, IN_MODIFY, done)
}

fn pwrite_part(context: &mut Context<'_>, open: &Open, part: [u64; 3]) -> Result {
    let [from, length, offset] = part;
    may_at(open, Way::Write)?;
    Process::is_own(from, length)?;
    ends_in_a_file(offset, length)?;
    context.process.settle(open.file.as_ref())?;
    let mut done = 0;
    while done < length.min(MOST) {
        let part = (length - done).min(STEP as u64) as usize;
        let written = with_buffer(context, part, |context, buffer| {
            let from = from.wrapping_add(done);
            match context.process.read_some(from, &mut buffer[..part]) {
                0 => Err(Errno::EFAULT),
                got => open.write_at(offset + done, &buffer[..got]),
            }
        });
        match written {
            Ok(count) => done += count as u64,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
        if written != Ok(part) {
            break;
        }
    }
    // One that appends writes at the end (`pwrite(2)`, bugs).
    let changed = match open.flags() & O_APPEND {
        0 => offset..offset + done,
        _ => 0..u64::MAX,
    };
    context.process.renew(open.file.as_ref(), changed)?;
    Ok(done)
}

/// Refuses a range that ends where no file does, as Linux.
fn ends_in_a_file(offset: u64, length: u64) -> Result<()> {
    match offset.checked_add(length) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether a file is used at an offset: first whether it has any.
fn may_at(open: &Open, way: Way) -> Result<()> {
    if open.file.read_at(0, &mut []) == Err(Errno::ESPIPE) {
        return Err(Errno::ESPIPE);
    }
    open.may(way)
}

/// Writes what the parts of a vector name: all of it where the call may wait.
pub(super) fn write_parts(
    context: &mut Context<'_>,
    open: &Open,
    parts: &[(u64, usize)],
    may_wait: bool,
) -> Result {
    open.may(Way::Write)?;
    for (base, length) in parts {
        Process::is_own(*base, *length as u64)?;
    }
    if carries_messages(open) {
        return message::send_message(context, open, parts, None, may_wait);
    }
    let length = total(parts).min(MOST as usize);
    if length == 0 && open.file.as_kind::<Pipe>().is_none() {
        // Nothing is written, but a socket without a peer or a counter refuses also that.
        return match open.file.write(&[]) {
            Err(errno) if errno != Errno::EAGAIN => Err(errno),
            _ => Ok(0),
        };
    }
    context.process.settle(open.file.as_ref())?;
    let mut done = 0;
    while done < length {
        let part = (length - done).min(STEP);
        // The end of a step is not that of what is written: a segment that is not full waits.
        let socket = open.file.as_kind::<Socket>();
        let socket = socket.filter(|_| done + part < length);
        let step = |context: &mut Context<'_>, buffer: &mut Vec<u8>| {
            let mut got = gather(context, parts, done, &mut buffer[..part])?;
            // Linux copies before it sends, and to a pipe by pages.
            if got < part && open.file.as_kind::<Pipe>().is_some() {
                got -= got % PAGE as usize;
            }
            if got == 0 || got < part && open.file.as_kind::<Unix>().is_some() {
                return Err(Errno::EFAULT);
            }
            let begun = Begun::with(done as u64);
            write_all(context, open, &buffer[..got], may_wait, begun)
        };
        let result = Socket::with_more(socket, || with_buffer(context, part, step));
        match result {
            Ok(count) => done += count as usize,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
        if result != Ok(part as u64) {
            break;
        }
    }
    renew_written(context, open, done as u64)?;
    notify_of(open, IN_MODIFY, done as u64)
}

/// The mappings of a file show what was written before its position.
fn renew_written(context: &Context<'_>, open: &Open, count: u64) -> Result<()> {
    let Some(file) = open.file.as_kind::<Regular>() else {
        return Ok(());
    };
    let end = file.position.load(Ordering::Relaxed);
    context.process.renew(file, end.saturating_sub(count)..end)
}

pub(super) fn writev(context: &mut Context<'_>, number: u64, parts: u64, count: u64) -> Result {
    let open = open(context, number)?;
    let parts = context.process.parts(parts, count)?;
    let may_wait = open.may_wait();
    write_parts(context, &open, &parts, may_wait)
}

pub(super) fn lseek(context: &Context<'_>, number: u64, offset: u64, whence: u64) -> Result {
    open(context, number)?
        .file
        .seek(offset as i64, whence as u32)
}

/// `preadv(2)`.
pub(super) fn preadv(context: &mut Context<'_>, a: Arguments) -> Result {
    each_part(context, a, Way::Read, pread_part)
}

/// `pwritev(2)`.
pub(super) fn pwritev(context: &mut Context<'_>, a: Arguments) -> Result {
    each_part(context, a, Way::Write, pwrite_part)
}

/// The offset of `preadv2` and `pwritev2` that stands for the file's position.
const AT_POSITION: u64 = u64::MAX;

/// EOPNOTSUPP for flags of `preadv2` and `pwritev2` that Linux 6.1 has not, or that the file has
/// not.
fn may_have(open: &Open, flags: u64) -> Result<u32> {
    const FLAGS: u32 = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND;
    let flags = flags as u32;
    let file = open.file.as_ref();
    let has_nowait = file.as_kind::<Regular>().is_some()
        || file.as_kind::<Pipe>().is_some()
        || file.as_kind::<Event>().is_some()
        || file.endpoint().is_some();
    if flags & !FLAGS != 0 || flags & RWF_NOWAIT != 0 && !has_nowait {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(flags)
}

/// `preadv2(2)`. Limit: with RWF_NOWAIT it waits where another thread takes what is there first.
pub(super) fn preadv2(context: &mut Context<'_>, a: Arguments) -> Result {
    let [number, parts, count, offset, _, flags] = a;
    let opened = open(context, number)?;
    opened.may(Way::Read)?;
    let length = total(&context.process.parts(parts, count)?);
    if length == 0 && offset == AT_POSITION {
        return Ok(0);
    }
    if offset != AT_POSITION {
        may_at(&opened, Way::Read)?;
    }
    let flags = may_have(&opened, flags)?;
    if flags & RWF_NOWAIT != 0 && opened.file.ready() & (POLLIN | POLLHUP) == 0 {
        return Err(Errno::EAGAIN);
    }
    match offset {
        AT_POSITION => readv(context, number, parts, count),
        _ => preadv(context, a),
    }
}

/// `pwritev2(2)`.
pub(super) fn pwritev2(context: &mut Context<'_>, a: Arguments) -> Result {
    let [number, parts, count, offset, _, flags] = a;
    let open = open(context, number)?;
    open.may(Way::Write)?;
    let list = context.process.parts(parts, count)?;
    if offset != AT_POSITION {
        may_at(&open, Way::Write)?;
    }
    if total(&list) == 0 {
        return Ok(0);
    }
    let flags = may_have(&open, flags)?;
    let done = match (offset, open.file.as_kind::<Regular>()) {
        (_, Some(file)) if flags & RWF_APPEND != 0 => {
            let (done, end) = append(context, file, &list)?;
            notify_of(&open, IN_MODIFY, done)?;
            if offset == AT_POSITION {
                file.position.store(end, Ordering::Relaxed);
            }
            done
        }
        (AT_POSITION, _) => {
            let may_wait = open.may_wait() && flags & RWF_NOWAIT == 0;
            write_parts(context, &open, &list, may_wait)?
        }
        _ => pwritev(context, a)?,
    };
    if flags & (RWF_DSYNC | RWF_SYNC) != 0 && done > 0 {
        open.make_durable()?;
    }
    Ok(done)
}

/// Writes the parts of a vector at a file's end; gives how many bytes, and where they end.
fn append(context: &mut Context<'_>, file: &Regular, list: &[(u64, usize)]) -> Result<(u64, u64)> {
    context.process.settle(file)?;
    let length = total(list).min(MOST as usize);
    let (mut done, mut end) = (0, 0);
    while done < length {
        let part = (length - done).min(STEP);
        let result = with_buffer(context, part, |context, buffer| {
            let got = gather(context, list, done, &mut buffer[..part])?;
            file.append(&buffer[..got])
        });
        match result {
            Ok((start, count)) => {
                done += count;
                end = start + count as u64;
                if count < part {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    context.process.renew(file, end - done as u64..end)?;
    Ok((done as u64, end))
}

/// Reads or writes the parts of a vector at an offset, one behind the other.
fn each_part(
    context: &mut Context<'_>,
    [number, parts, count, offset, ..]: Arguments,
    way: Way,
    act: fn(&mut Context<'_>, &Open, [u64; 3]) -> Result,
) -> Result {
    if offset > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let open = open(context, number)?;
    may_at(&open, way)?;
    let mut done = 0;
    for (base, length) in context.process.parts(parts, count)? {
        let length = length as u64;
        if length == 0 {
            continue;
        }
        match act(context, &open, [base, length, offset + done]) {
            Ok(count) => {
                done += count;
                if count < length {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    let event = match way {
        Way::Read => IN_ACCESS,
        Way::Write => IN_MODIFY,
    };
    notify_of(&open, event, done)
}

/// `copy_file_range(2)`, between files of the tree.
pub(super) fn copy_file_range(context: &mut Context<'_>, a: Arguments) -> Result {
    let [from_number, from_at, to_number, to_at, count, flags] = a;
    let (from, to) = (open(context, from_number)?, open(context, to_number)?);
    if flags != 0
        || from.file.as_kind::<Regular>().is_none()
        || to.file.as_kind::<Regular>().is_none()
    {
        return Err(Errno::EINVAL);
    }
    from.may(Way::Read)?;
    to.may(Way::Write)?;
    context.process.settle(from.file.as_ref())?;
    context.process.settle(to.file.as_ref())?;
    let position = |context: &Context<'_>, open: &Open, at: u64| match at {
        0 => open.file.seek(0, SEEK_CUR),
        at => context.process.u64(at),
    };
    let (source, target) = (
        position(context, &from, from_at)?,
        position(context, &to, to_at)?,
    );
    if to.flags() & O_APPEND != 0 {
        return Err(Errno::EBADF);
    }
    let status = from.file.status()?;
    let there = count.min(status.bytes.saturating_sub(source));
    let overlaps = target.saturating_add(there) > source && target < source.saturating_add(there);
    let is_stored =
        |open: &Open| node_of(open.file.as_ref()).is_some_and(|node| node.stored().is_some());
    let is_same = status.inode == to.file.status()?.inode && is_stored(&from) == is_stored(&to);
    if is_same && overlaps {
        return Err(Errno::EINVAL);
    }
    let mut done = 0;
    while done < count.min(MOST) {
        let part = (count - done).min(STEP as u64) as usize;
        let copied = with_buffer(context, part, |_, buffer| {
            let read = from.file.read_at(source + done, &mut buffer[..part])?;
            to.write_at(target + done, &buffer[..read])
        });
        match copied {
            Ok(count) => done += count as u64,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
        if copied != Ok(part) {
            break;
        }
    }
    context
        .process
        .renew(to.file.as_ref(), target..target + done)?;
    notify_of(&from, IN_ACCESS, done)?;
    notify_of(&to, IN_MODIFY, done)?;
    for (open, at, end) in [(from, from_at, source + done), (to, to_at, target + done)] {
        match at {
            0 => drop(open.file.seek(end as i64, SEEK_SET)),
            at => context.process.put_u64(at, end)?,
        }
    }
    Ok(done)
}

pub(super) fn sendfile(context: &mut Context<'_>, a: Arguments) -> Result {
    let [to, from, offset_at, count, ..] = a;
    let (to, from) = (open(context, to)?, open(context, from)?);
    from.may(Way::Read)?;
    to.may(Way::Write)?;
    context.process.settle(from.file.as_ref())?;
    let device = from.file.as_kind::<Device>();
    let is_zeros = device.is_some_and(|it| matches!(it, Device::Zero | Device::Full));
    let is_sent = is_zeros || from.file.as_kind::<Regular>().is_some();
    if !is_sent || to.flags() & O_APPEND != 0 {
        return Err(Errno::EINVAL);
    }
    let mut at = match offset_at {
        0 => None,
        address => Some(context.process.u64(address)?),
    };
    context.process.settle(to.file.as_ref())?;
    let mut done = 0;
    while done < count.min(MOST) {
        let part = (count - done).min(STEP as u64) as usize;
        let result = with_buffer(context, part, |context, buffer| {
            let buffer = &mut buffer[..part];
            let position = from
                .file
                .as_kind::<Regular>()
                .map(|file| file.position.load(Ordering::Relaxed));
            let read = match at.or(position) {
                Some(offset) => from.file.read_at(offset, buffer)?,
                None => from.file.read(buffer)?,
            };
            if read == 0 {
                return Ok(0);
            }
            let begun = Begun::with(done);
            let written = write_all(context, &to, &buffer[..read], to.may_wait(), begun)?;
            if let (None, Some(file)) = (at, from.file.as_kind::<Regular>()) {
                file.position.fetch_add(written, Ordering::Relaxed);
            }
            Ok(written)
        });
        match result {
            Ok(0) => break,
            Ok(written) => {
                done += written;
                at = at.map(|offset| offset + written);
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    renew_written(context, &to, done)?;
    notify_of(&from, IN_ACCESS, done)?;
    notify_of(&to, IN_MODIFY, done)?;
    if let Some(at) = at {
        context.process.put_u64(offset_at, at)?;
    }
    Ok(done)
}
