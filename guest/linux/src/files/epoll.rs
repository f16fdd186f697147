//! Event queues (`epoll(7)`).
//!
//! A file that may have become ready notes its entry in the queue's list; a thread that asks
//! looks at the files of the list only, as Linux does. What does not tell of its changes is
//! looked at each time. An edge-triggered file is reported when a bit is new, or when it is ready
//! and was used since it was last reported: a program may get an edge too many, never one too
//! few.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use linux_raw_sys::general::{
    EPOLLET, EPOLLONESHOT, POLLERR, POLLHUP, POLLIN, POLLOUT, POLLWRNORM,
};
use tare_libos::sync::SpinLock;
use tare_libos::thread::Thread as Waiter;

use super::watch::{Item, Key, Ready};
use super::{File, Open, Status, Uses};
use crate::errno::{Errno, Result};

/// Most levels of queues in queues.
const MOST_LEVELS: usize = 5;
/// Few files, of which a call reports only a part; the part, and the least of it.
const FEW: usize = 16;
const PART: usize = 4;
const LEAST_PART: usize = 2;
/// Entries before those of closed files are looked for.
const LEAST_SWEEP: usize = 64;

/// Held while a queue is put into another: two at once could make a loop that neither sees.
static NESTING: SpinLock<()> = SpinLock::new(());

/// What a program waits for on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

fn key(number: u64, open: &Arc<Open>) -> Key {
    (number, Arc::as_ptr(open).addr())
}

struct Entry {
    open: Weak<Open>,
    interest: Interest,
    item: Arc<Item>,
    /// EPOLLONESHOT was reported: nothing more is until the entry is changed.
    is_spent: bool,
    /// Bits that were reported since the file was last used.
    reported: u32,
    /// Uses of the file and arrivals then.
    uses: Uses,
    arrivals: u64,
}

#[derive(Default)]
struct Entries {
    all: BTreeMap<Key, Entry>,
    /// Those whose files do not tell of their changes.
    untold: Vec<Arc<Item>>,
    /// Number of entries at which those of closed files are removed.
    sweep_at: usize,
}

impl Entries {
    /// Removes the entries of closed files, once they may be half of all.
    fn sweep(&mut self, ready: &Ready) {
        if self.all.len() < self.sweep_at.max(LEAST_SWEEP) {
            return;
        }
        self.all.retain(|_, entry| entry.open.strong_count() > 0);
        let all = &self.all;
        self.untold.retain(|item| all.contains_key(&item.key));
        ready.keep(|item| {
            let entry = all.get(&item.key);
            entry.is_some_and(|entry| Arc::ptr_eq(&entry.item, item))
        });
        self.sweep_at = 2 * self.all.len();
    }

    /// The entry of a noted item, unless it was removed meanwhile.
    fn get_mut(&mut self, item: &Arc<Item>) -> Option<&mut Entry> {
        let entry = self.all.get_mut(&item.key)?;
        Arc::ptr_eq(&entry.item, item).then_some(entry)
    }

    fn remove(&mut self, key: Key) -> Option<Entry> {
        let entry = self.all.remove(&key)?;
        self.untold.retain(|item| !Arc::ptr_eq(item, &entry.item));
        Some(entry)
    }
}

/// An event queue.
#[derive(Default)]
pub(crate) struct Epoll {
    entries: SpinLock<Entries>,
    ready: Arc<Ready>,
    /// Levels of queues that were ever above it.
    above: AtomicUsize,
    /// How often someone took what was ready.
    takes: AtomicU64,
}

impl Epoll {
    /// Adds the file of a descriptor.
    pub(crate) fn add(&self, number: u64, open: &Arc<Open>, interest: Interest) -> Result<()> {
        let inner = open.file.as_kind::<Self>();
        let _nesting = inner.map(|_| NESTING.lock());
        let above = self.above.load(Ordering::Relaxed) + 1;
        if let Some(inner) = inner
            && (above + inner.depth() > MOST_LEVELS || self.is_in(inner, MOST_LEVELS))
        {
            return Err(Errno::ELOOP);
        }
        let mut entries = self.entries.lock();
        entries.sweep(&self.ready);
        let key = key(number, open);
        if entries.all.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        let item = Item::new(&self.ready, key, interest.events);
        if open.file.arm(&item).is_none() {
            entries.untold.push(item.clone());
        }
        let entry = Entry {
            open: Arc::downgrade(open),
            interest,
            item: item.clone(),
            is_spent: false,
            reported: 0,
            uses: Uses::default(),
            arrivals: 0,
        };
        entries.all.insert(key, entry);
        drop(entries);
        if let Some(inner) = inner {
            inner.sink(above);
        }
        item.note();
        Ok(())
    }

    /// Changes what is waited for.
    pub(crate) fn modify(&self, number: u64, open: &Arc<Open>, interest: Interest) -> Result<()> {
        let mut entries = self.entries.lock();
        let entry = entries
            .all
            .get_mut(&key(number, open))
            .ok_or(Errno::ENOENT)?;
        entry.interest = interest;
        entry.is_spent = false;
        entry.reported = 0;
        entry.item.set_events(interest.events);
        let item = entry.item.clone();
        drop(entries);
        item.note();
        Ok(())
    }

    /// Takes a file away.
    pub(crate) fn remove(&self, number: u64, open: &Arc<Open>) -> Result<()> {
        let removed = self.entries.lock().remove(key(number, open));
        let item = removed.ok_or(Errno::ENOENT)?.item;
        if item.is_listed() {
            self.ready.keep(|listed| !Arc::ptr_eq(listed, &item));
        }
        Ok(())
    }

