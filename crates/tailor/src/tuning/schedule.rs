//! How many boots of what fit into a budget.

/// Boots in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Candidates that are screened; the others of the list do not fit.
    pub candidates: usize,
    /// Blocks of each round of screening, after which half of the candidates stay.
    pub screened: usize,
    /// Most candidates that are tested.
    pub finalists: usize,
    /// Blocks of the test, if no more time is left.
    pub tested: usize,
    /// Blocks of the confirmation, likewise.
    pub confirmed: usize,
}

/// Fewest blocks that can tell a combination from the default: 2 of 2^6 signs are 3 %.
pub const LEAST_CONFIRMED: usize = 6;

/// From the shortest to the longest, without the number of candidates: (screened, finalists,
/// tested, confirmed). The test of `f` finalists needs n blocks with f * 2 / 2^n <= 5 %.
const LEVELS: &[(usize, usize, usize, usize)] = &[
    (1, 2, 7, 6),
    (2, 3, 8, 8),
    (2, 4, 10, 10),
    (3, 4, 14, 12),
    (4, 5, 18, 16),
    (6, 6, 24, 20),
    (8, 6, 36, 30),
];

impl Schedule {
    /// The longest that fits into this many boots; of a level that does not fit with all
    /// candidates the first ones of the list. `None` for fewer boots than any takes.
    pub fn fitting(boots: usize, candidates: usize) -> Option<Self> {
        if candidates == 0 {
            return None;
        }
        let fits = |of: &Self| of.boots() <= boots;
        let mut levels = LEVELS.iter().rev();
        let whole = levels.find_map(|level| Some(Self::of(*level, candidates)).filter(fits));
        whole.or_else(|| {
            let fewer = (1..candidates).rev();
            let mut fewer = fewer.map(|count| Self::of(LEVELS[0], count));
            fewer.find(fits)
        })
    }

    /// Fewest boots of any schedule.
    pub fn least() -> usize {
        Self::of(LEVELS[0], 1).boots()
    }

    fn of(level: (usize, usize, usize, usize), candidates: usize) -> Self {
        let (screened, finalists, tested, confirmed) = level;
        Self {
            candidates,
            screened,
            finalists: finalists.min(candidates),
            tested,
            confirmed,
        }
    }

    /// How many candidates each round of screening boots.
    pub fn rounds(&self) -> Vec<usize> {
        let mut rounds = Vec::new();
        let mut left = self.candidates;
        while left > self.finalists {
            rounds.push(left);
            left = self.kept(left);
        }
        rounds
    }

    /// How many of `left` candidates a round keeps.
    pub fn kept(&self, left: usize) -> usize {
        left.div_ceil(2).max(self.finalists)
    }

    /// Boots in all: each block has the default too, each of the test also a control, and the
    /// first boot of all is thrown away.
    pub fn boots(&self) -> usize {
        let of_round = |count: &usize| self.screened * (count + 1);
        let screening: usize = self.rounds().iter().map(of_round).sum();
        1 + screening + self.tested * (self.finalists + 2) + self.confirmed * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_boots_give_more_blocks_and_never_more_than_they_are() {
        let mut before = 0;
        for boots in 0..2000 {
            let Some(schedule) = Schedule::fitting(boots, 24) else {
                assert!(boots < Schedule::least());
                continue;
            };
            assert!(schedule.boots() <= boots, "{schedule:?}");
            assert!(schedule.boots() >= before, "{boots}: {schedule:?}");
            before = schedule.boots();
        }
        assert_eq!(Schedule::fitting(2000, 24).unwrap().screened, 8);
    }

    #[test]
    fn rounds_halve_the_candidates_down_to_the_finalists() {
        let schedule = Schedule::of((2, 3, 8, 8), 24);
        assert_eq!(schedule.rounds(), [24, 12, 6]);
        assert_eq!(schedule.boots(), 1 + 2 * (25 + 13 + 7) + 8 * 5 + 16);
        assert_eq!(Schedule::of((2, 3, 8, 8), 3).rounds(), [0; 0]);
    }

    #[test]
    fn too_few_boots_for_all_candidates_take_the_first_ones() {
        let few = Schedule::fitting(80, 24).unwrap();
        assert!(few.candidates < 24, "{few:?}");
        assert_eq!(Schedule::fitting(Schedule::least() - 1, 24), None);
        assert_eq!(Schedule::fitting(1000, 0), None);
    }

    #[test]
    fn each_test_has_blocks_enough_to_pass_after_holms_adjustment() {
        for (_, finalists, tested, confirmed) in LEVELS {
            let least = 2.0 / 2f64.powi(i32::try_from(*tested).unwrap());
            assert!(least * *finalists as f64 <= 0.05);
            assert!(*confirmed >= LEAST_CONFIRMED);
        }
    }
}
