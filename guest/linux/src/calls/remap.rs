//! `mremap(2)`: memory that grows, shrinks and moves.

use core::ops::Range;

use linux_raw_sys::general::{MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};

use super::arguments::Arguments;
use crate::context::Context;
use crate::errno::{Errno, Result};
use crate::memory::PAGE;
use crate::process::Process;
use crate::space::{Left, Space, may_commit};
use crate::user::USER_END;

/// What a program asks for, in whole pages.
struct Remap {
    old: u64,
    old_bytes: u64,
    new_bytes: u64,
    flags: u32,
    /// Where it goes: with [`MREMAP_DONTUNMAP`] alone a hint.
    to: u64,
}

/// `mremap(2)`. No memory is mapped twice: what Linux does for that (`MREMAP_DONTUNMAP` of shared
/// memory, an old size of 0) is EINVAL.
pub(super) fn mremap(context: &Context<'_>, a: Arguments) -> Result {
    let remap = Remap::of(a)?;
    let process = context.process;
    let area = process.space.lock().area_of(remap.old).map(|it| it.1.end);
    let area_end = area.ok_or(Errno::EFAULT)?;
    let to = match (remap.implies_move(), remap.new_bytes <= remap.old_bytes) {
        (false, true) => remap.shrink(process),
        (false, false) => remap.grow(process, area_end),
        (true, _) => remap.move_all(process, area_end),
    }?;
    process.forget_unmapped();
    Ok(to)
}

impl Remap {
    /// The checks that need no look at what is mapped (`check_mremap_params` in mm/mremap.c).
    fn of(a: Arguments) -> Result<Self> {
        let [old, old_length, new_length, flags, to, _] = a;
        let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
        let flags = u32::try_from(flags).map_err(|_| Errno::EINVAL)?;
        // As `PAGE_ALIGN`: the last lengths are none.
        let pages = |length: u64| length.wrapping_add(PAGE - 1) & !(PAGE - 1);
        let remap = Self {
            old,
            old_bytes: pages(old_length),
            new_bytes: pages(new_length),
            flags,
            to,
        };
        let is_size = remap.new_bytes != 0 && remap.new_bytes <= USER_END;
        if flags & !known != 0 || !old.is_multiple_of(PAGE) || !is_size {
            return Err(Errno::EINVAL);
        }
        if remap.implies_move() && !remap.may_move() {
            return Err(Errno::EINVAL);
        }
        Ok(remap)
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether it goes elsewhere however much fits where it is.
    fn implies_move(&self) -> bool {
        self.has(MREMAP_FIXED | MREMAP_DONTUNMAP)
    }

    /// Whether the flags and addresses of such a move are right.
    fn may_move(&self) -> bool {
        let is_address = self.to <= USER_END - self.new_bytes && self.to.is_multiple_of(PAGE);
        let same_size = !self.has(MREMAP_DONTUNMAP) || self.old_bytes == self.new_bytes;
        let old_end = self.old.saturating_add(self.old_bytes);
        let is_apart = old_end <= self.to || self.to + self.new_bytes <= self.old;
        is_address && self.has(MREMAP_MAYMOVE) && same_size && is_apart
    }

    /// What is mapped now, all of it in the area that ends at `area_end`.
    fn whole(&self, area_end: u64) -> Result<Range<u64>> {
        // Linux maps a shared area a second time.
        if self.old_bytes == 0 {
            return Err(Errno::EINVAL);
        }
        if self.old_bytes > area_end - self.old {
            return Err(Errno::EFAULT);
        }
        Ok(self.old..self.old + self.old_bytes)
    }

    fn may_expand(&self, space: &Space) -> Result<()> {
        let more = self.new_bytes.saturating_sub(self.old_bytes);
        match space.area_of(self.old) {
            Some((_, area)) if more > 0 => space.may_expand(more, area.rights, area.name),
            _ => Ok(()),
        }
    }

    fn shrink(&self, process: &Process) -> Result {
        let end = self.old.checked_add(self.old_bytes);
        let end = end.filter(|end| *end <= USER_END).ok_or(Errno::EINVAL)?;
        let rest = self.old + self.new_bytes..end;
        if !rest.is_empty() {
            process.write_back(&rest)?;
            process.space.lock().unmap(rest);
        }
        Ok(self.old)
    }

    fn grow(&self, process: &Process, area_end: u64) -> Result {
        let whole = self.whole(area_end)?;
        process.reach(self.old, &(self.old_bytes..self.new_bytes))?;
        may_commit(self.new_bytes)?;
        let mut space = process.space.lock();
        self.may_expand(&space)?;
        if space.grow(self.old, whole.end, self.old.saturating_add(self.new_bytes)) {
            return Ok(self.old);
        }
        if !self.has(MREMAP_MAYMOVE) {
            return Err(Errno::ENOMEM);
        }
        let to = space.find(self.new_bytes, 0)?;
        space.move_to(whole, to, self.new_bytes, Left::Nothing)?;
        Ok(to)
    }

    fn move_all(&self, process: &Process, area_end: u64) -> Result {
        let whole = self.whole(area_end)?;
        let left = if self.has(MREMAP_DONTUNMAP) {
            if process.is_shared(self.old) {
                return Err(Errno::EINVAL);
            }
            Left::Area
        } else {
            Left::Nothing
        };
        let moved = whole.start..whole.end.min(self.old + self.new_bytes);
        let rest = moved.end..whole.end;
        if self.new_bytes > self.old_bytes {
            process.reach(self.old, &(self.old_bytes..self.new_bytes))?;
            may_commit(self.new_bytes)?;
        }
        let is_fixed = self.has(MREMAP_FIXED);
        if is_fixed {
            process.write_back(&(self.to..self.to + self.new_bytes))?;
        }
        process.write_back(&rest)?;
        let mut space = process.space.lock();
        self.may_expand(&space)?;
        let to = if is_fixed {
            self.to
        } else {
            space.find(self.new_bytes, self.to)?
        };
        space.move_to(moved, to, self.new_bytes, left)?;
        if !rest.is_empty() {
            space.unmap(rest);
        }
        Ok(to)
    }
}
