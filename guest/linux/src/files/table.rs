//! The table of descriptors.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general::{
    IN_CLOSE_NOWRITE, IN_CLOSE_WRITE, O_ACCMODE, O_APPEND, O_DSYNC, O_NONBLOCK, O_PATH, O_RDONLY,
    O_WRONLY,
};

use tare_libos::time::{Duration, Instant};

use super::File;
use super::lock::How;
use super::regular::notify;
use crate::errno::{Errno, Result};

/// Most descriptors, and the most that `RLIMIT_NOFILE` may be.
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
    is_locked: AtomicBool,
    /// How long a call waits to read and to write, nanoseconds; 0 is without end.
    limits_ns: [AtomicU64; 2],
}

impl Drop for Open {
    fn drop(&mut self) {
        if *self.is_locked.get_mut() {
            self.unlock();
        }
        notify(
            self.file.as_ref(),
            match self.may(Way::Write) {
                Ok(()) => IN_CLOSE_WRITE,
                Err(_) => IN_CLOSE_NOWRITE,
            },
        );
    }
}

/// How a file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Write,
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
            is_locked: AtomicBool::new(false),
            limits_ns: [const { AtomicU64::new(0) }; 2],
        })
    }

    pub(crate) fn read(&self, to: &mut [u8]) -> Result<usize> {
        self.may(Way::Read)?;
        self.note_read();
        self.file.read(to)
    }

    pub(crate) fn write(&self, from: &[u8]) -> Result<usize> {
        let written = self.write_once(from)?;
        self.make_durable_if_asked()?;
        Ok(written)
    }

    /// Writes at an offset.
    pub(crate) fn write_at(&self, offset: u64, from: &[u8]) -> Result<usize> {
        let written = self.file.write_at(offset, from)?;
        self.make_durable_if_asked()?;
        Ok(written)
    }

    /// For files whose writes are to be durable (`O_SYNC`, `O_DSYNC`).
    fn make_durable_if_asked(&self) -> Result<()> {
        match self.flags() & O_DSYNC {
            0 => Ok(()),
            _ => self.make_durable(),
        }
    }

    pub(crate) fn make_durable(&self) -> Result<()> {
        match self.file.sync() {
            // What cannot be made durable, as a pipe.
            Err(Errno::EINVAL) => Ok(()),
            done => done,
        }
    }

    fn write_once(&self, from: &[u8]) -> Result<usize> {
        self.may(Way::Write)?;
        let done = match self.file.write(from) {
            Ok(done) if done < from.len() => done,
            Err(Errno::EAGAIN) => 0,
            written => return written,
        };
        // Room that comes behind the second attempt comes behind the note too: no event
        // queue takes it for what it has reported.
        self.note_block();
        match self.file.write(&from[done..]) {
            Ok(more) => Ok(done + more),
            Err(_) if done > 0 => Ok(done),
            Err(errno) => Err(errno),
        }
    }

    /// Sends a message by `act`. One that finds no room is tried again behind the note of that, as
    /// a write is.
    pub(crate) fn send(&self, act: impl Fn() -> Result<usize>) -> Result<usize> {
        match act() {
            Err(Errno::EAGAIN) => {
                self.note_block();
                act()
            }
            sent => sent,
        }
    }

    fn note_block(&self) {
        self.blocks.fetch_add(1, Ordering::AcqRel);
    }

    /// EBADF for a way of access that the file was not opened for.
    pub(crate) fn may(&self, way: Way) -> Result<()> {
        let refused = match way {
            Way::Read => O_WRONLY,
            Way::Write => O_RDONLY,
        };
        let flags = self.flags();
        if flags & O_ACCMODE == refused || flags & O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        Ok(())
    }

    /// How long a call waits (`SO_RCVTIMEO`, `SO_SNDTIMEO`).
    pub(crate) fn limit_ns(&self, way: Way) -> u64 {
        self.limits_ns[way as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, way: Way, ns: u64) {
        self.limits_ns[way as usize].store(ns, Ordering::Relaxed);
    }

    /// When a call that begins now has waited long enough.
    pub(crate) fn deadline(&self, way: Way) -> Option<Instant> {
        match self.limit_ns(way) {
            0 => None,
            ns => Some(Instant::now() + Duration::from_nanos(ns)),
        }
    }

    /// Locks the file; EAGAIN while others are in the way.
    pub(crate) fn lock(&self, how: How) -> Result<()> {
        let lock = self.file.lock().ok_or(Errno::EINVAL)?;
        self.is_locked.store(true, Ordering::Relaxed);
        lock.take(self.name(), how)
    }

    /// Gives the lock back.
    pub(crate) fn unlock(&self) {
        if let Some(lock) = self.file.lock() {
            lock.give(self.name());
        }
    }

    /// What names this open file.
    fn name(&self) -> usize {
        (&raw const *self).addr()
    }

    /// Notes that the program reads the file.
    pub(crate) fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn uses(&self) -> Uses {
        Uses {
            reads: self.reads.load(Ordering::Acquire),
            blocks: self.blocks.load(Ordering::Acquire),
        }
    }

    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    pub(crate) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
        self.file.set_appends(flags & O_APPEND != 0);
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
pub(crate) struct Table {
    places: Vec<Option<Descriptor>>,
    /// Where numbers for new descriptors end (`RLIMIT_NOFILE`).
    pub(crate) limit: usize,
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self {
            places: Vec::new(),
            limit: MOST,
        }
    }

    pub(crate) fn get(&self, number: u64) -> Result<&Descriptor> {
        let slot = self.places.get(number as u32 as usize);
        slot.and_then(Option::as_ref).ok_or(Errno::EBADF)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Result<&mut Descriptor> {
        let slot = self.places.get_mut(number as u32 as usize);
        slot.and_then(Option::as_mut).ok_or(Errno::EBADF)
    }

    /// The first free number from `least` on.
    pub(crate) fn insert(&mut self, least: usize, descriptor: Descriptor) -> Result {
        let number = self.first_free(least)?;
        self.put(number, descriptor)?;
        Ok(number as u64)
    }

    /// The first free number from `least` on; EMFILE for none.
    pub(crate) fn first_free(&self, least: usize) -> Result<usize> {
        let free = (least..self.places.len()).find(|&number| self.places[number].is_none());
        let number = free.unwrap_or(self.places.len().max(least));
        Some(number)
            .filter(|&number| number < self.limit)
            .ok_or(Errno::EMFILE)
    }

    /// At `number`; gives what was there.
    pub(crate) fn put(
        &mut self,
        number: usize,
        descriptor: Descriptor,
    ) -> Result<Option<Descriptor>> {
        if number >= self.limit {
            return Err(Errno::EMFILE);
        }
        if self.places.len() <= number {
            self.places.resize(number + 1, None);
        }
        Ok(self.places[number].replace(descriptor))
    }

    pub(crate) fn remove(&mut self, number: u64) -> Result<Descriptor> {
        let slot = self.places.get_mut(number as u32 as usize);
        slot.and_then(Option::take).ok_or(Errno::EBADF)
    }

    /// Calls `act` with each place whose number is in `range`.
    pub(crate) fn each(
        &mut self,
        range: RangeInclusive<usize>,
        act: impl FnMut(&mut Option<Descriptor>),
    ) {
        let (first, count) = (*range.start(), range.end() - range.start() + 1);
        self.places.iter_mut().skip(first).take(count).for_each(act);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::super::epoll::{Epoll, Interest};
    use super::*;
    use core::sync::atomic::AtomicUsize;
    use linux_raw_sys::general::{EPOLLET, O_RDWR, POLLOUT};

    /// A file that gets room between a write that finds none and the end of the call.
    struct Late {
        writes: AtomicUsize,
        queue: Arc<Epoll>,
    }

    impl File for Late {
        fn write(&self, _from: &[u8]) -> Result<usize> {
            if self.writes.fetch_add(1, Ordering::Relaxed) == 0 {
                // Another thread looks: the room has come, but is reported already.
                assert_eq!(self.queue.take(1).len(), 0);
            }
            Err(Errno::EAGAIN)
        }

        fn ready(&self) -> u32 {
            POLLOUT
        }

        fn status(&self) -> Result<Status> {
            Ok(Status::anonymous())
        }
    }

    #[test]
    fn an_edge_is_not_lost_when_room_comes_during_a_write() {
        let queue = Arc::new(Epoll::default());
        let writes = AtomicUsize::new(0);
        let late = Late {
            writes,
            queue: queue.clone(),
        };
        let open = Open::new(Arc::new(late), O_RDWR);
        let interest = Interest {
            events: POLLOUT | EPOLLET,
            data: 0,
        };
        assert_eq!(queue.add(1, &open, interest), Ok(()));
        assert_eq!(queue.take(1).len(), 1);
        assert_eq!(open.write(b"x"), Err(Errno::EAGAIN));
        let late = open.file.as_kind::<Late>().map(|late| &late.writes);
        // It was tried again behind the note.
        assert_eq!(late.map(|writes| writes.load(Ordering::Relaxed)), Some(2));
        assert_eq!(queue.take(1).len(), 1);
    }

    #[test]
    fn a_file_is_used_as_it_was_opened() {
        let (reader, writer) = super::super::pipe::Pipe::pair();
        let reader = Open::new(Arc::new(reader), O_RDONLY);
        let writer = Open::new(Arc::new(writer), O_WRONLY);
        assert_eq!(reader.write(b"x"), Err(Errno::EBADF));
        assert_eq!(writer.read(&mut [0]), Err(Errno::EBADF));
        assert_eq!(writer.write(b"x"), Ok(1));
        assert_eq!(reader.read(&mut [0]), Ok(1));
    }
}
