//! In which order the arms of a block boot.
//!
//! What a boot measures may depend on its place in the block, or on the boot before it. Orders
//! that are drawn for each block alone leave that to chance: of ten blocks one arm may stand
//! behind another in eight, and the same seed repeats it in each search. So orders come from
//! Williams' design (*Experimental designs balanced for the estimation of residual effects of
//! treatments*, 1949), whose arms, rows and directions are drawn.

use tare_stats::SplitMix64;

/// Orders of blocks that follow each other.
#[derive(Debug)]
pub(super) struct Orders {
    random: SplitMix64,
    /// Of how many arms `left` is.
    arms: usize,
    /// What is left of the design, the last one first.
    left: Vec<Vec<usize>>,
}

impl Orders {
    /// The orders of a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: SplitMix64::new(seed),
            arms: 0,
            left: Vec::new(),
        }
    }

    /// The next block's. In each two blocks of as many arms every arm stands before every other
    /// once; in a whole design (`arms` blocks, twice as many if `arms` is odd) each stands
    /// equally often at each place, and equally often directly behind each other.
    pub(super) fn next(&mut self, arms: usize) -> Vec<usize> {
        if self.arms != arms || self.left.is_empty() {
            self.arms = arms;
            self.left = self.design(arms);
        }
        self.left.pop().unwrap_or_default()
    }

    fn design(&mut self, arms: usize) -> Vec<Vec<usize>> {
        let mut names: Vec<usize> = (0..arms).collect();
        self.random.shuffle(&mut names);
        // Of an even number the second half of the rows are the first ones reversed.
        let rows = if arms.is_multiple_of(2) {
            arms / 2
        } else {
            arms
        };
        let mut rows: Vec<usize> = (0..rows).collect();
        self.random.shuffle(&mut rows);
        let mut design = Vec::with_capacity(2 * rows.len());
        for row in rows {
            let place = |it: usize| names[(zigzag(it, arms) + row) % arms];
            let mut one: Vec<usize> = (0..arms).map(place).collect();
            let mut other: Vec<usize> = one.iter().rev().copied().collect();
            if self.random.below(2) == 1 {
                std::mem::swap(&mut one, &mut other);
            }
            design.extend([one, other]);
        }
        design
    }
}

/// 0, 1, n - 1, 2, n - 2, ...: neighbours have each distance once.
const fn zigzag(place: usize, arms: usize) -> usize {
    if place % 2 == 1 {
        place.div_ceil(2)
    } else {
        (arms - place / 2) % arms
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulation::normal;
    use super::*;
    use tare_stats::signed_rank;

    /// How often each arm stands at each place, and directly behind each other.
    fn counted(blocks: &[Vec<usize>], arms: usize) -> [Vec<Vec<usize>>; 2] {
        let [mut places, mut pairs] = [0, 1].map(|_| vec![vec![0; arms]; arms]);
        for order in blocks {
            for (place, arm) in order.iter().enumerate() {
                places[*arm][place] += 1;
            }
            for pair in order.windows(2) {
                pairs[pair[1]][pair[0]] += 1;
            }
        }
        [places, pairs]
    }

    #[test]
    fn each_arm_stands_as_often_at_each_place_and_behind_each_other() {
        for arms in 1..=9 {
            let mut orders = Orders::new(arms as u64);
            let times = 1 + arms % 2;
            let blocks: Vec<_> = (0..arms * times).map(|_| orders.next(arms)).collect();
            let [places, pairs] = counted(&blocks, arms);
            assert_eq!(places, vec![vec![times; arms]; arms]);
            for (arm, before) in pairs.iter().enumerate() {
                let expected = |other| if arm == other { 0 } else { times };
                let expected: Vec<usize> = (0..arms).map(expected).collect();
                assert_eq!(*before, expected, "{arm} of {arms}");
            }
            for two in blocks.chunks(2) {
                let reversed: Vec<usize> = two[1].iter().rev().copied().collect();
                assert_eq!(two[0], reversed);
            }
        }
        assert_eq!(Orders::new(1).next(0), [0; 0]);
    }

    #[test]
    fn a_seed_repeats_its_orders_and_others_have_others() {
        let drawn = |seed| {
            let mut orders = Orders::new(seed);
            [5, 5, 5, 4, 4, 2].map(|arms| orders.next(arms))
        };
        assert_eq!(drawn(1), drawn(1));
        let differing = (2..40).filter(|seed| drawn(1) != drawn(*seed)).count();
        assert_eq!(differing, 38);
        // The first arm, the default, stands at any place.
        let first = (0..300).filter(|seed| Orders::new(*seed).next(5)[0] == 0);
        assert!((40..=80).contains(&first.count()));
    }

    /// The share of searches in which the last arm of ten blocks differs from the first one at
    /// 5 %, where a place of a block adds its effect and each boot measures 0.2 % more or less.
    fn false_alarms(effects: [f64; 4], next: impl Fn(u64) -> Vec<Vec<usize>>) -> f64 {
        const SEARCHES: u64 = 1000;
        let mut random = SplitMix64::new(9);
        let differs = |search| {
            let gain = |order: &Vec<usize>| {
                let mut values = [0.0; 4];
                for (arm, effect) in order.iter().zip(effects) {
                    values[*arm] = effect + 0.002 * normal(&mut random);
                }
                values[3] - values[0]
            };
            let gains: Vec<f64> = next(search).iter().map(gain).collect();
            signed_rank(&gains).and_then(|test| test.p).unwrap_or(1.0) <= 0.05
        };
        let alarms = (0..SEARCHES).map(differs).filter(|it| *it).count();
        alarms as f64 / SEARCHES as f64
    }

    fn balanced(seed: u64) -> Vec<Vec<usize>> {
        let mut orders = Orders::new(seed);
        (0..10).map(|_| orders.next(4)).collect()
    }

    /// As it was: each block drawn alone.
    fn drawn(seed: u64) -> Vec<Vec<usize>> {
        let mut random = SplitMix64::new(seed);
        let block = |_| {
            let mut order: Vec<usize> = (0..4).collect();
            random.shuffle(&mut order);
            order
        };
        (0..10).map(block).collect()
    }

    #[test]
    fn an_effect_of_the_place_is_no_effect_of_an_arm() {
        // The second boot, and each boot more than the one before it.
        for effects in [[0.0, 0.005, 0.0, 0.0], [0.0, 0.0025, 0.005, 0.0075]] {
            let share = false_alarms(effects, balanced);
            println!("{effects:?}: balanced, a seed each: {share}");
            assert!(share <= 0.05, "{share}");
            // Were the seed always the same, as it was.
            let same = |orders: fn(u64) -> Vec<Vec<usize>>| {
                let shares = (0..20).map(|seed| false_alarms(effects, |_| orders(seed)));
                shares.fold(0.0, f64::max)
            };
            let (now, then) = (same(balanced), same(drawn));
            println!("  the worst of 20 seeds: {now}, of blocks drawn alone: {then}");
            assert!(now <= 0.05, "{now}");
            assert!(then > 0.2, "{then}");
        }
    }
}
