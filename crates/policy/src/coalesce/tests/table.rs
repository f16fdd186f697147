//! The published rule: ratios as in the table of vIC 2011.

use proptest::prelude::*;

use super::super::ratio::Cycle;
use super::*;

/// The table as it is written there.
fn by_table(cif: u32) -> (u32, u32) {
    match cif {
        0..4 => (1, 1),
        4..8 => (4, 5),
        8..12 => (3, 4),
        12..16 => (2, 3),
        _ => (1, cif / 8),
    }
}

fn pair(ratio: Ratio) -> (u32, u32) {
    (ratio.count_up(), ratio.skip_up())
}

#[test]
fn steady_load_gets_the_ratio_of_the_table_exactly() {
    for cif in 1..=256 {
        let mut steady = Loop::settled(short_epochs(), cif, 5 * US);
        let (count, skip) = by_table(cif);
        assert_eq!(pair(steady.coalescer.ratio()), (count, skip), "CIF {cif}");
        // Whole cycles from wherever in a cycle we are; eight of the last row,
        // since R is 8/CIF there whatever CIF is.
        let (completions, delivered) = match cif {
            0..16 => (skip * 60, count * 60),
            _ => (cif * 60, 8 * 60),
        };
        assert_eq!(steady.delivered(completions), delivered, "CIF {cif}");
    }
}

#[test]
fn interrupts_per_completion_are_at_most_8_per_cif_for_deep_queues() {
    for cif in 16..=256 {
        let mut steady = Loop::settled(short_epochs(), cif, 5 * US);
        while steady.turn() == Decision::Hold {}
        let delivered = steady.delivered(cif * 500);
        assert!(delivered <= 8 * 500, "CIF {cif}: {delivered}");
    }
}

#[test]
fn a_steady_load_is_never_released_by_anything_but_its_ratio() {
    for cif in 4..=256 {
        let mut steady = Loop::settled(short_epochs(), cif, 5 * US);
        while steady.turn() == Decision::Hold {}
        let before = *steady.coalescer.counters();
        steady.delivered(cif * 100);
        let counters = steady.coalescer.counters();
        assert!(counters.held > before.held, "CIF {cif}");
        // Where three are left in flight, the threshold agrees with the cycle.
        let expected = if cif == 4 {
            Cause::Shallow
        } else {
            Cause::Ratio
        };
        let of = |counters: &Counters| counters.released[expected as usize];
        assert_eq!(
            of(counters) - of(&before),
            counters.held - before.held - steady.coalescer.held(),
            "CIF {cif}"
        );
    }
}

#[test]
fn below_2000_completions_a_second_everything_is_delivered() {
    let mut slow = Loop::settled(Settings::default(), 32, 501 * US);
    assert_eq!(slow.coalescer.ratio(), Ratio::ONE);
    assert_eq!(slow.delivered(1000), 1000);
    let fast = Loop::settled(Settings::default(), 32, 499 * US);
    assert_ne!(fast.coalescer.ratio(), Ratio::ONE);
}

#[test]
fn the_rows_are_multiples_of_the_threshold() {
    let twice = settings(|p| p.cif_threshold = 8);
    for (cif, row) in [
        (7, (1, 1)),
        (8, (4, 5)),
        (16, (3, 4)),
        (24, (2, 3)),
        (64, (1, 4)),
    ] {
        let steady = Loop::settled(twice, cif, 5 * US);
        assert_eq!(pair(steady.coalescer.ratio()), row, "CIF {cif}");
    }
}

#[test]
fn the_ratio_is_chosen_at_the_end_of_the_second_epoch() {
    let mut steady = Loop::new(Settings::default(), 32, 5 * US);
    let start_ns = steady.now_ns + steady.gap_ns;
    while steady.now_ns + steady.gap_ns < start_ns + 400 * MS {
        assert_eq!(steady.turn(), Decision::Deliver);
    }
    assert_eq!(steady.coalescer.counters().epochs, 2);
    let _ = steady.turn();
    assert_eq!(steady.coalescer.counters().epochs, 3);
    assert_eq!(pair(steady.coalescer.ratio()), (1, 2));
}

