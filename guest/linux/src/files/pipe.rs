//! Pipes, and counters (`eventfd(2)`).

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general::{POLLERR, POLLHUP, POLLIN, POLLOUT, S_IFIFO};
use tare_libos::sync::SpinLock;

use super::{File, Status, Watchers};
use crate::errno::{Errno, Result};

/// Pages that a pipe holds, and the bytes of one, up to which a write is not divided.
const PAGES: usize = 16;
const PAGE: usize = 4096;

#[derive(Default)]
struct Shared {
    pages: SpinLock<Pages>,
    is_read: AtomicBool,
    is_written: AtomicBool,
    writes: AtomicU64,
    watchers: Watchers,
}

/// What waits in a pipe, in pages as Linux counts them (`fs/pipe.c`): one is taken until the last
/// of its bytes was read.
#[derive(Default)]
struct Pages(VecDeque<Page>);

struct Page {
    bytes: Vec<u8>,
    read: usize,
}

impl Pages {
    fn length(&self) -> usize {
        let unread = |page: &Page| page.bytes.len() - page.read;
        self.0.iter().map(unread).sum()
    }

    fn is_full(&self) -> bool {
        self.0.len() >= PAGES
    }

    /// Adds what there is room for; gives how many bytes. What a write has beyond whole pages
    /// goes behind the last write if it fits there.
    fn add(&mut self, from: &[u8]) -> usize {
        let odd = from.len() % PAGE;
        let last = self.0.back_mut().filter(|_| odd > 0);
        let mut done = 0;
        if let Some(last) = last.filter(|last| last.bytes.len() + odd <= PAGE) {
            last.bytes.extend_from_slice(&from[..odd]);
            done = odd;
        }
        let room = PAGES.saturating_sub(self.0.len());
        for part in from[done..].chunks(PAGE).take(room) {
            self.0.push_back(Page {
                bytes: part.into(),
                read: 0,
            });
            done += part.len();
        }
        done
    }

    /// Takes what there is; gives how many bytes.
    fn take(&mut self, to: &mut [u8]) -> usize {
        let mut done = 0;
        while done < to.len()
            && let Some(page) = self.0.front_mut()
        {
            let part = &page.bytes[page.read..];
            let count = part.len().min(to.len() - done);
            to[done..done + count].copy_from_slice(&part[..count]);
            page.read += count;
            done += count;
            if page.read == page.bytes.len() {
                self.0.pop_front();
            }
        }
        done
    }
}

/// Which end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Read,
    Write,
}

/// An end of a pipe.
pub(crate) struct Pipe {
    shared: Arc<Shared>,
    end: End,
}

impl Pipe {
    /// The reading and the writing end.
    pub(crate) fn pair() -> (Self, Self) {
        let shared = Arc::new(Shared::default());
        shared.is_read.store(true, Ordering::Relaxed);
        shared.is_written.store(true, Ordering::Relaxed);
        let end = |end| Self {
            shared: shared.clone(),
            end,
        };
        (end(End::Read), end(End::Write))
    }

    /// Whether the other end is one of the same pipe.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Bytes that a write takes at once: EAGAIN if none, EPIPE without a reader.
    pub(crate) fn room(&self) -> Result<usize> {
        if !self.shared.is_read.load(Ordering::SeqCst) {
            return Err(Errno::EPIPE);
        }
        match PAGES.saturating_sub(self.shared.pages.lock().0.len()) {
            0 => Err(Errno::EAGAIN),
            pages => Ok(pages * PAGE),
        }
    }

    /// How many of its next bytes are in whole pages and at most `most`: a page that meets memory which
    /// cannot be written stays, as on Linux.
    pub(crate) fn in_whole_pages(&self, most: usize) -> usize {
        let mut whole = 0;
        for page in &self.shared.pages.lock().0 {
            let unread = page.bytes.len() - page.read;
            if whole + unread > most {
                break;
            }
            whole += unread;
        }
        whole
    }

