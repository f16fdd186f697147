//! [`Watchers`]: who looks at a file when it may have changed, threads and event queues; and what
//! queues keep of that.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tare_libos::sync::SpinLock;
use tare_libos::thread::{Thread as Waiter, unpark_all};

/// Usually empty or one.
#[derive(Debug, Default)]
pub(crate) struct Watchers(SpinLock<List>);

#[derive(Debug, Default)]
struct List {
    /// Each takes itself away.
    threads: Vec<Waiter>,
    /// Entries of event queues, which are noted once. They go with their queues.
    items: Vec<Weak<Item>>,
}

impl Watchers {
    pub(crate) const fn new() -> Self {
        Self(SpinLock::new(List {
            threads: Vec::new(),
            items: Vec::new(),
        }))
    }

    pub(crate) fn add(&self, waiter: &Waiter) {
        let threads = &mut self.0.lock().threads;
        if threads.iter().all(|other| other.id() != waiter.id()) {
            threads.push(waiter.clone());
        }
    }

    pub(crate) fn remove(&self, waiter: &Waiter) {
        let threads = &mut self.0.lock().threads;
        threads.retain(|other| other.id() != waiter.id());
    }

    /// Lets an entry be noted at the next change.
    pub(crate) fn arm(&self, item: &Arc<Item>) {
        let items = &mut self.0.lock().items;
        items.retain(|other| other.strong_count() > 0);
        if items
            .iter()
            .all(|other| other.as_ptr() != Arc::as_ptr(item))
        {
            items.push(Arc::downgrade(item));
        }
    }

    /// How many entries are to be noted.
    #[cfg(test)]
    pub(crate) fn armed(&self) -> usize {
        self.0.lock().items.len()
    }

    /// Wakes all; each looks for itself.
    pub(crate) fn wake(&self) {
        let mut list = self.0.lock();
        // The room for them stays: most are armed again.
        let items = list.items.drain(..);
        items
            .filter_map(|item| item.upgrade())
            .for_each(|item| item.note());
        let threads = list.threads.clone();
        drop(list);
        unpark_all(threads);
    }
}

/// What names an entry: a descriptor and the address of the open file that it stood for,
/// which no other has as long as the entry is there.
pub(super) type Key = (u64, usize);

/// An entry as its file knows it.
#[derive(Debug)]
pub(crate) struct Item {
    queue: Weak<Ready>,
    pub(super) key: Key,
    /// What is waited for.
    events: AtomicU32,
    /// It is in the list.
    is_listed: AtomicBool,
}

impl Item {
    pub(super) fn new(queue: &Arc<Ready>, key: Key, events: u32) -> Arc<Self> {
        Arc::new(Self {
            queue: Arc::downgrade(queue),
            key,
            events: AtomicU32::new(events),
            is_listed: AtomicBool::new(false),
        })
    }

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

    pub(super) fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Acquire)
    }

    pub(super) fn set_events(&self, events: u32) {
        self.events.store(events, Ordering::Relaxed);
    }
}

/// The entries whose files may be ready, in the order in which they became so.
#[derive(Default)]
pub(super) struct Ready {
    /// Nothing else is locked under this lock.
    list: SpinLock<VecDeque<Arc<Item>>>,
    pub(super) watchers: Watchers,
}

impl Ready {
    /// Puts an entry at the end, unless it is in the list; whether it was not.
    pub(super) fn list(&self, item: &Arc<Item>) -> bool {
        let is_new = !item.is_listed.swap(true, Ordering::AcqRel);
        if is_new {
            self.list.lock().push_back(item.clone());
        }
        is_new
    }

    /// The first entry, which can be noted again from now on.
    pub(super) fn pop(&self) -> Option<Arc<Item>> {
        let item = self.list.lock().pop_front()?;
        // A note that found it listed comes before: the look that follows sees its change.
        item.is_listed.swap(false, Ordering::AcqRel);
        Some(item)
    }

    /// Takes entries that were removed from the list; `has` says which there are.
    pub(super) fn keep(&self, has: impl Fn(&Arc<Item>) -> bool) {
        self.list.lock().retain(|item| {
            let is_kept = has(item);
            if !is_kept {
                item.is_listed.store(false, Ordering::Release);
            }
            is_kept
        });
    }

    pub(super) fn len(&self) -> usize {
        self.list.lock().len()
    }
}
