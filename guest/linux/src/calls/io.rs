//! Reading and writing (`read(2)`, `readv(2)`, `pread(2)`, `sendfile(2)` and their kin).

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general::{SEEK_CUR, SEEK_END, SEEK_SET, SIGPIPE};

use crate::errno::{Errno, Result};
use crate::files::Open;
use crate::files::regular::{Directory, Regular};
use crate::thread::Context;

use core::sync::atomic::Ordering;

/// Most bytes of one step.
const STEP: usize = 128 * 1024;
/// Most bytes of one call, as Linux has it.
const MOST: u64 = 0x7fff_f000;

pub(super) fn open(context: &Context<'_>, number: u64) -> Result<Arc<Open>> {
    Ok(context.process.files.lock().get(number)?.open.clone())
}

/// Runs `act` with the thread's buffer, of `length` bytes.
pub(super) fn with_buffer<R>(
    context: &mut Context<'_>,
    length: usize,
    act: impl FnOnce(&mut Context<'_>, &mut Vec<u8>) -> R,
) -> R {
    let mut buffer = core::mem::take(&mut context.buffer);
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    let result = act(context, &mut buffer);
    if buffer.len() > STEP {
        buffer.truncate(STEP);
    }
    context.buffer = buffer;
    result
}

/// Reads steps of at most [`STEP`] with `step`, which gets the bytes done; ends after
/// a short one.
fn in_steps(
    context: &mut Context<'_>,
    address: u64,
    length: u64,
    mut step: impl FnMut(&mut Context<'_>, u64, &mut [u8]) -> Result<usize>,
) -> Result {
    let length = length.min(MOST);
    let mut done = 0;
    loop {
        let part = (length - done).min(STEP as u64) as usize;
        let result = with_buffer(context, part, |context, buffer| {
            let count = step(context, done, &mut buffer[..part])?;
            context
                .process
                .write(address.wrapping_add(done), &buffer[..count])?;
            Ok(count)
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

pub(super) fn read(context: &mut Context<'_>, number: u64, to: u64, length: u64) -> Result {
    let open = open(context, number)?;
    let is_regular = open.file.as_kind::<Regular>().is_some();
    let length = if is_regular {
        length
    } else {
        length.min(STEP as u64)
    };
    in_steps(context, to, length, |context, _, buffer| {
        context.attempt(&open, open.may_wait(), || open.read(buffer))
    })
}

pub(super) fn pread(context: &mut Context<'_>, a: super::Arguments) -> Result {
    let [number, to, length, offset, ..] = a;
    let open = open(context, number)?;
    if offset > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    in_steps(context, to, length, |_, done, buffer| {
        open.file.read_at(offset + done, buffer)
    })
}

pub(super) fn readv(context: &mut Context<'_>, number: u64, parts: u64, count: u64) -> Result {
    let mut done = 0;
    for (base, length) in context.process.parts(parts, count)? {
        if length == 0 {
            continue;
        }
        match read(context, number, base, length as u64) {
            Ok(count) => {
                done += count;
                if count < length as u64 || open(context, number)?.file.ready() & 1 == 0 {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Writes `bytes`, all of them where the file may wait.
pub(super) fn write_all(
    context: &mut Context<'_>,
    open: &Open,
    bytes: &[u8],
    may_wait: bool,
) -> Result {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        match context.attempt(open, may_wait, || open.write(rest)) {
            Ok(count) => {
                done += count;
                if !may_wait && done < bytes.len() {
                    break;
                }
            }
            Err(errno) if done == 0 => {
                if errno == Errno::EPIPE {
                    context.process.send(Some(context.thread), SIGPIPE);
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
    if length == 0 {
        return open.write(&[]).map(|_| 0).or(Ok(0));
    }
    let mut done = 0;
    while done < length.min(MOST) {
        let part = (length - done).min(STEP as u64) as usize;
        let result = with_buffer(context, part, |context, buffer| {
            context
                .process
                .read(from.wrapping_add(done), &mut buffer[..part])?;
            write_all(context, &open, &buffer[..part], open.may_wait())
        });
        match result {
            Ok(count) => done += count,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
        if result != Ok(part as u64) {
            break;
        }
    }
    Ok(done)
}

pub(super) fn pwrite(context: &mut Context<'_>, a: super::Arguments) -> Result {
    let [number, from, length, offset, ..] = a;
    let open = open(context, number)?;
    if offset > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let mut done = 0;
    while done < length.min(MOST) {
        let part = (length - done).min(STEP as u64) as usize;
        with_buffer(context, part, |context, buffer| {
            context
                .process
                .read(from.wrapping_add(done), &mut buffer[..part])?;
            open.file.write_at(offset + done, &buffer[..part])
        })?;
        done += part as u64;
    }
    Ok(done)
}

/// The parts of a vector in one buffer, up to [`STEP`] bytes.
pub(super) fn gather(context: &Context<'_>, parts: &[(u64, usize)]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for (base, length) in parts {
        let start = bytes.len();
        let part = (*length).min(STEP - start);
        bytes.resize(start + part, 0);
        context.process.read(*base, &mut bytes[start..])?;
        if bytes.len() == STEP {
            break;
        }
    }
    Ok(bytes)
}

pub(super) fn writev(context: &mut Context<'_>, number: u64, parts: u64, count: u64) -> Result {
    let open = open(context, number)?;
    let parts = context.process.parts(parts, count)?;
    let bytes = gather(context, &parts)?;
    if bytes.is_empty() {
        return Ok(0);
    }
    write_all(context, &open, &bytes, open.may_wait())
}

pub(super) fn lseek(context: &Context<'_>, number: u64, offset: u64, whence: u64) -> Result {
    let open = open(context, number)?;
    if let Some(directory) = open.file.as_kind::<Directory>() {
        directory.position.store(offset, Ordering::Relaxed);
        return Ok(offset);
    }
    let file = open.file.as_kind::<Regular>().ok_or(Errno::ESPIPE)?;
    let base = match whence as u32 {
        SEEK_SET => 0,
        SEEK_CUR => file.position.load(Ordering::Relaxed),
        SEEK_END => file.bytes.len(),
        _ => return Err(Errno::EINVAL),
    };
    let at = base
        .checked_add_signed(offset as i64)
        .filter(|&at| at <= i64::MAX as u64);
    let at = at.ok_or(Errno::EINVAL)?;
    file.position.store(at, Ordering::Relaxed);
    Ok(at)
}

pub(super) fn sendfile(context: &mut Context<'_>, a: super::Arguments) -> Result {
    let [to, from, offset_at, count, ..] = a;
    let (to, from) = (open(context, to)?, open(context, from)?);
    let mut at = match offset_at {
        0 => None,
        address => Some(context.process.u64(address)?),
    };
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
            let written = write_all(context, &to, &buffer[..read], to.may_wait())?;
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
    if let Some(at) = at {
        context.process.put_u64(offset_at, at)?;
    }
    Ok(done)
}
