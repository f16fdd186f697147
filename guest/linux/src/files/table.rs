//! The table of descriptors.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general::O_NONBLOCK;

use super::File;
use crate::errno::{Errno, Result};

/// Most descriptors: `RLIMIT_NOFILE`.
pub(crate) const MOST: usize = 65_536;

/// An open file: what several descriptors may share.
pub(crate) struct Open {
    pub(crate) file: Arc<dyn File>,
    /// Flags of `open` that can change: O_APPEND, O_NONBLOCK and the way of access.
    flags: AtomicU32,
    /// How often it was read, and how often a write found no room for all: for edges of
    /// event queues.
    reads: AtomicU64,
    blocks: AtomicU64,
}

/// What an event queue compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    pub(crate) reads: u64,
    pub(crate) blocks: u64,
}

impl Open {
    pub(crate) fn new(file: Arc<dyn File>, flags: u32) -> Arc<Self> {
        Arc::new(Self {
            file,
            flags: AtomicU32::new(flags),
            reads: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
        })
    }

    pub(crate) fn read(&self, to: &mut [u8]) -> Result<usize> {
        self.note_read();
        self.file.read(to)
    }

    pub(crate) fn write(&self, from: &[u8]) -> Result<usize> {
        let written = self.file.write(from);
        if written != Ok(from.len()) {
            self.blocks.fetch_add(1, Ordering::Relaxed);
        }
        written
    }

    /// Notes that the program reads the file.
    pub(crate) fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn uses(&self) -> Uses {
        Uses {
            reads: self.reads.load(Ordering::Relaxed),
            blocks: self.blocks.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(crate) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }

    pub(crate) fn may_wait(&self) -> bool {
        self.flags() & O_NONBLOCK == 0
    }
}

/// A descriptor.
#[derive(Clone)]
pub(crate) struct Descriptor {
    pub(crate) open: Arc<Open>,
    pub(crate) close_on_exec: bool,
}

/// The table of descriptors.
#[derive(Default)]
pub(crate) struct Table(Vec<Option<Descriptor>>);

impl Table {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn get(&self, number: u64) -> Result<&Descriptor> {
        let slot = self.0.get(number as u32 as usize);
        slot.and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Result<&mut Descriptor> {
        let slot = self.0.get_mut(number as u32 as usize);
        slot.and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    /// The first free number from `least` on.
    pub(crate) fn insert(&mut self, least: usize, descriptor: Descriptor) -> Result {
        let free = (least..self.0.len()).find(|&number| self.0[number].is_none());
        let number = free.unwrap_or(self.0.len().max(least));
        self.put(number, descriptor)?;
        Ok(number as u64)
    }

    /// At `number`; gives what was there.
    pub(crate) fn put(
        &mut self,
        number: usize,
        descriptor: Descriptor,
    ) -> Result<Option<Descriptor>> {
        if number >= MOST {
            return Err(Errno::EMFILE);
        }
        if self.0.len() <= number {
            self.0.resize(number + 1, None);
        }
        Ok(self.0[number].replace(descriptor))
    }

    pub(crate) fn remove(&mut self, number: u64) -> Result<Descriptor> {
        let slot = self.0.get_mut(number as u32 as usize);
        slot.and_then(Option::take).ok_or(Errno::EBADF)
    }

    /// The numbers in use.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        let used = |(number, slot): (usize, &Option<Descriptor>)| slot.is_some().then_some(number);
        self.0.iter().enumerate().filter_map(used)
    }
}
