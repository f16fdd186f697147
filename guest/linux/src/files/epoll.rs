//! Event queues (`epoll(7)`).
//!
//! Readiness is looked at when a thread asks: each file of the list. An edge-triggered
//! file is reported when a bit is new, or when it is ready and was used since it was
//! last reported: a program may get an edge too many, never one too few.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::ControlFlow;

use linux_raw_sys::general::{EPOLLET, EPOLLONESHOT, POLLERR, POLLHUP, POLLIN, POLLOUT};
use tare_libos::sync::SpinLock;
use tare_libos::thread::Thread as Waiter;

use super::{File, Open, Status, Uses, Watchers};
use crate::errno::{Errno, Result};

/// Most levels of queues in queues.
const MOST_LEVELS: usize = 5;

/// What a program waits for on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

struct Entry {
    open: Weak<Open>,
    interest: Interest,
    /// EPOLLONESHOT was reported: nothing more is until the entry is changed.
    is_spent: bool,
    /// Bits that were reported since the file was last used.
    reported: u32,
    /// Uses of the file and arrivals then.
    uses: Uses,
    arrivals: u64,
}

/// What names an entry: a descriptor and the address of the open file that it stood for,
/// which no other has as long as the entry is there.
type Key = (u64, usize);

fn key(number: u64, open: &Arc<Open>) -> Key {
    (number, Arc::as_ptr(open).addr())
}

/// An event queue.
#[derive(Default)]
pub(crate) struct Epoll {
    entries: SpinLock<BTreeMap<Key, Entry>>,
    /// The entry at which the next look begins: a call that finds more than it takes
    /// leaves the rest to the next one.
    next: SpinLock<Key>,
    watchers: Watchers,
}

impl Epoll {
    /// Adds the file of a descriptor.
    pub(crate) fn add(&self, number: u64, open: &Arc<Open>, interest: Interest) -> Result<()> {
        let is_loop = self.is_in(open.file.as_ref(), MOST_LEVELS);
        if is_loop || depth(open.file.as_ref()) >= MOST_LEVELS {
            return Err(Errno::ELOOP);
        }
        let mut entries = self.entries.lock();
        if entries.contains_key(&key(number, open)) {
            return Err(Errno::EEXIST);
        }
        let entry = Entry {
            open: Arc::downgrade(open),
            interest,
            is_spent: false,
            reported: 0,
            uses: Uses::default(),
            arrivals: 0,
        };
        entries.insert(key(number, open), entry);
        drop(entries);
        self.watchers.wake();
        Ok(())
    }

    /// Changes what is waited for.
    pub(crate) fn modify(&self, number: u64, open: &Arc<Open>, interest: Interest) -> Result<()> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&key(number, open)).ok_or(Errno::ENOENT)?;
        entry.interest = interest;
        entry.is_spent = false;
        entry.reported = 0;
        drop(entries);
        self.watchers.wake();
        Ok(())
    }

    /// Takes a file away.
    pub(crate) fn remove(&self, number: u64, open: &Arc<Open>) -> Result<()> {
        let removed = self.entries.lock().remove(&key(number, open));
        removed.map(drop).ok_or(Errno::ENOENT)
    }

    /// Up to `most` files that are ready: their bits, and what the program gave.
    pub(crate) fn take(&self, most: usize) -> Vec<Interest> {
        let mut found = Vec::new();
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| entry.open.strong_count() > 0);
        let mut next = self.next.lock();
        let first = *next;
        let halves = [first..(u64::MAX, usize::MAX), (0, 0)..first];
        let mut look = |at: Key, entry: &mut Entry| {
            if found.len() == most {
                *next = at;
                return ControlFlow::Break(());
            }
            if let Some(events) = entry.look(Taking::Yes) {
                found.push(Interest {
                    events,
                    data: entry.interest.data,
                });
            }
            ControlFlow::Continue(())
        };
        for half in halves {
            let mut half = entries.range_mut(half);
            if half.try_for_each(|(at, entry)| look(*at, entry)).is_break() {
                break;
            }
        }
        found
    }

    /// Whether `file` is this queue, or one that holds it within `levels`.
    fn is_in(&self, file: &dyn File, levels: usize) -> bool {
        let Some(other) = file.as_kind::<Self>().filter(|_| levels > 0) else {
            return false;
        };
        let holds = |open: &Arc<Open>| self.is_in(open.file.as_ref(), levels - 1);
        core::ptr::eq(self, other) || other.files().iter().any(holds)
    }

    /// The files, to watch them.
    fn files(&self) -> Vec<Arc<Open>> {
        let entries = self.entries.lock();
        entries
            .values()
            .filter_map(|entry| entry.open.upgrade())
            .collect()
    }
}