    /// Gives at most `most` bytes to `act`, and keeps what it does not take; gives how many it
    /// took.
    pub(crate) fn drain(
        &self,
        most: usize,
        act: impl FnOnce(&[u8]) -> Result<usize>,
    ) -> Result<usize> {
        let mut bytes = Vec::new();
        let mut pages = self.shared.pages.lock();
        bytes.resize(most.min(pages.length()), 0);
        pages.take(&mut bytes);
        drop(pages);
        if bytes.is_empty() {
            return Ok(0);
        }
        // Not under the lock: `act` may wake others.
        let taken = act(&bytes);
        let count = taken.unwrap_or(0).min(bytes.len());
        if count < bytes.len() {
            bytes.drain(..count);
            let rest = Page { bytes, read: 0 };
            self.shared.pages.lock().0.push_front(rest);
        }
        self.shared.watchers.wake();
        taken
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let shared = &self.shared;
        let flag = match self.end {
            End::Read => &shared.is_read,
            End::Write => &shared.is_written,
        };
        flag.store(false, Ordering::SeqCst);
        shared.watchers.wake();
    }
}

impl File for Pipe {
    fn read(&self, to: &mut [u8]) -> Result<usize> {
        if self.end != End::Read {
            return Err(Errno::EBADF);
        }
        let mut pages = self.shared.pages.lock();
        if pages.0.is_empty() {
            return if self.shared.is_written.load(Ordering::SeqCst) {
                Err(Errno::EAGAIN)
            } else {
                Ok(0)
            };
        }
        let count = pages.take(to);
        drop(pages);
        self.shared.watchers.wake();
        Ok(count)
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        if self.end != End::Write {
            return Err(Errno::EBADF);
        }
        if !self.shared.is_read.load(Ordering::SeqCst) {
            return Err(Errno::EPIPE);
        }
        let mut pages = self.shared.pages.lock();
        let count = pages.add(from);
        if count == 0 && !from.is_empty() {
            return Err(Errno::EAGAIN);
        }
        self.shared.writes.fetch_add(1, Ordering::Relaxed);
        drop(pages);
        self.shared.watchers.wake();
        Ok(count)
    }

    fn status(&self) -> Result<Status> {
        Ok(Status {
            inode: Arc::as_ptr(&self.shared).addr() as u64,
            mode: S_IFIFO | 0o600,
            links: 1,
            ..Status::default()
        })
    }

    fn ready(&self) -> u32 {
        let pages = self.shared.pages.lock();
        match self.end {
            End::Read => {
                let data = if pages.0.is_empty() { 0 } else { POLLIN };
                let open = self.shared.is_written.load(Ordering::SeqCst);
                data | if open { 0 } else { POLLHUP }
            }
            End::Write => {
                let room = if pages.is_full() { 0 } else { POLLOUT };
                let open = self.shared.is_read.load(Ordering::SeqCst);
                room | if open { 0 } else { POLLERR }
            }
        }
    }

    fn arrivals(&self) -> u64 {
        self.shared.writes.load(Ordering::Relaxed)
    }

    fn readable_bytes(&self) -> Result {
        Ok(self.shared.pages.lock().length() as u64)
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.shared.watchers)
    }

    fn name(&self) -> String {
        String::from("pipe:[1]")
    }
}

/// A counter.
pub(crate) struct Event {
    count: SpinLock<u64>,
    writes: AtomicU64,
    is_semaphore: bool,
    watchers: Watchers,
}

impl Event {
    pub(crate) fn new(count: u64, is_semaphore: bool) -> Self {
        Self {
            count: SpinLock::new(count),
            writes: AtomicU64::new(0),
            is_semaphore,
            watchers: Watchers::new(),
        }
    }
}

impl File for Event {
    fn has_normal_data(&self) -> bool {
        false
    }

    fn read(&self, to: &mut [u8]) -> Result<usize> {
        let slot = to.first_chunk_mut::<8>().ok_or(Errno::EINVAL)?;
        let mut count = self.count.lock();
        if *count == 0 {
            return Err(Errno::EAGAIN);
        }
        let taken = if self.is_semaphore { 1 } else { *count };
        *count -= taken;
        *slot = taken.to_le_bytes();
        drop(count);
        self.watchers.wake();
        Ok(8)
    }

