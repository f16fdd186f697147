//! [`Turns`]: threads that wait for room, first come first. One wake-up is for one thread that
//! waits still: a thread may be woken for another reason, and find room by itself.

use alloc::collections::VecDeque;

use crate::thread::Thread;

/// The threads, each once.
#[derive(Debug, Default)]
pub(super) struct Turns(VecDeque<Thread>);

impl Turns {
    pub(super) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Lets a thread wait behind the others; whether it did not yet.
    #[inline(never)]
    pub(super) fn add(&mut self, thread: &Thread) -> bool {
        let is_new = self.0.iter().all(|other| other.id() != thread.id());
        if is_new {
            self.0.push_back(thread.clone());
        }
        is_new
    }

    /// A thread waits no more.
    #[inline(never)]
    pub(super) fn remove(&mut self, thread: &Thread) {
        // Each once around: less code than taking one out of the middle.
        for _ in 0..self.0.len() {
            if let Some(other) = self.0.pop_front()
                && other.id() != thread.id()
            {
                self.0.push_back(other);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next thread to wake.
    pub(super) fn take(&mut self) -> Option<Thread> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread;

    #[test]
    fn a_thread_that_found_room_by_itself_takes_no_others_turn() {
        let (first, second) = (thread::current(), thread::spawn(|| ()));
        let mut turns = Turns::new();
        assert!(turns.add(&first));
        // Woken for another reason, it still finds none.
        assert!(!turns.add(&first));
        assert!(turns.add(second.thread()));
        turns.remove(&first);
        let next = turns.take().expect("the second waits");
        assert_eq!(next.id(), second.thread().id());
        assert!(turns.is_empty());
        second.join();
    }
}