/// Whether a look counts as a report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taking {
    Yes,
    No,
}

impl Entry {
    fn look(&mut self, taking: Taking) -> Option<u32> {
        let open = self.open.upgrade()?;
        if self.is_spent {
            return None;
        }
        let wanted = self.interest.events | POLLERR | POLLHUP;
        let uses = open.uses();
        let ready = open.file.ready() & wanted;
        if self.interest.events & EPOLLET != 0 {
            let mut seen = self.reported;
            let arrivals = open.file.arrivals();
            if uses.reads != self.uses.reads || arrivals != self.arrivals {
                seen &= POLLOUT;
            }
            if uses.blocks != self.uses.blocks {
                seen &= !POLLOUT;
            }
            let is_new = ready & !seen != 0;
            if taking == Taking::Yes {
                self.reported = ready;
                self.uses = uses;
                self.arrivals = arrivals;
            }
            if !is_new {
                return None;
            }
        }
        if ready == 0 {
            return None;
        }
        if taking == Taking::Yes {
            self.is_spent = self.interest.events & EPOLLONESHOT != 0;
        }
        Some(ready)
    }
}

fn depth(file: &dyn File) -> usize {
    let Some(epoll) = file.as_kind::<Epoll>() else {
        return 0;
    };
    let files = epoll.files();
    1 + files
        .iter()
        .map(|open| depth(open.file.as_ref()))
        .max()
        .unwrap_or(0)
}

impl File for Epoll {
    fn status(&self) -> Result<Status> {
        Ok(Status::anonymous())
    }

    fn seek(&self, _offset: i64, _whence: u32) -> Result {
        Ok(0)
    }

    fn ready(&self) -> u32 {
        let mut entries = self.entries.lock();
        let is_ready = entries
            .values_mut()
            .any(|entry| entry.look(Taking::No).is_some());
        if is_ready { POLLIN } else { 0 }
    }

    fn watch(&self, waiter: &Waiter) {
        self.watchers.add(waiter);
        self.files().iter().for_each(|open| open.file.watch(waiter));
    }

    fn unwatch(&self, waiter: &Waiter) {
        self.watchers.remove(waiter);
        self.files()
            .iter()
            .for_each(|open| open.file.unwatch(waiter));
    }

    fn deadline_ns(&self, after_ns: u64) -> Option<u64> {
        self.files()
            .iter()
            .filter_map(|open| open.file.deadline_ns(after_ns))
            .min()
    }

    fn name(&self) -> String {
        String::from("anon_inode:[eventpoll]")
    }
}

#[cfg(test)]
mod tests {
    use super::super::pipe::Pipe;
    use super::*;

    fn queue(events: u32) -> (Epoll, Arc<Open>, Pipe) {
        let (reader, writer) = Pipe::pair();
        let open = Open::new(Arc::new(reader), 0);
        let epoll = Epoll::default();
        let interest = Interest { events, data: 7 };
        assert_eq!(epoll.add(3, &open, interest), Ok(()));
        (epoll, open, writer)
    }

    fn ready() -> Vec<Interest> {
        let interest = Interest {
            events: POLLIN,
            data: 7,
        };
        alloc::vec![interest]
    }

    #[test]
    fn a_level_is_reported_until_it_is_gone() {
        let (epoll, open, writer) = queue(POLLIN);
        assert!(epoll.take(10).is_empty());
        writer.write(b"xy").expect("room");
        assert_eq!(epoll.take(10), ready());
        assert_eq!(epoll.take(10), ready());
        open.read(&mut [0; 8]).expect("data");
        assert!(epoll.take(10).is_empty());
    }

