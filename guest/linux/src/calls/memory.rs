//! Memory: `mmap(2)` and its kin.

use core::ops::Range;

use linux_raw_sys::general::{
    MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE,
    MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_TYPE, MCL_CURRENT, MCL_FUTURE,
    MCL_ONFAULT, MS_ASYNC, MS_INVALIDATE, MS_SYNC, PROT_EXEC, PROT_READ, PROT_WRITE,
};
use tare_program::offered::MapFlag;

use super::arguments::Arguments;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::files::regular::Regular;
use crate::files::stored;
use crate::files::{Device, Way};
use crate::memory::{PAGE, Rights};
use crate::process::Process;
use crate::shared::copy_of;
use crate::space::{Area, Backing, SHARED, may_commit};

fn rights(protection: u64) -> Rights {
    let has = |bit: u32| protection as u32 & bit != 0;
    Rights {
        read: has(PROT_READ),
        write: has(PROT_WRITE),
        execute: has(PROT_EXEC),
    }
}

/// Bytes rounded up to pages; EINVAL for none and ENOMEM for too many.
fn pages(length: u64) -> Result {
    match length.checked_next_multiple_of(PAGE) {
        Some(0) => Err(Errno::EINVAL),
        Some(bytes) if bytes < 1 << 47 => Ok(bytes),
        _ => Err(Errno::ENOMEM),
    }
}

/// The whole pages that a range lies in; None beyond the last address.
fn pages_of(start: u64, length: u64) -> Option<Range<u64>> {
    let end = start.checked_add(length)?.checked_next_multiple_of(PAGE)?;
    Some(start - start % PAGE..end)
}

/// `mmap(2)`. Of `/dev/zero` it is anonymous memory.
pub(super) fn mmap(context: &Context<'_>, a: Arguments) -> Result {
    let [hint, length, protection, flags, number, offset] = a;
    let bytes = pages(length)?;
    let flags = flags as u32 & (MAP_TYPE | MapFlag::MASK);
    let has = |bit: u32| flags & bit != 0;
    if !matches!(
        flags & MAP_TYPE,
        MAP_SHARED | MAP_PRIVATE | MAP_SHARED_VALIDATE
    ) {
        return Err(Errno::EINVAL);
    }
    let rights = rights(protection);
    if rights.write && !has(MAP_NORESERVE) {
        may_commit(bytes)?;
    }
    let mut shared = None;
    let mut is_anonymous = has(MAP_ANONYMOUS);
    let backing = if is_anonymous {
        Backing::Anonymous
    } else {
        if !offset.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(bytes);
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(Errno::EOVERFLOW);
        }
        let open = context.process.files.lock().get(number)?.open.clone();
        let is_shared_for_writing = has(MAP_SHARED) && rights.write;
        if open.may(Way::Read).is_err() || is_shared_for_writing && open.may(Way::Write).is_err() {
            return Err(Errno::EACCES);
        }
        is_anonymous = open.file.as_kind() == Some(&Device::Zero);
        if is_anonymous {
            Backing::Anonymous
        } else {
            let file = open.file.as_kind::<Regular>().ok_or(Errno::ENODEV)?;
            if is_shared_for_writing {
                file.held.node.seals.may_map_for_writing()?;
            }
            // Another mapping may have changes that the file has not.
            context.process.settle(open.file.as_ref())?;
            let mapped = match file.held.node.bytes() {
                Some(own) if !is_shared_for_writing => own.clone(),
                _ => copy_of(&file.held.node, &(offset..offset + bytes))?,
            };
            if flags & MAP_TYPE != MAP_PRIVATE {
                shared = Some((mapped.clone(), file.held.node.clone()));
            }
            Backing::File {
                bytes: mapped,
                offset,
                end: u64::MAX,
            }
        }
    };
    if has(MAP_FIXED) && !has(MAP_FIXED_NOREPLACE) {
        let end = hint.saturating_add(bytes);
        context.process.write_back(&(hint..end))?;
    }
    let mut space = context.process.space.lock();
    let start = if has(MAP_FIXED) || has(MAP_FIXED_NOREPLACE) {
        if !hint.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        hint
    } else {
        space.find(bytes, hint)?
    };
    let end = start.checked_add(bytes).ok_or(Errno::ENOMEM)?;
    if has(MAP_FIXED_NOREPLACE) && space.holds_some(&(start..end)) {
        return Err(Errno::EEXIST);
    }
    let area = Area {
        end,
        rights,
        backing,
        name: match flags & MAP_TYPE {
            MAP_PRIVATE => "",
            _ if is_anonymous => SHARED,
            _ => "",
        },
    };
    space.may_map(&(start..end), rights, area.name)?;
    // Under the lock: beside another thread's `munmap`, what is not mapped yet would be forgotten.
    if let Some((bytes, node)) = shared {
        context.process.share(bytes, node)?;
    }
    space.map(start..end, area)?;
    Ok(start)
}

