//! The deadlines of one core's threads: a binary heap whose entries can be
//! removed, so that a deadline that no longer matters wakes no thread.

use alloc::vec::Vec;

/// Names an entry until it is removed or popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerId(u32);

struct Entry<T> {
    deadline_ns: u64,
    id: u32,
    value: T,
}

/// Deadlines, the nearest first.
pub(crate) struct Timers<T> {
    heap: Vec<Entry<T>>,
    /// Position in `heap` by ID.
    positions: Vec<u32>,
    free: Vec<u32>,
}

impl<T> Timers<T> {
    pub(crate) const fn new() -> Self {
        Self {
            heap: Vec::new(),
            positions: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The nearest deadline.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|entry| entry.deadline_ns)
    }

    /// Adds a deadline.
    pub(crate) fn insert(&mut self, deadline_ns: u64, value: T) -> TimerId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.positions.push(0);
            self.positions.len() as u32 - 1
        });
        self.heap.push(Entry {
            deadline_ns,
            id,
            value,
        });
        self.place(self.heap.len() - 1);
        self.sift_up(self.heap.len() - 1);
        TimerId(id)
    }

    /// Takes out an entry that has not been popped.
    pub(crate) fn remove(&mut self, id: TimerId) -> T {
        self.take(self.positions[id.0 as usize] as usize)
    }

    /// The value of the nearest deadline if it has passed.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<T> {
        if self.next_ns()? > now_ns {
            return None;
        }
        Some(self.take(0))
    }

    fn take(&mut self, at: usize) -> T {
        let entry = self.heap.swap_remove(at);
        self.free.push(entry.id);
        if at < self.heap.len() {
            self.place(at);
            self.sift_down(at);
            self.sift_up(at);
        }
        entry.value
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent].deadline_ns <= self.heap[at].deadline_ns {
                return;
            }
            self.swap(at, parent);
            at = parent;
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let deadline = |index: usize| self.heap.get(index).map(|entry| entry.deadline_ns);
            let Some(left_ns) = deadline(left) else {
                return;
            };
            let (child, child_ns) = match deadline(right) {
                Some(right_ns) if right_ns < left_ns => (right, right_ns),
                _ => (left, left_ns),
            };
            if self.heap[at].deadline_ns <= child_ns {
                return;
            }
            self.swap(at, child);
            at = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place(a);
        self.place(b);
    }

    #[inline]
    fn place(&mut self, at: usize) {
        let id = self.heap[at].id;
        self.positions[id as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_nearest_deadline_comes_first_and_not_early() {
        let mut timers = Timers::new();
        timers.insert(30, 'c');
        timers.insert(10, 'a');
        timers.insert(20, 'b');
        assert_eq!(timers.next_ns(), Some(10));
        assert_eq!(timers.pop_due(9), None);
        assert_eq!(timers.pop_due(25), Some('a'));
        assert_eq!(timers.pop_due(25), Some('b'));
        assert_eq!(timers.pop_due(25), None);
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sorted_map(steps in prop::collection::vec((0..3u8, 0..50u64), 1..200)) {
            let mut timers = Timers::new();
            let mut model: BTreeMap<u32, (u64, TimerId)> = BTreeMap::new();
            let mut next = 0;
            for (step, number) in steps {
                match step {
                    0 => {
                        model.insert(next, (number, timers.insert(number, next)));
                        next += 1;
                    }
                    1 => {
                        let key = model.keys().nth(number as usize % model.len().max(1)).copied();
                        if let Some(key) = key {
                            let (_, id) = model.remove(&key).expect("just found");
                            prop_assert_eq!(timers.remove(id), key);
                        }
                    }
                    _ => match timers.pop_due(number) {
                        Some(key) => {
                            let (deadline, _) = model.remove(&key).expect("was inserted");
                            prop_assert!(deadline <= number);
                            prop_assert!(model.values().all(|(other, _)| *other >= deadline));
                        }
                        None => prop_assert!(model.values().all(|(other, _)| *other > number)),
                    },
                }
                prop_assert_eq!(timers.next_ns(), model.values().map(|(d, _)| *d).min());
            }
        }
    }
}