    /// Up to `most` files that are ready: their bits, and what the program gave.
    pub(crate) fn take(&self, most: usize) -> Vec<Interest> {
        let mut entries = self.entries.lock();
        self.takes.fetch_add(1, Ordering::Relaxed);
        self.list_untold(&entries);
        let listed = self.ready.len();
        let mut found = Vec::with_capacity(listed.min(most));
        // Each once: what stays ready goes to the end, so that a busy file starves none.
        let looks = (0..listed).filter_map(|_| self.look_at_first(&mut entries, Taking::Yes));
        found.extend(looks.take(most));
        found
    }

    /// Looks at the first entry of the list, which goes to the end if it is to be looked at again;
    /// what it reports.
    fn look_at_first(&self, entries: &mut Entries, taking: Taking) -> Option<Interest> {
        let item = self.ready.pop()?;
        let entry = entries.get_mut(&item)?;
        if entry.open.strong_count() == 0 {
            entries.remove(item.key);
            return None;
        }
        let events = entry.look(taking)?;
        if taking == Taking::No || entry.stays_listed() {
            self.ready.list(&item);
        }
        Some(Interest {
            events,
            data: entry.interest.data,
        })
    }

    /// How many files a call that may wait reports, `most` at most. Of a few that may be ready, a part:
    /// while the program answers these, the host sends what it has answered and fetches what is
    /// next (ADR 83). Many go together: each call costs the same.
    pub(crate) fn part_of(&self, most: usize) -> usize {
        match self.ready.len() {
            listed @ ..=FEW => most.min(listed.div_ceil(PART).max(LEAST_PART)),
            _ => most,
        }
    }

    /// Lists what does not tell of its changes.
    fn list_untold(&self, entries: &Entries) {
        for item in &entries.untold {
            self.ready.list(item);
        }
    }

    /// Whether `other` is this queue, or one that holds it within `levels`.
    fn is_in(&self, other: &Self, levels: usize) -> bool {
        let files = other.untold();
        let holds = |inner: &Self| levels > 1 && self.is_in(inner, levels - 1);
        core::ptr::eq(self, other) || queues(&files).any(holds)
    }

    /// Levels of queues from this one down.
    fn depth(&self) -> usize {
        let files = self.untold();
        1 + queues(&files).map(Self::depth).max().unwrap_or(0)
    }

    /// Notes that this many levels are above it, and more above those in it.
    fn sink(&self, above: usize) {
        if self.above.fetch_max(above, Ordering::Relaxed) < above {
            let files = self.untold();
            queues(&files).for_each(|inner| inner.sink(above + 1));
        }
    }

    /// The files that do not tell of their changes; queues are among them.
    fn untold(&self) -> Vec<Arc<Open>> {
        let entries = self.entries.lock();
        let untold = entries.untold.iter();
        untold
            .filter_map(|item| entries.all.get(&item.key)?.open.upgrade())
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
    fn is_edge_triggered(&self) -> bool {
        self.interest.events & EPOLLET != 0
    }

    /// Whether it is looked at again behind a report, without a change of the file.
    fn stays_listed(&self) -> bool {
        !self.is_edge_triggered() && !self.is_spent
    }

    fn look(&mut self, taking: Taking) -> Option<u32> {
        let open = self.open.upgrade()?;
        if self.is_spent {
            return None;
        }
        let wanted = self.interest.events | POLLERR | POLLHUP;
        let uses = open.uses();
        // Armed before the look that finds nothing: no change is missed between them.
        let armed = || open.file.arm(&self.item).map(|bits| open.file.shown(bits));
        let look = || open.file.shown(open.file.ready());
        let ready = if self.is_edge_triggered() {
            armed().unwrap_or_else(look) & wanted
        } else {
            match look() & wanted {
                0 => armed().unwrap_or(0) & wanted,
                ready => ready,
            }
        };
        if self.is_edge_triggered() {
            let mut seen = self.reported;
            let arrivals = open.file.arrivals();
            if uses.reads != self.uses.reads || arrivals != self.arrivals {
                seen &= POLLOUT | POLLWRNORM;
            }
            if uses.blocks != self.uses.blocks {
                seen &= !(POLLOUT | POLLWRNORM);
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

/// The queues among files.
fn queues(files: &[Arc<Open>]) -> impl Iterator<Item = &Epoll> {
    files.iter().filter_map(|open| open.file.as_kind::<Epoll>())
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
        self.list_untold(&entries);
        let is_ready =
            (0..self.ready.len()).any(|_| self.look_at_first(&mut entries, Taking::No).is_some());
        if is_ready { POLLIN } else { 0 }
    }

    /// Who took what was ready may have used it.
    fn arrivals(&self) -> u64 {
        self.takes.load(Ordering::Relaxed)
    }

    fn watch(&self, waiter: &Waiter) {
        self.ready.watchers.add(waiter);
        self.untold()
            .iter()
            .for_each(|open| open.file.watch(waiter));
    }

    fn unwatch(&self, waiter: &Waiter) {
        self.ready.watchers.remove(waiter);
        self.untold()
            .iter()
            .for_each(|open| open.file.unwatch(waiter));
    }

    fn deadline_ns(&self, after_ns: u64) -> Option<u64> {
        self.untold()
            .iter()
            .filter_map(|open| open.file.deadline_ns(after_ns))
            .min()
    }

    fn name(&self) -> String {
        String::from("anon_inode:[eventpoll]")
    }
}

#[cfg(test)]
#[path = "epoll_tests.rs"]
mod tests;
