//! [`Watchers`]: who looks at a file when it may have changed, threads and event queues.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use tare_libos::sync::SpinLock;
use tare_libos::thread::{Thread as Waiter, unpark_all};

use super::epoll::Item;

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
