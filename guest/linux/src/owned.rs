//! Futexes that hold the number of their owner, which the kernel hands over (`FUTEX_LOCK_PI`,
//! kernel/futex/pi.c). Linux lets the owner inherit the priority of who waits; here all threads have
//! one priority.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use tare_libos::sync::SpinLock;

use crate::errno::{Errno, Result};
use crate::futex::Sleeper;

/// A futex's owner (`include/uapi/linux/futex.h`).
pub(crate) const TID_MASK: u32 = 0x3fff_ffff;
/// Its owner has ended.
pub(crate) const OWNER_DIED: u32 = 0x4000_0000;
/// Some thread waits for it.
pub(crate) const WAITERS: u32 = 0x8000_0000;

/// The word of a futex, which the program changes too.
pub(crate) trait Word {
    /// What it holds; it holds `new` from now on if that is `expected`.
    ///
    /// # Errors
    /// EFAULT.
    fn exchange(&self, expected: u32, new: u32) -> Result<u32>;
}

/// Threads that wait for a futex, in order.
struct Line {
    /// Who had it when the first came: its end hands it over, also where the word has lost it, as where
    /// musl releases what an ending thread holds.
    owner: u32,
    waiting: VecDeque<(u32, Arc<Sleeper>)>,
}

/// The threads that wait for futexes with owners, by address.
#[derive(Default)]
pub(crate) struct Lines(SpinLock<BTreeMap<u64, Line>>);

impl Lines {
    pub(crate) const fn new() -> Self {
        Self(SpinLock::new(BTreeMap::new()))
    }

    /// Makes thread `own` the owner of a futex that has none (`None`), or lets it wait in line.
    ///
    /// # Errors
    /// EDEADLK: it is the owner. ESRCH: the owner has ended. EAGAIN: it has one, and `waits` is
    /// not set. EFAULT.
    pub(crate) fn acquire(
        &self,
        (address, word): (u64, &impl Word),
        own: u32,
        is_thread: impl Fn(u32) -> bool,
        waits: bool,
    ) -> Result<Option<Arc<Sleeper>>> {
        let mut lines = self.0.lock();
        let has_line = lines.contains_key(&address);
        let mut held = word.exchange(0, 0)?;
        let owner = loop {
            let owner = held & TID_MASK;
            let is_free = held == 0 || owner == 0 && !has_line;
            let wanted = match owner {
                // Who takes what a thread left behind learns of it.
                _ if is_free => held | own,
                _ if owner == own => return Err(Errno::EDEADLK),
                1.. if !has_line && !is_thread(owner) => return Err(Errno::ESRCH),
                _ if !waits => return Err(Errno::EAGAIN),
                _ => held | WAITERS,
            };
            match word.exchange(held, wanted)? {
                found if found != held => held = found,
                _ if is_free => return Ok(None),
                _ => break owner,
            }
        };
        let sleeper = Sleeper::new(u32::MAX);
        let line = lines.entry(address).or_insert(Line {
            owner,
            waiting: VecDeque::new(),
        });
        line.waiting.push_back((own, sleeper.clone()));
        Ok(Some(sleeper))
    }

    /// Takes a thread away that has waited long enough. It is the owner if it is woken.
    pub(crate) fn leave(&self, address: u64, sleeper: &Arc<Sleeper>) {
        let mut lines = self.0.lock();
        if let Some(line) = lines.get_mut(&address) {
            line.waiting
                .retain(|(_, other)| !Arc::ptr_eq(other, sleeper));
            if line.waiting.is_empty() {
                lines.remove(&address);
            }
        }
    }

    /// Makes the first in line the owner of what `own` holds, or no one if none waits; `mark` is
    /// [`OWNER_DIED`] or 0.
    ///
    /// # Errors
    /// EPERM: another is the owner. EFAULT.
    pub(crate) fn hand_over(
        &self,
        (address, word): (u64, &impl Word),
        own: u32,
        mark: u32,
    ) -> Result<()> {
        let mut lines = self.0.lock();
        pass_on(&mut lines, (address, word), mark, |owner| owner == own)
    }

    /// The same of all that threads wait for and that `own`, which ends, held. `word_at` gives the
    /// word at an address.
    pub(crate) fn release<W: Word>(&self, own: u32, word_at: impl Fn(u64) -> W) {
        let mut lines = self.0.lock();
        let held = lines.iter().filter(|(_, line)| line.owner == own);
        let addresses: Vec<u64> = held.map(|(address, _)| *address).collect();
        for address in addresses {
            let word = word_at(address);
            if pass_on(&mut lines, (address, &word), OWNER_DIED, |_| true).is_err() {
                // Its memory is gone: no one can have it.
                lines.remove(&address);
            }
        }
    }
}

