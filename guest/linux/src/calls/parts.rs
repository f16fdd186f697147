//! The bytes of a call on their way: the thread's buffer, and the parts of the program's
//! vectors (`struct iovec`).

use alloc::vec::Vec;

use crate::context::Context;
use crate::errno::{Errno, Result};

/// Most bytes of one step.
pub(super) const STEP: usize = 128 * 1024;

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

/// Copies from the parts of a vector, less the first `skip` bytes, until `to` is full or
/// the program has no more; gives how many bytes.
pub(super) fn gather(
    context: &Context<'_>,
    parts: &[(u64, usize)],
    mut skip: usize,
    to: &mut [u8],
) -> Result<usize> {
    let mut done = 0;
    for (base, length) in parts {
        let from = skip.min(*length);
        skip -= from;
        let part = (length - from).min(to.len() - done);
        let base = base.wrapping_add(from as u64);
        let read = context.process.read_some(base, &mut to[done..done + part]);
        done += read;
        if read < part {
            break;
        }
    }
    if done == 0 && !to.is_empty() {
        return Err(Errno::EFAULT);
    }
    Ok(done)
}

/// Bytes of all parts.
pub(super) fn total(parts: &[(u64, usize)]) -> usize {
    let lengths = parts.iter().map(|(_, length)| *length);
    lengths.fold(0, usize::saturating_add)
}

/// Copies to the parts of a vector, behind their first `skip` bytes.
pub(super) fn scatter(
    context: &Context<'_>,
    parts: &[(u64, usize)],
    mut skip: usize,
    bytes: &[u8],
) -> Result<()> {
    let mut done = 0;
    for (base, length) in parts {
        let from = skip.min(*length);
        skip -= from;
        let count = (length - from).min(bytes.len() - done);
        let base = base.wrapping_add(from as u64);
        context.process.write(base, &bytes[done..done + count])?;
        done += count;
    }
    Ok(())
}