    fn write(&self, from: &[u8]) -> Result<usize> {
        let added = <[u8; 8]>::try_from(from).map_err(|_| Errno::EINVAL)?;
        let added = u64::from_le_bytes(added);
        let mut count = self.count.lock();
        let sum = count.checked_add(added).filter(|_| added != u64::MAX);
        *count = match sum {
            Some(sum) if sum < u64::MAX => sum,
            _ if added == u64::MAX => return Err(Errno::EINVAL),
            _ => return Err(Errno::EAGAIN),
        };
        self.writes.fetch_add(1, Ordering::Relaxed);
        drop(count);
        self.watchers.wake();
        Ok(8)
    }

    fn arrivals(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    fn status(&self) -> Result<Status> {
        Ok(Status::anonymous())
    }

    fn seek(&self, _offset: i64, _whence: u32) -> Result {
        Ok(0)
    }

    fn ready(&self) -> u32 {
        let count = *self.count.lock();
        let readable = if count > 0 { POLLIN } else { 0 };
        readable | if count < u64::MAX - 1 { POLLOUT } else { 0 }
    }

    fn watchers(&self) -> Option<&Watchers> {
        Some(&self.watchers)
    }

    fn name(&self) -> String {
        String::from("anon_inode:[eventfd]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_keeps_order_and_ends_when_its_writer_is_gone() {
        let (reader, writer) = Pipe::pair();
        assert_eq!(reader.read(&mut [0; 4]), Err(Errno::EAGAIN));
        assert_eq!(writer.write(b"abc"), Ok(3));
        let mut two = [0; 2];
        assert_eq!(reader.read(&mut two), Ok(2));
        assert_eq!(&two, b"ab");
        assert_eq!(reader.ready(), POLLIN);
        drop(writer);
        assert_eq!(reader.read(&mut two), Ok(1));
        assert_eq!(reader.read(&mut two), Ok(0));
        assert_eq!(reader.ready(), POLLHUP);
    }

    #[test]
    fn a_full_pipe_waits_and_a_pipe_without_reader_breaks() {
        let (reader, writer) = Pipe::pair();
        assert_eq!(writer.write(&[1; PAGES * PAGE + 5]), Ok(PAGES * PAGE));
        assert_eq!(writer.write(b"x"), Err(Errno::EAGAIN));
        assert_eq!(writer.ready(), 0);
        drop(reader);
        assert_eq!(writer.write(b"x"), Err(Errno::EPIPE));
        assert_eq!(writer.ready(), POLLERR);
    }

    #[test]
    fn a_page_of_a_pipe_is_taken_until_its_last_byte_was_read() {
        let (reader, writer) = Pipe::pair();
        assert_eq!(writer.write(b"x"), Ok(1));
        // Whole pages go behind the one that has a byte.
        assert_eq!(writer.write(&[1; PAGES * PAGE]), Ok((PAGES - 1) * PAGE));
        assert_eq!(writer.ready(), 0);
        assert_eq!(writer.write(b"y"), Err(Errno::EAGAIN));
        assert_eq!(reader.read(&mut [0; 1]), Ok(1));
        assert_eq!(writer.ready(), POLLOUT);
        assert_eq!(writer.write(b"ab"), Ok(2));
        assert_eq!(writer.write(b"c"), Ok(1));
        assert_eq!(
            reader.read(&mut [0; (PAGES - 1) * PAGE - 1]),
            Ok((PAGES - 1) * PAGE - 1)
        );
        let mut rest = [0; 9];
        assert_eq!(reader.readable_bytes(), Ok(4));
        assert_eq!(reader.read(&mut rest), Ok(4));
        assert_eq!(&rest[..4], b"\x01abc");
    }

    #[test]
    fn counters_add_up_and_are_taken_whole_or_by_one() {
        let counter = Event::new(2, false);
        assert_eq!(counter.write(&3_u64.to_le_bytes()), Ok(8));
        let mut value = [0; 8];
        assert_eq!(counter.read(&mut value), Ok(8));
        assert_eq!(u64::from_le_bytes(value), 5);
        assert_eq!(counter.read(&mut value), Err(Errno::EAGAIN));
        let semaphore = Event::new(2, true);
        assert_eq!(semaphore.read(&mut value), Ok(8));
        assert_eq!(u64::from_le_bytes(value), 1);
        assert_eq!(semaphore.write(&u64::MAX.to_le_bytes()), Err(Errno::EINVAL));
        assert_eq!(semaphore.write(&[0; 4]), Err(Errno::EINVAL));
    }
}