#[test]
fn holds_grow_to_those_of_the_table() {
    let mut steady = Loop::new(Settings::default(), 64, 5 * US);
    let (mut cycles, mut changes, mut cycle) = ([0; 8], 0, 1);
    for _ in 0..600_000 {
        let _ = steady.turn();
        let next = steady.coalescer.ratio().skip_up();
        if next != cycle {
            (cycle, cycles[changes], changes) = (next, next, changes + 1);
        }
    }
    assert_eq!(cycles[..changes], [2, 4, 8]);
}

#[test]
fn one_of_two_is_half_and_one_of_one_is_all() {
    let mut half = Cycle::new(Ratio::new(1, 2).unwrap());
    let mut all = Cycle::new(Ratio::ONE);
    for turn in 0..20 {
        assert_eq!(half.step() == Decision::Deliver, turn % 2 == 1);
        assert_eq!(all.step(), Decision::Deliver);
    }
}

proptest! {
    #[test]
    fn a_cycle_delivers_count_up_of_skip_up(skip in 1..200u32, pick in any::<u32>(), cycles in 1..9u32) {
        let ratio = Ratio::new(pick % skip + 1, skip).unwrap();
        let mut cycle = Cycle::new(ratio);
        let delivered = (0..skip * cycles).filter(|_| cycle.step() == Decision::Deliver);
        prop_assert_eq!(delivered.count() as u32, ratio.count_up() * cycles);
    }

    #[test]
    fn no_load_makes_the_choice_exceed_the_table(cif in any::<u32>(), iops in any::<u64>()) {
        let ratio = Ratio::choose(cif, iops, &Parameters::default());
        let (count, skip) = by_table(cif);
        let table = u64::from(count) * u64::from(ratio.skip_up());
        prop_assert!(u64::from(ratio.count_up()) * u64::from(skip) >= table);
        prop_assert!(iops < 1_000_000 || cif > 7_900 || pair(ratio) == (count, skip));
        prop_assert!(iops >= 2_000 || ratio == Ratio::ONE);
    }
}

#[test]
fn each_ratio_of_the_table_has_its_slot() {
    for cif in 0..=264 {
        let (count, skip) = by_table(cif);
        let ratio = Ratio::new(count, skip).unwrap();
        let of_slot = Ratio::of_slot(ratio.slot()).unwrap();
        assert_eq!(pair(of_slot), (count, skip), "CIF {cif}");
    }
    assert_eq!(Ratio::new(1, 32_768).unwrap().slot(), RATIO_SLOTS - 1);
    assert_eq!(Ratio::of_slot(RATIO_SLOTS), None);
}

#[test]
fn a_ratio_between_two_slots_goes_to_the_nearer() {
    for (cif, permille, slot) in [(27, 296, 5), (28, 286, 6), (31, 258, 6), (55, 145, 9)] {
        let ratio = Ratio::choose(cif, 1_000_000, &Parameters::default());
        assert_eq!(
            (ratio.permille(), ratio.slot()),
            (permille, slot),
            "CIF {cif}"
        );
    }
}

#[test]
fn other_ratios_go_to_the_next_slot() {
    for (count, skip, slot) in [(9, 10, 1), (7, 10, 3), (3, 5, 4), (2, 7, 5), (99, 100, 1)] {
        assert_eq!(
            Ratio::new(count, skip).unwrap().slot(),
            slot,
            "{count}/{skip}"
        );
    }
}

#[test]
fn permille_rounds_to_nearest() {
    for (count, skip, permille) in [(1, 1, 1000), (2, 3, 667), (1, 8, 125), (1, 32_768, 0)] {
        assert_eq!(Ratio::new(count, skip).unwrap().permille(), permille);
    }
}
