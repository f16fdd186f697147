//! Futexes (`futex(2)`): threads that wait at an address.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use tare_libos::sync::SpinLock;
use tare_libos::thread::{self, Thread as Waiter};

/// A thread that waits.
pub(crate) struct Sleeper {
    waiter: Waiter,
    bits: u32,
    woken: AtomicBool,
}

impl Sleeper {
    /// This thread, which is about to wait for one of `bits`.
    pub(crate) fn new(bits: u32) -> Arc<Self> {
        Arc::new(Self {
            waiter: thread::current(),
            bits,
            woken: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    pub(crate) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.waiter.unpark();
    }
}

/// The threads that wait, by address.
#[derive(Default)]
pub(crate) struct Futexes(SpinLock<BTreeMap<u64, VecDeque<Arc<Sleeper>>>>);

impl Futexes {
    pub(crate) const fn new() -> Self {
        Self(SpinLock::new(BTreeMap::new()))
    }

    /// Adds this thread at `address` if `may_sleep`, called under the lock, says so.
    pub(crate) fn sleep<E>(
        &self,
        address: u64,
        bits: u32,
        may_sleep: impl FnOnce() -> Result<(), E>,
    ) -> Result<Arc<Sleeper>, E> {
        let mut all = self.0.lock();
        may_sleep()?;
        let sleeper = Sleeper::new(bits);
        all.entry(address).or_default().push_back(sleeper.clone());
        Ok(sleeper)
    }

    /// Takes a thread away that has waited long enough.
    pub(crate) fn leave(&self, sleeper: &Arc<Sleeper>) {
        let mut all = self.0.lock();
        all.retain(|_, sleepers| {
            sleepers.retain(|other| !Arc::ptr_eq(other, sleeper));
            !sleepers.is_empty()
        });
    }

    /// Wakes up to `most` threads that wait for one of `bits`; gives how many.
    pub(crate) fn wake(&self, address: u64, most: usize, bits: u32) -> usize {
        let mut all = self.0.lock();
        let Some(sleepers) = all.get_mut(&address) else {
            return 0;
        };
        let mut woken = 0;
        sleepers.retain(|sleeper| {
            let wakes = woken < most && sleeper.bits & bits != 0;
            if wakes {
                sleeper.wake();
                woken += 1;
            }
            !wakes
        });
        if sleepers.is_empty() {
            all.remove(&address);
        }
        woken
    }

    /// Wakes up to `wakes` threads and moves up to `moves` others to another address;
    /// gives how many both are. `may_act` is called under the lock.
    pub(crate) fn requeue<E>(
        &self,
        from: u64,
        to: u64,
        (wakes, moves): (usize, usize),
        may_act: impl FnOnce() -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut all = self.0.lock();
        may_act()?;
        let mut sleepers = all.remove(&from).unwrap_or_default();
        let woken = wakes.min(sleepers.len());
        sleepers.drain(..woken).for_each(|sleeper| sleeper.wake());
        let moved = moves.min(sleepers.len());
        let rest = sleepers.split_off(moved);
        all.entry(to).or_default().append(&mut sleepers);
        if !rest.is_empty() {
            all.entry(from).or_default().extend(rest);
        }
        all.retain(|_, sleepers| !sleepers.is_empty());
        Ok(woken + moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(futexes: &Futexes, address: u64, bits: u32) -> Arc<Sleeper> {
        futexes
            .sleep::<()>(address, bits, || Ok(()))
            .expect("asleep")
    }

    #[test]
    fn threads_wake_in_order_and_by_their_bits() {
        let futexes = Futexes::new();
        let one = sleep(&futexes, 8, 1);
        let two = sleep(&futexes, 8, 2);
        let other = sleep(&futexes, 16, u32::MAX);
        assert_eq!(futexes.wake(8, 9, 2), 1);
        assert!(two.is_woken() && !one.is_woken() && !other.is_woken());
        assert_eq!(futexes.wake(8, 9, u32::MAX), 1);
        assert_eq!(futexes.wake(8, 9, u32::MAX), 0);
    }

    #[test]
    fn a_requeue_wakes_some_and_moves_others() {
        let futexes = Futexes::new();
        let all: alloc::vec::Vec<_> = (0..4).map(|_| sleep(&futexes, 8, u32::MAX)).collect();
        assert_eq!(futexes.requeue::<()>(8, 16, (1, 2), || Ok(())), Ok(3));
        assert_eq!(futexes.wake(16, 9, u32::MAX), 2);
        let woken = all.iter().filter(|sleeper| sleeper.is_woken()).count();
        assert_eq!(woken, 3);
        futexes.leave(&all[3]);
        assert_eq!(futexes.wake(8, 9, u32::MAX), 0);
    }
}