fn pass_on(
    lines: &mut BTreeMap<u64, Line>,
    (address, word): (u64, &impl Word),
    mark: u32,
    may: impl Fn(u32) -> bool,
) -> Result<()> {
    let line = lines.get_mut(&address);
    let next = line.as_ref().and_then(|line| line.waiting.front());
    let next = next.map_or(0, |(number, _)| *number);
    let more = match line.as_ref().map_or(0, |line| line.waiting.len()) {
        0 | 1 => 0,
        _ => WAITERS,
    };
    let wanted = mark | next | more;
    let mut held = word.exchange(0, 0)?;
    loop {
        if !may(held & TID_MASK) {
            return Err(Errno::EPERM);
        }
        match word.exchange(held, wanted)? {
            found if found == held => break,
            found => held = found,
        }
    }
    if let Some(line) = line {
        line.owner = next;
        if let Some((_, sleeper)) = line.waiting.pop_front() {
            sleeper.wake();
        }
        if line.waiting.is_empty() {
            lines.remove(&address);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    struct Memory(Cell<u32>);

    impl Word for Memory {
        fn exchange(&self, expected: u32, new: u32) -> Result<u32> {
            let held = self.0.get();
            if held == expected {
                self.0.set(new);
            }
            Ok(held)
        }
    }

    const AT: u64 = 64;

    fn acquire(lines: &Lines, word: &Memory, own: u32) -> Result<Option<Arc<Sleeper>>> {
        lines.acquire((AT, word), own, |number| number < 9, true)
    }

    #[test]
    fn a_futex_goes_from_owner_to_owner_in_order() {
        let (lines, word) = (Lines::new(), Memory(Cell::new(0)));
        assert!(acquire(&lines, &word, 1).expect("taken").is_none());
        assert_eq!(word.0.get(), 1);
        let two = acquire(&lines, &word, 2).expect("in line").expect("waits");
        assert_eq!(word.0.get(), 1 | WAITERS);
        let three = acquire(&lines, &word, 3).expect("in line").expect("waits");
        assert_eq!(lines.hand_over((AT, &word), 2, 0), Err(Errno::EPERM));
        assert_eq!(lines.hand_over((AT, &word), 1, 0), Ok(()));
        assert_eq!(word.0.get(), 2 | WAITERS);
        assert!(two.is_woken() && !three.is_woken());
        assert_eq!(lines.hand_over((AT, &word), 2, OWNER_DIED), Ok(()));
        assert_eq!(word.0.get(), 3 | OWNER_DIED);
        assert!(three.is_woken() && lines.0.lock().is_empty());
        assert_eq!(lines.hand_over((AT, &word), 3, 0), Ok(()));
        assert_eq!(word.0.get(), 0);
    }

    #[test]
    fn who_cannot_get_it_is_told_why() {
        let (lines, word) = (Lines::new(), Memory(Cell::new(4)));
        let get = |own, waits| lines.acquire((AT, &word), own, |number| number < 9, waits);
        assert_eq!(get(4, true).err(), Some(Errno::EDEADLK));
        assert_eq!(get(5, false).err(), Some(Errno::EAGAIN));
        word.0.set(77);
        assert_eq!(get(5, true).err(), Some(Errno::ESRCH));
        assert!(lines.0.lock().is_empty());
    }

    #[test]
    fn what_a_thread_left_behind_says_so() {
        let (lines, word) = (Lines::new(), Memory(Cell::new(OWNER_DIED)));
        assert!(acquire(&lines, &word, 5).expect("taken").is_none());
        assert_eq!(word.0.get(), OWNER_DIED | 5);
    }

    #[test]
    fn a_thread_that_ends_hands_over_what_its_word_has_lost() {
        let (lines, word) = (Lines::new(), Memory(Cell::new(1)));
        let two = acquire(&lines, &word, 2).expect("in line").expect("waits");
        word.0.set(OWNER_DIED);
        let three = acquire(&lines, &word, 3).expect("in line").expect("waits");
        lines.release(7, |_| Memory(Cell::new(0)));
        assert!(!two.is_woken());
        struct Same<'a>(&'a Memory);
        impl Word for Same<'_> {
            fn exchange(&self, expected: u32, new: u32) -> Result<u32> {
                self.0.exchange(expected, new)
            }
        }
        lines.release(1, |_| Same(&word));
        assert!(two.is_woken() && !three.is_woken());
        assert_eq!(word.0.get(), OWNER_DIED | WAITERS | 2);
    }

    #[test]
    fn who_leaves_the_line_gets_nothing() {
        let (lines, word) = (Lines::new(), Memory(Cell::new(1)));
        let two = acquire(&lines, &word, 2).expect("in line").expect("waits");
        lines.leave(AT, &two);
        assert_eq!(lines.hand_over((AT, &word), 1, 0), Ok(()));
        assert!(!two.is_woken());
        assert_eq!(word.0.get(), 0);
    }
}