/// `munmap(2)`.
pub(super) fn munmap(context: &Context<'_>, start: u64, length: u64) -> Result {
    if !start.is_multiple_of(PAGE) || length == 0 {
        return Err(Errno::EINVAL);
    }
    let end = start.checked_add(pages(length)?).ok_or(Errno::EINVAL)?;
    context.process.write_back(&(start..end))?;
    context.process.space.lock().unmap(start..end);
    context.process.forget_unmapped();
    Ok(0)
}

/// `msync(2)`: what was changed in shared mappings goes to their files.
pub(super) fn msync(context: &Context<'_>, start: u64, length: u64, flags: u64) -> Result {
    let flags = flags as u32;
    if !start.is_multiple_of(PAGE)
        || flags & !(MS_ASYNC | MS_INVALIDATE | MS_SYNC) != 0
        || flags & (MS_ASYNC | MS_SYNC) == MS_ASYNC | MS_SYNC
    {
        return Err(Errno::EINVAL);
    }
    let range = pages_of(start, length).ok_or(Errno::ENOMEM)?;
    context.process.write_back(&range)?;
    if flags & MS_SYNC != 0
        && let Some(mounted) = stored::mounted()
        && context.process.has_shared()
    {
        mounted.sync()?;
    }
    if !range.is_empty() && !context.process.space.lock().is_mapped(&range) {
        return Err(Errno::ENOMEM);
    }
    Ok(0)
}

/// `mprotect(2)`.
pub(super) fn mprotect(context: &Context<'_>, start: u64, length: u64, protection: u64) -> Result {
    if !start.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let end = start.checked_add(pages(length)?).ok_or(Errno::ENOMEM)?;
    context
        .process
        .space
        .lock()
        .protect(start..end, rights(protection))?;
    Ok(0)
}

/// `madvise(2)`: only what changes contents is more than advice. Advice that Linux 6.1 does not know
/// (`madvise_behavior_valid` in mm/madvise.c) is refused: who asks for guard pages that way makes
/// them otherwise then.
pub(super) fn madvise(context: &Context<'_>, start: u64, length: u64, advice: u64) -> Result {
    let advice = advice as u32;
    if !matches!(advice, 0..=4 | 8..=25) || !start.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let range = pages_of(start, length).ok_or(Errno::EINVAL)?;
    if range.is_empty() {
        return Ok(0);
    }
    // Linux takes pages that are free when memory is short; here at once.
    let is_free = advice == MADV_FREE;
    let forgets = is_free || matches!(advice, MADV_DONTNEED | MADV_DONTNEED_LOCKED);
    if is_free && !context.process.space.lock().is_own(&range) {
        return Err(Errno::EINVAL);
    }
    if forgets {
        // What was changed in shared mappings is their files'.
        context.process.write_back(&range)?;
    }
    let mut space = context.process.space.lock();
    // Also where some of it is not mapped: the error comes afterwards.
    if forgets {
        space.forget(&range);
    }
    if !space.is_mapped(&range) {
        return Err(Errno::ENOMEM);
    }
    Ok(0)
}

/// `mincore(2)`: what is mapped is in memory. ENOMEM behind the part that is.
pub(super) fn mincore(context: &Context<'_>, start: u64, length: u64, to: u64) -> Result {
    const AT_ONCE: u64 = 512;
    if !start.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let process = context.process;
    Process::is_own(start, length).map_err(|_| Errno::ENOMEM)?;
    let pages = length.div_ceil(PAGE);
    Process::is_own(to, pages)?;
    let is_mapped = |page, count| {
        let first = start + page * PAGE;
        process
            .space
            .lock()
            .is_mapped(&(first..first + count * PAGE))
    };
    let mut done = 0;
    while done < pages {
        let some = (pages - done).min(AT_ONCE);
        let count = if is_mapped(done, some) { some } else { 1 };
        if !is_mapped(done, count) {
            return Err(Errno::ENOMEM);
        }
        process.write(to + done, &[1; AT_ONCE as usize][..count as usize])?;
        done += count;
    }
    Ok(0)
}

/// `mlock(2)` and `munlock(2)`: no page leaves the machine's memory.
pub(super) fn mlock(context: &Context<'_>, start: u64, length: u64) -> Result {
    let range = pages_of(start, length).ok_or(Errno::EINVAL)?;
    if !range.is_empty() && !context.process.space.lock().is_mapped(&range) {
        return Err(Errno::ENOMEM);
    }
    Ok(0)
}

pub(super) fn mlockall(flags: u64) -> Result {
    match flags as u32 {
        0 | MCL_ONFAULT => Err(Errno::EINVAL),
        flags if flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0 => Err(Errno::EINVAL),
        _ => Ok(0),
    }
}

/// `brk(2)`.
pub(super) fn brk(context: &Context<'_>, wanted: u64) -> Result {
    Ok(context.process.space.lock().set_break(wanted))
}
