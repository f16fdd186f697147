//! The delivery ratio R: the table of an epoch, and the two counters that turn
//! a fraction into decisions.

use super::{Decision, Parameters, SettingsError};

/// Slots of a distribution of R, see [`Ratio::slot`].
pub const RATIO_SLOTS: usize = 36;

/// Longest cycle: no queue has more entries.
const LONGEST_CYCLE: u32 = 32_768;

/// `count_up` of `skip_up` completions are delivered; in the table's last row some
/// cycles are one completion longer, such that it is 8 of CIF for every CIF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    count_up: u32,
    skip_up: u32,
    /// `longer` of each `of_cycles` cycles are one completion longer.
    longer: u32,
    of_cycles: u32,
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
        Self {
            count_up,
            skip_up,
            longer: 0,
            of_cycles: 1,
        }
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
            Self {
                count_up: 1,
                skip_up: cif / (row * 2),
                longer: cif % (row * 2),
                of_cycles: row * 2,
            }
        };
        table.with_run_of_at_most(iops.saturating_mul(parameters.longest_hold_ns) / 1_000_000_000)
    }

    fn with_run_of_at_most(self, completions: u64) -> Self {
        let run = u64::from(self.skip_up - self.count_up) + u64::from(self.longer > 0);
        if run <= completions {
            return self;
        }
        // Only rows with countUp 1 have runs longer than one.
        let skip_up = u32::try_from(completions).map_or(self.skip_up, |run| run + 1);
        Self::of(1, skip_up)
    }

    /// One of this many completions is delivered at least, two or more.
    pub(super) fn with_cycle_of_at_most(self, completions: u32) -> Self {
        if self.count_up > 1 || self.skip_up <= completions {
            return self;
        }
        Self::of(1, completions)
    }

    /// Completions delivered of each cycle.
    pub const fn count_up(self) -> u32 {
        self.count_up
    }

    /// Completions of a cycle, the longer ones' last left out.
    pub const fn skip_up(self) -> u32 {
        self.skip_up
    }

    /// R in thousandths, rounded to nearest.
    pub const fn permille(self) -> u32 {
        let completions = self.skip_up as u64 * self.of_cycles as u64 + self.longer as u64;
        let delivered = self.count_up as u64 * self.of_cycles as u64;
        ((delivered * 1000 + completions / 2) / completions) as u32
    }

    /// The slot of R in a distribution, from all delivered to few: 1, 4/5, 3/4,
    /// 2/3, 1/2, 1/3 and so on to 1/32, and the last for less. A ratio of the last
    /// row goes to the nearest slot, others to the nearest that is not smaller.
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
            let cycle = skip / count + (self.longer * 2 >= self.of_cycles) as u32;
            let slot = if cycle < 2 { 4 } else { cycle as usize + 2 };
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
    /// Completions of this cycle.
    skip_up: u32,
    /// What has come together for a longer one.
    owed: u32,
}

impl Cycle {
    pub(super) const fn new(ratio: Ratio) -> Self {
        Self {
            ratio,
            counter: 1,
            skip_up: ratio.skip_up,
            owed: 0,
        }
    }

    /// The decision of vIC 2011 for one completion.
    pub(super) fn step(&mut self) -> Decision {
        if self.counter < self.ratio.count_up {
            self.counter += 1;
            Decision::Deliver
        } else if self.counter >= self.skip_up {
            self.counter = 1;
            self.choose_length();
            Decision::Deliver
        } else {
            self.counter += 1;
            Decision::Hold
        }
    }

    /// Of the next cycle, so that the fraction is exact over all.
    fn choose_length(&mut self) {
        self.owed += self.ratio.longer;
        self.skip_up = self.ratio.skip_up;
        if self.owed >= self.ratio.of_cycles {
            self.owed -= self.ratio.of_cycles;
            self.skip_up += 1;
        }
    }

    /// The cycle begins anew.
    pub(super) fn restart(&mut self) {
        self.counter = 1;
    }
}
