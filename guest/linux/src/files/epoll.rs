//! Event queues (`epoll(7)`).
//!
//! A file that may have become ready notes its entry in the queue's list; a thread that asks
//! looks at the files of the list only, as Linux does. What does not tell of its changes is
//! looked at each time. An edge-triggered file is reported when a bit is new, or when it is ready
//! and was used since it was last reported: a program may get an edge too many, never one too
//! few.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use linux_raw_sys::general::{EPOLLET, EPOLLONESHOT, POLLERR, POLLHUP, POLLIN, POLLOUT};
use tare_libos::sync::SpinLock;
use tare_libos::thread::Thread as Waiter;

use super::{File, Open, Status, Uses, Watchers};
use crate::errno::{Errno, Result};

/// Most levels of queues in queues.
const MOST_LEVELS: usize = 5;
/// Few files, of which a call reports only a part; the part, and the least of it.
const FEW: usize = 16;
const PART: usize = 4;
const LEAST_PART: usize = 2;
/// Entries before those of closed files are looked for.
const LEAST_SWEEP: usize = 64;

/// What a program waits for on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

/// What names an entry: a descriptor and the address of the open file that it stood for,
/// which no other has as long as the entry is there.
type Key = (u64, usize);

fn key(number: u64, open: &Arc<Open>) -> Key {
    (number, Arc::as_ptr(open).addr())
}

/// An entry as its file knows it.
#[derive(Debug)]
pub(crate) struct Item {
    queue: Weak<Ready>,
    key: Key,
    /// What is waited for.
    events: AtomicU32,
    /// It is in the list.
    is_listed: AtomicBool,
}

impl Item {
    /// Notes that the file may be ready. It may be called while the network is locked.
    pub(crate) fn note(self: &Arc<Self>) {
        if let Some(queue) = self.queue.upgrade()
            && queue.list(self)
        {
            queue.watchers.wake();
        }
    }

    /// Bits of `poll` that are waited for; ends and errors always are.
    pub(crate) fn events(&self) -> u32 {
        self.events.load(Ordering::Relaxed)
    }
}

/// The entries whose files may be ready, in the order in which they became so.
#[derive(Default)]
struct Ready {
    /// Nothing else is locked under this lock.
    list: SpinLock<VecDeque<Arc<Item>>>,
    watchers: Watchers,
}

impl Ready {
    /// Puts an entry at the end, unless it is in the list; whether it was not.
    fn list(&self, item: &Arc<Item>) -> bool {
        let is_new = !item.is_listed.swap(true, Ordering::AcqRel);
        if is_new {
            self.list.lock().push_back(item.clone());
        }
        is_new
    }

    /// The first entry, which can be noted again from now on.
    fn pop(&self) -> Option<Arc<Item>> {
        let item = self.list.lock().pop_front()?;
        // A note that found it listed comes before: the look that follows sees its change.
        item.is_listed.swap(false, Ordering::AcqRel);
        Some(item)
    }

    fn len(&self) -> usize {
        self.list.lock().len()
    }
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
    fn sweep(&mut self) {
        if self.all.len() < self.sweep_at.max(LEAST_SWEEP) {
            return;
        }
        self.all.retain(|_, entry| entry.open.strong_count() > 0);
        let all = &self.all;
        self.untold.retain(|item| all.contains_key(&item.key));
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
}

impl Epoll {
    /// Adds the file of a descriptor.
    pub(crate) fn add(&self, number: u64, open: &Arc<Open>, interest: Interest) -> Result<()> {
        let is_loop = self.is_in(open.file.as_ref(), MOST_LEVELS);
        if is_loop || depth(open.file.as_ref()) >= MOST_LEVELS {
            return Err(Errno::ELOOP);
        }
        let mut entries = self.entries.lock();
        entries.sweep();
        let key = key(number, open);
        if entries.all.contains_key(&key) {
            return Err(Errno::EEXIST);
        }
        let item = Arc::new(Item {
            queue: Arc::downgrade(&self.ready),
            key,
            events: AtomicU32::new(interest.events),
            is_listed: AtomicBool::new(false),
        });
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
        entry.item.events.store(interest.events, Ordering::Relaxed);
        let item = entry.item.clone();
        drop(entries);
        item.note();
        Ok(())
    }

    /// Takes a file away.
    pub(crate) fn remove(&self, number: u64, open: &Arc<Open>) -> Result<()> {
        let removed = self.entries.lock().remove(key(number, open));
        removed.map(drop).ok_or(Errno::ENOENT)
    }