    #[test]
    fn an_edge_is_reported_once_and_again_after_a_use() {
        let (epoll, open, writer) = queue(POLLIN | EPOLLET);
        writer.write(b"xy").expect("room");
        assert_eq!(epoll.take(10), ready());
        assert!(epoll.take(10).is_empty());
        open.read(&mut [0; 1]).expect("data");
        assert_eq!(epoll.take(10), ready());
        writer.write(b"z").expect("room");
        assert_eq!(epoll.take(10), ready());
        assert!(epoll.take(10).is_empty());
        open.read(&mut [0; 2]).expect("data");
        assert!(epoll.take(10).is_empty());
        writer.write(b"z").expect("room");
        assert_eq!(epoll.take(10), ready());
    }

    #[test]
    fn one_shot_waits_for_a_change_and_closed_files_leave() {
        let (epoll, open, writer) = queue(POLLIN | EPOLLONESHOT);
        writer.write(b"xy").expect("room");
        assert_eq!(epoll.take(10), ready());
        assert!(epoll.take(10).is_empty());
        let interest = Interest {
            events: POLLIN,
            data: 7,
        };
        assert_eq!(epoll.modify(3, &open, interest), Ok(()));
        assert_eq!(epoll.take(10), ready());
        assert_eq!(epoll.add(3, &open, interest), Err(Errno::EEXIST));
        drop(open);
        assert!(epoll.take(10).is_empty());
    }

    #[test]
    fn an_entry_is_of_its_open_file_also_when_the_number_is_used_again() {
        let (epoll, open, _writer) = queue(POLLIN);
        drop(open);
        let (reader, writer) = Pipe::pair();
        let open = Open::new(Arc::new(reader), 0);
        let interest = Interest {
            events: POLLIN,
            data: 7,
        };
        assert_eq!(epoll.modify(3, &open, interest), Err(Errno::ENOENT));
        assert_eq!(epoll.remove(3, &open), Err(Errno::ENOENT));
        assert_eq!(epoll.add(3, &open, interest), Ok(()));
        writer.write(b"x").expect("room");
        assert_eq!(epoll.take(10), ready());
        assert_eq!(epoll.remove(3, &open), Ok(()));
        assert!(epoll.take(10).is_empty());
    }

    #[test]
    fn an_end_is_reported_to_those_who_ask_for_nothing() {
        for events in [0, EPOLLET, EPOLLONESHOT] {
            let (epoll, _open, writer) = queue(events);
            writer.write(b"x").expect("room");
            assert!(epoll.take(10).is_empty());
            drop(writer);
            let found = epoll.take(10);
            let found: Vec<u32> = found.iter().map(|one| one.events).collect();
            assert_eq!(found, [POLLHUP], "{events:#x}");
            let again = usize::from(events == 0);
            assert_eq!(epoll.take(10).len(), again, "{events:#x}");
        }
    }

    #[test]
    fn a_busy_file_does_not_starve_those_behind_it() {
        let epoll = Epoll::default();
        let pairs: Vec<_> = (0..3)
            .map(|number| {
                let (reader, writer) = Pipe::pair();
                let open = Open::new(Arc::new(reader), 0);
                let interest = Interest {
                    events: POLLIN,
                    data: number,
                };
                assert_eq!(epoll.add(number, &open, interest), Ok(()));
                writer.write(b"x").expect("room");
                (open, writer)
            })
            .collect();
        let mut seen = [0; 3];
        (0..6).for_each(|_| {
            epoll
                .take(1)
                .iter()
                .for_each(|one| seen[one.data as usize] += 1)
        });
        assert_eq!(seen, [2, 2, 2]);
        drop(pairs);
    }

    #[test]
    fn queues_do_not_hold_themselves() {
        let queue = || Open::new(Arc::new(Epoll::default()), 0);
        let (outer, middle, inner) = (queue(), queue(), queue());
        let interest = Interest {
            events: POLLIN,
            data: 0,
        };
        let add = |to: &Open, open: &Arc<Open>| {
            let epoll = to.file.as_kind::<Epoll>().expect("a queue");
            epoll.add(1, open, interest)
        };
        assert_eq!(add(&outer, &middle), Ok(()));
        assert_eq!(add(&middle, &inner), Ok(()));
        for holder in [&outer, &middle, &inner] {
            assert_eq!(add(&inner, holder), Err(Errno::ELOOP));
        }
        assert_eq!(outer.file.ready(), 0);
    }
}
