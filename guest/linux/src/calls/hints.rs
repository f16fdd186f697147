//! Calls by which a program says how it will use a file (`posix_fadvise(2)`, `readahead(2)`,
//! `sync_file_range(2)`). Files are in memory or in a cache that writes by itself: nothing is done
//! but to check what is given.

use linux_raw_sys::general as c;

use super::descriptors::open as opened;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::Way;
use crate::files::pipe::Pipe;
use crate::files::regular::{Regular, node_of};

/// `posix_fadvise(2)`: EINVAL for another advice and a negative length, ESPIPE for a pipe (kernel
/// `mm/fadvise.c`).
pub(super) fn fadvise(context: &Context<'_>, number: u64, length: u64, advice: u64) -> Result {
    let open = opened(context, number)?;
    if open.file.as_kind::<Pipe>().is_some() {
        return Err(Errno::ESPIPE);
    }
    if length > i64::MAX as u64 || advice as u32 > c::POSIX_FADV_NOREUSE {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

/// `readahead(2)`: EBADF for a file that was not opened for reading, EINVAL for another kind (kernel
/// `mm/readahead.c`).
pub(super) fn readahead(context: &Context<'_>, number: u64) -> Result {
    let open = opened(context, number)?;
    open.may(Way::Read)?;
    match open.file.as_kind::<Regular>() {
        Some(_) => Ok(0),
        None => Err(Errno::EINVAL),
    }
}

/// `sync_file_range(2)`: EINVAL for other flags and a negative range, ESPIPE for what is neither a
/// file nor a directory (kernel `fs/sync.c`).
pub(super) fn sync_file_range(
    context: &Context<'_>,
    number: u64,
    offset: u64,
    length: u64,
    flags: u64,
) -> Result {
    const FLAGS: u32 =
        c::SYNC_FILE_RANGE_WAIT_BEFORE | c::SYNC_FILE_RANGE_WRITE | c::SYNC_FILE_RANGE_WAIT_AFTER;
    let open = opened(context, number)?;
    if flags as u32 & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let end = offset.wrapping_add(length);
    if offset > i64::MAX as u64 || end > i64::MAX as u64 || end < offset {
        return Err(Errno::EINVAL);
    }
    node_of(open.file.as_ref()).ok_or(Errno::ESPIPE).map(|_| 0)
}
