//! A window in stretches of equal openness, and what was counted in them.

use super::super::gate_words::{ALL, Words};
use super::super::slices::PERIOD_TICKS;
use super::super::weighted::Sample;

/// From when on the gate was open for `open_ticks` of each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) from_ns: u64,
    pub(super) open_ticks: u64,
    /// One of its slices, once it is over.
    pub(super) slice: Option<Slice>,
}

/// A slice that was counted: the last one of periods, or all of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) number: u64,
    /// When it began.
    pub(super) from_ns: u64,
    pub(super) weight: u64,
}

impl Stretch {
    pub(super) fn new(from_ns: u64, open_ticks: u64) -> Self {
        Self {
            from_ns,
            open_ticks,
            slice: None,
        }
    }

    /// Adds those of its slices that began until `end_ns`; `last`: one of them, if it is not over.
    fn add_to(&self, sample: &mut Sample, end_ns: u64, tick_ns: u64, last: Slice) {
        let slice = self.slice.unwrap_or(last);
        let ticks = match self.open_ticks {
            0 => return,
            PERIOD_TICKS => {
                let open_ns = end_ns.saturating_sub(self.from_ns);
                return sample.add(slice.number, open_ns, slice.weight);
            }
            // The gate was changed, and none has begun since.
            _ if slice.number == 0 => return,
            ticks => i128::from(ticks * tick_ns),
        };
        let period = i128::from(tick_ns * PERIOD_TICKS);
        let (from, end) = (i128::from(self.from_ns), i128::from(end_ns));
        let known = i128::from(slice.from_ns);
        // The first one that ends after the stretch began, counted from the one that is known.
        let mut ahead = (from - ticks - known).div_euclid(period) + 1;
        while known + ahead * period < end {
            let begin = known + ahead * period;
            let open = (begin + ticks).min(end) - begin.max(from);
            let number = i128::from(slice.number) + ahead;
            sample.add(
                u64::try_from(number).unwrap_or(0),
                u64::try_from(open).unwrap_or(0),
                slice.weight,
            );
            ahead += 1;
        }
    }
}

impl Slice {
    /// The one that is counted by these words, or was last.
    pub(super) fn of(gate: Words) -> Self {
        Self {
            number: match gate.open_ticks {
                ALL => gate.burst,
                _ => gate.slice,
            },
            from_ns: gate.slice_ns,
            weight: gate.weight,
        }
    }
}

/// The stretches, or parts of them, that are later than `since_ns`.
pub(super) fn later(stretches: &[Stretch], since_ns: u64) -> Vec<Stretch> {
    let ended = |stretch: &&Stretch| stretch.from_ns <= since_ns;
    let first = stretches.iter().take_while(ended).count().saturating_sub(1);
    let rest = stretches[first..].iter();
    rest.map(|stretch| Stretch {
        from_ns: stretch.from_ns.max(since_ns),
        ..*stretch
    })
    .collect()
}

/// `last`: a slice of the last stretch.
pub(super) fn sample(stretches: &[Stretch], now_ns: u64, tick_ns: u64, last: Slice) -> Sample {
    let began_ns = stretches.first().map_or(now_ns, |first| first.from_ns);
    let mut sample = Sample::of(now_ns.saturating_sub(began_ns));
    let ends = stretches.iter().skip(1).map(|stretch| stretch.from_ns);
    for (stretch, end_ns) in stretches.iter().zip(ends.chain([now_ns])) {
        stretch.add_to(&mut sample, end_ns, tick_ns, last);
    }
    sample
}
