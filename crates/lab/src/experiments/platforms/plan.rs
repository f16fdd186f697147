//! Which runs there are, and in which order.

use serde::{Deserialize, Serialize};
use tare_platform::{Mode, Place, Platform};

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Arm {
    /// To be compared.
    Main,
    /// The same once more: must come out equal.
    Control,
    /// The same without the observer: what observing costs.
    Unobserved,
}

/// One kind of run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) workload: String,
    pub(crate) place: Place,
    pub(crate) arm: Arm,
}

/// Everything for these workloads and sizes, of one part of all.
pub(super) fn cells(
    workloads: &[String],
    sizes: &[u32],
    host_cpus: u32,
    shard: Option<(u32, u32)>,
) -> Vec<Cell> {
    let pairs = workloads
        .iter()
        .flat_map(|w| sizes.iter().map(move |s| (w, *s)));
    let (index, count) = shard.unwrap_or((1, 1));
    // A baseline and what is compared with it stay together.
    let ours = |n: &usize| *n as u32 % count == index - 1;
    let ours = pairs.enumerate().filter(|(n, _)| ours(n));
    ours.flat_map(|(_, (workload, size))| of(workload, size, host_cpus))
        .collect()
}

fn of(workload: &str, size: u32, host_cpus: u32) -> Vec<Cell> {
    let cell = |place, arm| Cell {
        workload: workload.to_owned(),
        place,
        arm,
    };
    let mut cells = Vec::new();
    for platform in Platform::ALL {
        for mode in [Mode::Vanilla, Mode::Pinned] {
            cells.push(cell(Place::new(platform, mode, size, host_cpus), Arm::Main));
        }
    }
    let baseline = Place::new(Platform::Bare, Mode::Vanilla, size, host_cpus);
    cells.push(cell(baseline, Arm::Control));
    if size == host_cpus {
        cells.push(cell(baseline, Arm::Unobserved));
    }
    cells
}

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// A random order (Fisher and Yates).
    pub(super) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            let other = self.below(last + 1);
            all.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["a".to_owned(), "b".to_owned()]
    }

    #[test]
    fn every_platform_is_vanilla_and_pinned_with_a_control() {
        let cells = cells(&names()[..1], &[1, 2], 2, None);
        let main = cells.iter().filter(|c| c.arm == Arm::Main).count();
        assert_eq!((main, cells.len()), (16, 19));
        let names: Vec<String> = cells.iter().map(|c| c.place.to_string()).collect();
        assert!(
            names.contains(&"container.vanilla.1q".to_owned()),
            "{names:?}"
        );
    }

    #[test]
    fn parts_are_disjoint_and_keep_baselines() {
        let all = cells(&names(), &[1, 2], 2, None);
        let parts: Vec<Vec<Cell>> = (1..=3)
            .map(|i| cells(&names(), &[1, 2], 2, Some((i, 3))))
            .collect();
        let mut together: Vec<Cell> = parts.concat();
        together.sort();
        let mut sorted = all;
        sorted.sort();
        assert_eq!(together, sorted);
        for part in parts {
            let controls = part.iter().filter(|c| c.arm == Arm::Control).count();
            assert_eq!(
                controls * 8,
                part.iter().filter(|c| c.arm == Arm::Main).count()
            );
        }
    }

    #[test]
    fn a_seed_gives_one_order_with_each_once() {
        let order = |seed| {
            let mut all: Vec<usize> = (0..50).collect();
            Dice(seed).shuffle(&mut all);
            all
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
        let mut sorted = order(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}