    /// Up to `most` files that are ready: their bits, and what the program gave.
    pub(crate) fn take(&self, most: usize) -> Vec<Interest> {
        let mut entries = self.entries.lock();
        self.list_untold(&entries);
        let listed = self.ready.len();
        let mut found = Vec::with_capacity(listed.min(most));
        // Each once: what stays ready goes to the end, so that a busy file starves none.
        for _ in 0..listed {
            if found.len() == most {
                break;
            }
            let Some(item) = self.ready.pop() else {
                break;
            };
            let Some(entry) = entries.get_mut(&item) else {
                continue;
            };
            if entry.open.strong_count() == 0 {
                entries.remove(item.key);
                continue;
            }
            if let Some(events) = entry.look(Taking::Yes) {
                found.push(Interest {
                    events,
                    data: entry.interest.data,
                });
                if entry.stays_listed() {
                    self.ready.list(&item);
                }
            }
        }
        found
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

    /// Whether `file` is this queue, or one that holds it within `levels`.
    fn is_in(&self, file: &dyn File, levels: usize) -> bool {
        let Some(other) = file.as_kind::<Self>().filter(|_| levels > 0) else {
            return false;
        };
        let holds = |open: &Arc<Open>| self.is_in(open.file.as_ref(), levels - 1);
        core::ptr::eq(self, other) || other.untold().iter().any(holds)
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
        let now = || open.file.ready() & wanted;
        // Armed before the look that finds nothing: no change is missed between them.
        let armed = || {
            open.file
                .arm(&self.item)
                .map_or_else(now, |ready| ready & wanted)
        };
        let ready = if self.is_edge_triggered() {
            armed()
        } else {
            match now() {
                0 => armed(),
                ready => ready,
            }
        };
        if self.is_edge_triggered() {
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
    let files = epoll.untold();
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
        self.list_untold(&entries);
        for _ in 0..self.ready.len() {
            let Some(item) = self.ready.pop() else {
                break;
            };
            let look = |entry: &mut Entry| entry.look(Taking::No);
            if entries.get_mut(&item).and_then(look).is_some() {
                self.ready.list(&item);
                return POLLIN;
            }
        }
        0
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
    fn a_call_reports_a_part_of_a_few_files_and_all_of_many() {
        let epoll = Epoll::default();
        let parts: Vec<usize> = (1..=40)
            .map(|number| {
                let open = Open::new(Arc::new(Counted::default()), 0);
                let interest = Interest { events: 0, data: 0 };
                assert_eq!(epoll.add(number, &open, interest), Ok(()));
                epoll.part_of(30)
            })
            .collect();
        assert_eq!(
            parts[..16],
            [2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]
        );
        assert!(parts[16..].iter().all(|part| *part == 30));
        assert_eq!(epoll.take(epoll.part_of(1)).len(), 0);
        assert_eq!(epoll.part_of(1), 1);
    }

    /// A file that counts how often it is looked at.
    #[derive(Default)]
    struct Counted {
        looks: AtomicU32,
        watchers: Watchers,
    }

    impl File for Counted {
        fn status(&self) -> Result<Status> {
            Ok(Status::anonymous())
        }

        fn ready(&self) -> u32 {
            self.looks.fetch_add(1, Ordering::Relaxed);
            0
        }

        fn watchers(&self) -> Option<&Watchers> {
            Some(&self.watchers)
        }
    }

    #[test]
    fn only_files_that_may_have_changed_are_looked_at() {
        let epoll = Epoll::default();
        let files: Vec<Arc<Counted>> = (0..100).map(|_| Arc::default()).collect();
        let interest = Interest {
            events: POLLIN,
            data: 0,
        };
        let open = |file: &Arc<Counted>| Open::new(file.clone(), 0);
        let opened: Vec<_> = files.iter().map(open).collect();
        for (open, number) in opened.iter().zip(0..) {
            assert_eq!(epoll.add(number, open, interest), Ok(()));
        }
        assert!(epoll.take(1).is_empty());
        let looks = || -> Vec<u32> {
            let each = files.iter();
            each.map(|file| file.looks.swap(0, Ordering::Relaxed))
                .collect()
        };
        assert!(looks().iter().all(|count| *count > 0));
        for _ in 0..3 {
            files[40].watchers.wake();
            assert!(epoll.take(1).is_empty());
            assert!(epoll.take(1).is_empty());
            let looked = looks();
            assert!(looked[40] > 0);
            assert_eq!(looked.iter().filter(|count| **count > 0).count(), 1);
        }
    }

    #[test]
    fn entries_of_closed_files_leave_without_a_look() {
        let (epoll, _open, _writer) = queue(POLLIN);
        let interest = Interest {
            events: POLLIN,
            data: 0,
        };
        for number in 0..10_000 {
            let open = Open::new(Arc::new(Counted::default()), 0);
            assert_eq!(epoll.add(number, &open, interest), Ok(()));
        }
        let entries = epoll.entries.lock();
        assert!(entries.all.len() <= LEAST_SWEEP, "{}", entries.all.len());
    }

    #[test]
    fn a_file_forgets_entries_that_were_removed_and_queues_that_were_closed() {
        let file: Arc<Counted> = Arc::default();
        let open = Open::new(file.clone(), 0);
        let interest = Interest {
            events: POLLIN,
            data: 0,
        };
        for _ in 0..100 {
            let epoll = Epoll::default();
            for _ in 0..100 {
                assert_eq!(epoll.add(1, &open, interest), Ok(()));
                assert!(epoll.take(1).is_empty());
                assert_eq!(epoll.remove(1, &open), Ok(()));
            }
            assert_eq!(epoll.add(1, &open, interest), Ok(()));
        }
        assert!(file.watchers.armed() <= 2, "{}", file.watchers.armed());
    }

    /// A random number below a bound (Marsaglia, "Xorshift RNGs", 2003).
    fn below(state: &mut u64, bound: usize) -> usize {
        for shift in [13, -7, 17_i32] {
            *state ^= match shift {
                0.. => *state << shift,
                _ => *state >> -shift,
            };
        }
        (*state % bound as u64) as usize
    }

    /// What is level-triggered is reported exactly while it is ready, whatever was read, written,
    /// closed or changed since the last look.
    #[test]
    fn levels_are_those_of_a_look_at_every_file() {
        const FILES: usize = 12;
        let mut random = 0x2545_f491_4f6c_dd1d;
        let epoll = Epoll::default();
        let mut files: Vec<Option<(Arc<Open>, Arc<Open>, u32)>> =
            (0..FILES).map(|_| None).collect();
        for _ in 0..5_000 {
            let at = below(&mut random, FILES);
            let events = [0, POLLIN, POLLOUT, POLLIN | POLLOUT][below(&mut random, 4)];
            let interest = Interest {
                events,
                data: at as u64,
            };
            let slot = &mut files[at];
            match (slot.as_mut(), below(&mut random, 8)) {
                (None, _) => {
                    let (reader, writer) = Pipe::pair();
                    let ends = [
                        Open::new(Arc::new(reader), 0),
                        Open::new(Arc::new(writer), 1),
                    ];
                    let [one, other] = ends;
                    let (open, peer) = match below(&mut random, 2) {
                        0 => (one, other),
                        _ => (other, one),
                    };
                    assert_eq!(epoll.add(at as u64, &open, interest), Ok(()));
                    *slot = Some((open, peer, events));
                }
                (Some(_), 0) => *slot = None,
                (Some((open, _, wanted)), 1 | 2) => {
                    assert_eq!(epoll.modify(at as u64, open, interest), Ok(()));
                    *wanted = events;
                }
                (Some((open, peer, _)), _) => {
                    let mut bytes = [0; 70_000];
                    for end in [open, peer] {
                        end.write(&bytes[..1 + below(&mut random, 2) * 65_000]).ok();
                        if below(&mut random, 2) == 0 {
                            end.read(&mut bytes).ok();
                        }
                    }
                }
            }
            if below(&mut random, 3) > 0 {
                continue;
            }
            let mut all = files.iter().flatten();
            let ready = |(open, _, wanted): &(Arc<Open>, Arc<Open>, u32)| {
                open.file.ready() & (wanted | POLLERR | POLLHUP) != 0
            };
            assert_eq!(File::ready(&epoll) != 0, all.any(ready));
            let mut found: Vec<u64> = epoll.take(FILES).iter().map(|one| one.data).collect();
            found.sort_unstable();
            let expected = files.iter().zip(0..);
            let expected = expected.filter(|(file, _)| file.as_ref().is_some_and(ready));
            let expected: Vec<u64> = expected.map(|(_, at)| at).collect();
            assert_eq!(found, expected);
        }
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
