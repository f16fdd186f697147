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

impl Cell {
    /// Whether others are compared with it: the bare machine, left to the scheduler.
    pub(crate) fn is_baseline(&self) -> bool {
        let Place { platform, mode, .. } = self.place;
        (platform, mode, self.arm) == (Platform::Bare, Mode::Vanilla, Arm::Main)
    }
}

/// When a run's turn is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Round, from 0.
    pub(crate) round: u32,
    /// When its block began, ms since 1970.
    pub(crate) block: u64,
}

/// Everything for these workloads, platforms and sizes, of one part of all.
pub(crate) fn cells(
    workloads: &[String],
    platforms: &[Platform],
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
    ours.flat_map(|(_, (workload, size))| of(workload, platforms, size, host_cpus))
        .collect()
}

fn of(workload: &str, platforms: &[Platform], size: u32, host_cpus: u32) -> Vec<Cell> {
    let cell = |place, arm| Cell {
        workload: workload.to_owned(),
        place,
        arm,
    };
    let mut cells = Vec::new();
    for platform in platforms {
        for mode in [Mode::Vanilla, Mode::Pinned] {
            let place = Place::new(*platform, mode, size, host_cpus);
            cells.push(cell(place, Arm::Main));
        }
    }
    if !platforms.contains(&Platform::Bare) {
        return cells;
    }
    let baseline = Place::new(Platform::Bare, Mode::Vanilla, size, host_cpus);
    cells.push(cell(baseline, Arm::Control));
    if size == host_cpus {
        cells.push(cell(baseline, Arm::Unobserved));
    }
    cells
}

/// What runs one after the other, so that it can be compared in pairs: the runs of a
/// workload and size on the host with their baseline, and those of each kind of machine,
/// vanilla and pinned, with that baseline too, since hours lie between the first machine and
/// the last.
pub(crate) fn blocks(cells: &[Cell]) -> Vec<Vec<Cell>> {
    let machine = |cell: &Cell| Some(cell.place.platform).filter(|it| it.has_linux_guest());
    let same = |a: &Cell, b: &Cell| a.workload == b.workload && a.place.size == b.place.size;
    let mut blocks: Vec<(Option<Platform>, Vec<Cell>)> = Vec::new();
    for cell in cells {
        let kind = machine(cell);
        let mut like = blocks
            .iter_mut()
            .filter(|(of, block)| *of == kind && block.iter().all(|other| same(other, cell)));
        if let Some((_, block)) = like.next() {
            block.push(cell.clone());
            continue;
        }
        let mut baselines = cells
            .iter()
            .filter(|other| kind.is_some() && other.is_baseline() && same(other, cell));
        let baseline = baselines.next().cloned();
        blocks.push((kind, baseline.into_iter().chain([cell.clone()]).collect()));
    }
    blocks.into_iter().map(|(_, block)| block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["a".to_owned(), "b".to_owned()]
    }

    #[test]
    fn every_platform_is_vanilla_and_pinned_with_a_control() {
        let cells = cells(&names()[..1], &Platform::ALL, &[1, 2], 2, None);
        let main = cells.iter().filter(|c| c.arm == Arm::Main).count();
        assert_eq!((main, cells.len()), (20, 23));
        let names: Vec<String> = cells.iter().map(|c| c.place.to_string()).collect();
        assert!(
            names.contains(&"container.vanilla.1q".to_owned()),
            "{names:?}"
        );
    }

    #[test]
    fn only_the_platforms_that_are_wanted_run() {
        let wanted = [Platform::Bare, Platform::Vm];
        let both = cells(&names()[..1], &wanted, &[1, 2], 2, None);
        assert!(both.iter().all(|c| wanted.contains(&c.place.platform)));
        let main = both.iter().filter(|c| c.arm == Arm::Main).count();
        assert_eq!((main, both.len()), (8, 11));
        // What is to equal the bare machine runs beside it or not at all.
        let one = cells(&names()[..1], &wanted[1..], &[1, 2], 2, None);
        assert!(one.iter().all(|c| c.arm == Arm::Main), "{one:?}");
        assert_eq!(one.len(), 4);
    }

    #[test]
    fn parts_are_disjoint_and_keep_baselines() {
        let all = cells(&names(), &Platform::ALL, &[1, 2], 2, None);
        let parts: Vec<Vec<Cell>> = (1..=3)
            .map(|i| cells(&names(), &Platform::ALL, &[1, 2], 2, Some((i, 3))))
            .collect();
        let mut together: Vec<Cell> = parts.concat();
        together.sort();
        let mut sorted = all;
        sorted.sort();
        assert_eq!(together, sorted);
        for part in parts {
            let controls = part.iter().filter(|c| c.arm == Arm::Control).count();
            assert_eq!(
                controls * 10,
                part.iter().filter(|c| c.arm == Arm::Main).count()
            );
        }
    }

    #[test]
    fn a_baseline_runs_beside_all_that_is_compared_with_it() {
        let cells = cells(&names(), &Platform::ALL, &[1, 2], 2, None);
        let blocks = blocks(&cells);
        // For each workload and size: one on the host, and two kinds of machines.
        assert_eq!(blocks.len(), 2 * 2 * 3);
        for block in &blocks {
            let baselines = block.iter().filter(|cell| cell.is_baseline()).count();
            assert_eq!(baselines, 1, "{block:?}");
            let machines = block
                .iter()
                .filter(|c| c.place.platform.has_linux_guest())
                .count();
            match machines {
                0 => assert_eq!(block.len() as u32, 6 + block[0].place.size, "{block:?}"),
                // Vanilla and pinned, which are compared with each other.
                _ => assert_eq!((machines, block.len()), (2, 3), "{block:?}"),
            }
        }
        for cell in &cells {
            let of_it = blocks.iter().filter(|block| block.contains(cell)).count();
            let is_base = cell.is_baseline();
            assert_eq!(of_it, if is_base { 3 } else { 1 }, "{cell:?}");
        }
    }
}
