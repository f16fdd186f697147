//! Limits of the address space (`setrlimit(2)`).

use core::ops::Range;

use super::area::{Area, SHARED};
use crate::errno::{Errno, Result};
use crate::memory::Rights;

/// Bytes that a program may map. Areas are counted where there is a limit only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceLimits {
    /// `RLIMIT_AS`: of all areas.
    pub(crate) all: u64,
    /// `RLIMIT_DATA`: of those that are private and can be written, the stack apart.
    pub(crate) data: u64,
}

impl SpaceLimits {
    pub(super) const NONE: Self = Self {
        all: u64::MAX,
        data: u64::MAX,
    };

    /// Whether a program has set none.
    pub(super) fn is_none(&self) -> bool {
        self.all == u64::MAX && self.data == u64::MAX
    }

    /// Whether there may be `more` bytes beside `areas`: ENOMEM if not (`may_expand_vm` in mm/mmap.c).
    pub(super) fn may_expand<'a>(
        &self,
        areas: impl Iterator<Item = (u64, &'a Area)> + Clone,
        more: u64,
        is_data: bool,
    ) -> Result<()> {
        within(self.all, more, areas.clone())?;
        if is_data {
            within(self.data, more, areas.filter(data))?;
        }
        Ok(())
    }

    /// Whether the areas of `range` may be written from now on.
    pub(super) fn may_become_data<'a>(
        &self,
        areas: impl Iterator<Item = (u64, &'a Area)> + Clone,
        range: &Range<u64>,
    ) -> Result<()> {
        if self.data == u64::MAX {
            return Ok(());
        }
        let new = areas.clone().filter(|(start, area)| {
            range.contains(start) && !area.rights.write && area.name != SHARED
        });
        match bytes(new) {
            0 => Ok(()),
            new => within(self.data, new, areas.filter(data)),
        }
    }
}

fn within<'a>(limit: u64, more: u64, areas: impl Iterator<Item = (u64, &'a Area)>) -> Result<()> {
    let is_within = limit == u64::MAX || {
        let sum = bytes(areas).checked_add(more);
        sum.is_some_and(|sum| sum <= limit)
    };
    if is_within {
        Ok(())
    } else {
        Err(Errno::ENOMEM)
    }
}

/// Bytes of areas.
pub(super) fn bytes<'a>(areas: impl Iterator<Item = (u64, &'a Area)>) -> u64 {
    areas.map(|(start, area)| area.end - start).sum()
}

fn data((_, area): &(u64, &Area)) -> bool {
    is_data(area.rights, area.name)
}

/// Whether an area counts as data.
pub(super) fn is_data(rights: Rights, name: &str) -> bool {
    rights.write && name != SHARED && name != "[stack]"
}
