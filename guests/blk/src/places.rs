//! Where the next command goes, and what it is: a few instructions each.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::job::Order;

/// Random numbers of a thread: xorshift64 (Marsaglia, 2003).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Those of thread `thread` of a run with that seed.
    pub fn new(seed: u64, thread: u64) -> Self {
        let mixed = (seed ^ thread << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(mixed | 1)
    }

    /// The next.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// One below `bound`, without a division.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// The blocks of a run, for all its threads.
#[derive(Debug)]
pub struct Places {
    /// How many there are.
    pub blocks: u64,
    order: Order,
    cursor: AtomicU64,
}

impl Places {
    /// This many blocks in that order.
    pub fn new(blocks: u64, order: Order) -> Self {
        Self {
            blocks,
            order,
            cursor: AtomicU64::new(0),
        }
    }

    /// The block that comes next.
    #[inline]
    pub fn next(&self, random: &mut Random) -> u64 {
        match self.order {
            Order::Random => random.below(self.blocks),
            Order::Sequential => {
                let block = self.cursor.fetch_add(1, Ordering::Relaxed);
                if block < self.blocks {
                    return block;
                }
                block % self.blocks
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_blocks_cover_all_and_stay_below() {
        let places = Places::new(10, Order::Random);
        let mut random = Random::new(1, 3);
        let mut seen = [0; 10];
        (0..10_000).for_each(|_| seen[places.next(&mut random) as usize] += 1);
        assert!(
            seen.iter().all(|count| (800..1200).contains(count)),
            "{seen:?}"
        );
    }

    #[test]
    fn sequential_blocks_begin_anew_at_the_end() {
        let places = Places::new(3, Order::Sequential);
        let mut random = Random::new(1, 0);
        let taken: Vec<_> = (0..7).map(|_| places.next(&mut random)).collect();
        assert_eq!(taken, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn threads_have_numbers_of_their_own() {
        let first = |thread| Random::new(1, thread).next_u64();
        assert_ne!(first(0), first(1));
        assert_ne!(Random::new(2, 0).next_u64(), first(0));
    }
}
