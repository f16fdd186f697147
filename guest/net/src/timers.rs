//! `Timers`: a heap of deadlines, one for each small number, that can be
//! moved and taken back at any time. A deadline that is taken back leaves
//! nothing behind, so that a quiet connection wakes no thread.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use smoltcp::time::Instant;

/// Not in the heap.
const NONE: u32 = u32::MAX;

/// Binary heap of (deadline, number) with the place of each number.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<(Instant, u32)>,
    places: Vec<u32>,
}

impl Timers {
    /// No deadlines.
    pub(crate) const fn new() -> Self {
        Self {
            heap: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Makes sure that numbers below `count` can be given deadlines without memory.
    pub(crate) fn try_reserve(&mut self, count: usize) -> Result<(), TryReserveError> {
        let heap = count.saturating_sub(self.heap.len());
        self.heap.try_reserve(heap)?;
        let places = count.saturating_sub(self.places.len());
        self.places.try_reserve(places)
    }

    /// The earliest deadline.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.heap.first().map(|(deadline, _)| *deadline)
    }

    /// Takes one number whose deadline has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u32> {
        let (deadline, number) = *self.heap.first()?;
        if deadline > now {
            return None;
        }
        self.set(number, None);
        Some(number)
    }

    /// Gives `number` a deadline, or takes it back.
    pub(crate) fn set(&mut self, number: u32, deadline: Option<Instant>) {
        match (self.place(number), deadline) {
            (None, None) => {}
            (None, Some(deadline)) => {
                self.heap.push((deadline, number));
                self.note(self.heap.len() - 1);
                self.sift_up(self.heap.len() - 1);
            }
            (Some(at), Some(deadline)) => {
                if self.heap[at].0 != deadline {
                    self.heap[at].0 = deadline;
                    self.sift(at);
                }
            }
            (Some(at), None) => {
                self.heap.swap_remove(at);
                self.places[number as usize] = NONE;
                if at < self.heap.len() {
                    self.note(at);
                    self.sift(at);
                }
            }
        }
    }

    fn place(&self, number: u32) -> Option<usize> {
        match self.places.get(number as usize) {
            None | Some(&NONE) => None,
            Some(&at) => Some(at as usize),
        }
    }

    fn note(&mut self, at: usize) {
        let number = self.heap[at].1 as usize;
        if number >= self.places.len() {
            self.places.resize(number + 1, NONE);
        }
        self.places[number] = at as u32;
    }

    fn sift(&mut self, at: usize) {
        let at = self.sift_up(at);
        self.sift_down(at);
    }

    fn sift_up(&mut self, mut at: usize) -> usize {
        while at > 0 && self.heap[at].0 < self.heap[(at - 1) / 2].0 {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let children = 2 * at + 1..self.heap.len().min(2 * at + 3);
            let Some(child) = children.min_by_key(|&child| self.heap[child].0) else {
                return;
            };
            if self.heap[at].0 <= self.heap[child].0 {
                return;
            }
            self.swap(at, child);
            at = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.note(a);
        self.note(b);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_sorted_map(
            steps in prop::collection::vec((0u32..20, prop::option::of(0i64..50)), 0..200),
        ) {
            let mut timers = Timers::new();
            let mut model = BTreeMap::new();
            for (number, ms) in steps {
                let deadline = ms.map(Instant::from_millis);
                timers.set(number, deadline);
                match deadline {
                    Some(deadline) => { model.insert(number, deadline); }
                    None => { model.remove(&number); }
                }
                prop_assert_eq!(timers.earliest(), model.values().min().copied());
            }
            let end = Instant::from_millis(30);
            let mut last = Instant::from_millis(0);
            while let Some(number) = timers.take_due(end) {
                let deadline = model.remove(&number).unwrap_or(end + smoltcp::time::Duration::from_secs(1));
                prop_assert!(last <= deadline && deadline <= end);
                last = deadline;
            }
            prop_assert!(model.values().all(|deadline| *deadline > end));
        }
    }
}
