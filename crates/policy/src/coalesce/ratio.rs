//! The delivery ratio R: the table of an epoch, and the two counters that turn
//! a fraction into decisions.

use super::{Decision, Parameters, SettingsError};

/// Slots of a distribution of R, see [`Ratio::slot`].
pub const RATIO_SLOTS: usize = 36;

/// Longest cycle: no queue has more entries.
const LONGEST_CYCLE: u32 = 32_768;

/// `count_up` of `skip_up` completions are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    count_up: u32,
    skip_up: u32,
}

impl Ratio {
    /// Every completion is delivered.
    pub const ONE: Self = Self::of(1, 1);

    /// `count_up` of `skip_up` completions; 1 <= `count_up` <= `skip_up` <= 32768.
    pub const fn new(count_up: u32, skip_up: u32) -> Result<Self, SettingsError> {
        if count_up == 0 || count_up > skip_up || skip_up > LONGEST_CYCLE {
            return Err(SettingsError::Ratio(count_up, skip_up));
        }
        Ok(Self::of(count_up, skip_up))
    }

    const fn of(count_up: u32, skip_up: u32) -> Self {
        Self { count_up, skip_up }
    }

    /// The table: what suits `cif` commands in flight at `iops` completions per
    /// second. Runs of held completions that would outlast the longest hold at
    /// this rate are made shorter, so that it is not a timer that ends them.
    pub(super) fn choose(cif: u32, iops: u64, parameters: &Parameters) -> Self {
        let row = parameters.cif_threshold;
        if iops < u64::from(parameters.iops_threshold) || cif < row {
            return Self::ONE;
        }
        let table = if cif < row * 2 {
            Self::of(4, 5)
        } else if cif < row * 3 {
            Self::of(3, 4)
        } else if cif < row * 4 {
            Self::of(2, 3)
        } else {
            Self::of(1, cif / (row * 2))
        };
        table.with_run_of_at_most(iops.saturating_mul(parameters.longest_hold_ns) / 1_000_000_000)
    }

    fn with_run_of_at_most(self, completions: u64) -> Self {
        let run = u64::from(self.skip_up - self.count_up);
        if run <= completions {
            return self;
        }
        // Only rows with countUp 1 have runs longer than one.
        let skip_up = u32::try_from(completions).map_or(self.skip_up, |run| run + 1);
        Self::of(1, skip_up)
    }

    /// Completions delivered of each cycle.
    pub const fn count_up(self) -> u32 {
        self.count_up
    }

    /// Completions of a cycle.
    pub const fn skip_up(self) -> u32 {
        self.skip_up
    }

    /// R in thousandths, rounded to nearest.
    pub const fn permille(self) -> u32 {
        (self.count_up * 1000 + self.skip_up / 2) / self.skip_up
    }

    /// The slot of R in a distribution, from all delivered to few: 1, 4/5, 3/4,
    /// 2/3, 1/2, 1/3 and so on to 1/32, and the last for less. Other ratios go
    /// to the nearest slot that is not smaller.
    #[inline(never)]
    pub const fn slot(self) -> usize {
        let (count, skip) = (self.count_up, self.skip_up);
        if count == skip {
            0
        } else if count * 5 >= skip * 4 {
            1
        } else if count * 4 >= skip * 3 {
            2
        } else if count * 3 >= skip * 2 {
            3
        } else {
            let halves = skip / count;
            let slot = if halves < 2 { 4 } else { halves as usize + 2 };
            if slot < RATIO_SLOTS {
                slot
            } else {
                RATIO_SLOTS - 1
            }
        }
    }

    /// The ratio that a slot stands for; `None` beyond the last.
    pub const fn of_slot(slot: usize) -> Option<Self> {
        Some(match slot {
            0 => Self::ONE,
            1 => Self::of(4, 5),
            2 => Self::of(3, 4),
            3 => Self::of(2, 3),
            4..RATIO_SLOTS => Self::of(1, slot as u32 - 2),
            _ => return None,
        })
    }
}

/// Where a queue is in its ratio's cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycle {
    pub(super) ratio: Ratio,
    counter: u32,
}

impl Cycle {
    pub(super) const fn new(ratio: Ratio) -> Self {
        Self { ratio, counter: 1 }
    }

    /// The talk's decision for one completion.
    pub(super) fn step(&mut self) -> Decision {
        if self.counter < self.ratio.count_up {
            self.counter += 1;
            Decision::Deliver
        } else if self.counter >= self.ratio.skip_up {
            self.counter = 1;
            Decision::Deliver
        } else {
            self.counter += 1;
            Decision::Hold
        }
    }

    /// The cycle begins anew.
    pub(super) fn restart(&mut self) {
        self.counter = 1;
    }

    /// A completion that is delivered in any case takes its turn: where the
    /// cycle would have held, it begins anew.
    pub(super) fn deliver(&mut self) {
        if self.step() == Decision::Hold {
            self.restart();
        }
    }
}
