//! Gaps between bursts of waits: KVM's window is held open across them.
//!
//! Below the limit that it is given KVM moves each vCPU's window by itself
//! ([`super::GrowShrink`]): a wait longer than the limit halves the window, and one that is longer
//! than the window and shorter than the limit doubles it. So with any fixed limit the gap between two
//! bursts closes the window, and the first wait of the next burst is missed to open it again.
//! A limit beyond the gap has the gap itself double the window. The two limits in turn, one for each
//! gap, hold the window between one and two times what the waits need.
//!
//! KVM takes the limit that is in force when a wait ends, so it has to change within the gaps: looks
//! come by the clock, about two for each gap, as long as bursts go on.

use super::reading::mul_div;
use super::{BUCKETS, LONGEST_SHIFT, Reading, Waits, bucket_of};

/// A wait from this bucket on (4.2 ms) is a gap.
const GAP_BUCKET: usize = LONGEST_SHIFT + 5;
/// The limit beyond any gap, ns (1.1 s).
pub(super) const WIDE_NS: u64 = 1 << 30;
/// CPU time of a look by the clock: the thread wakes up, reads KVM's counters and sets the timers. An
/// estimate for two vCPUs.
pub(super) const LOOK_COST_NS: u64 = 30_000;
/// Part of the budget that looks by the clock may take.
const LOOKS_PART: u64 = 6;
/// The least and the longest time between two looks across gaps.
const LOOK_SOON_NS: u64 = 1_000_000;
const LOOK_SELDOM_NS: u64 = 250_000_000;

/// Which of the two limits is in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    is_wide: bool,
}

impl Gaps {
    pub(super) const fn new() -> Self {
        Self { is_wide: false }
    }

    /// The limit until the next look, for windows of `window_ns` and what was counted since the last.
    pub(super) fn limit_ns(&mut self, counted: &Reading, window_ns: u64) -> u64 {
        let twice_ns = window_ns.saturating_mul(2);
        let has_gap = counted.waited[GAP_BUCKET..].iter().any(|count| *count > 0);
        if has_gap {
            // A gap's poll was as long as the window then; the limit has moved it since.
            let polled_ns = counted.missed_ns / counted.missed.max(1);
            let now_ns = if self.is_wide {
                polled_ns.saturating_mul(2)
            } else {
                polled_ns / 2
            };
            self.is_wide = now_ns < window_ns + window_ns / 2;
        }
        if self.is_wide { WIDE_NS } else { twice_ns }
    }

    /// Another rule is in force.
    pub(super) const fn rest(&mut self) {
        self.is_wide = false;
    }
}

/// The least time between two looks by the clock, which may take a part of `budget_ppm` of a CPU.
pub(super) fn soonest_look_ns(budget_ppm: u64) -> u64 {
    mul_div(LOOK_COST_NS * LOOKS_PART, 1_000_000, budget_ppm).max(LOOK_SOON_NS)
}

/// What it takes to hold a window open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holding {
    /// The time between two looks by the clock.
    pub(super) look_every_ns: u64,
    /// The looks and the longer polls, in millionths of a CPU.
    pub(super) extra_ppm: u64,
    short: u64,
    gaps: u64,
}

impl Holding {
    /// For `window_ns` and these waits, if they are bursts with gaps of which each can have a look
    /// for a part of `budget_ppm` of a CPU.
    pub(super) fn of(waits: &Waits, window_ns: u64, budget_ppm: u64) -> Option<Self> {
        let counts = waits.counts();
        let window_bucket = bucket_of(window_ns);
        let sum = |range: core::ops::Range<usize>| counts[range].iter().sum::<u64>();
        let short = sum(0..window_bucket);
        let between = sum(window_bucket..GAP_BUCKET);
        let gaps = sum(GAP_BUCKET..BUCKETS);
        // Each wait between moves the window as a gap does.
        if gaps == 0 || short < gaps / 2 || between > gaps {
            return None;
        }
        let gap_every_ns = mul_div(waits.elapsed_ns(), Waits::UNIT, gaps);
        let soonest_ns = soonest_look_ns(budget_ppm);
        let look_every_ns = (gap_every_ns / 2).max(soonest_ns);
        let longer_ppm = mul_div(window_ns / 2, 1_000_000, gap_every_ns);
        let looks_ppm = mul_div(LOOK_COST_NS, 1_000_000, look_every_ns);
        (soonest_ns <= gap_every_ns && look_every_ns <= LOOK_SELDOM_NS).then_some(Self {
            look_every_ns,
            extra_ppm: looks_ppm.saturating_add(longer_ppm),
            short,
            gaps,
        })
    }

    /// Whether it catches more for each part of a CPU than polling that costs `cost_ppm` and misses a
    /// wait after each gap.
    pub(super) fn pays(&self, cost_ppm: u64) -> bool {
        let with = u128::from(cost_ppm.saturating_add(self.extra_ppm));
        let (short, gaps) = (u128::from(self.short), u128::from(self.gaps));
        short * u128::from(cost_ppm) >= short.saturating_sub(gaps) * with
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;
    const MS: u64 = 1000 * US;

    fn counted(short: u64, between: u64, gaps: u64) -> Reading {
        let mut counted = Reading {
            now_ns: 1000 * MS,
            ..Reading::default()
        };
        counted.caught[bucket_of(60 * US)] = short;
        counted.waited[bucket_of(MS)] = between;
        counted.waited[bucket_of(100 * MS)] = gaps;
        counted
    }

    fn every_ms(reading: &Reading, ppm: u64) -> Option<u64> {
        let mut waits = Waits::new();
        waits.add(reading, 2000 * MS);
        let holding = Holding::of(&waits, 65_536, ppm)?;
        Some(holding.look_every_ns / MS)
    }

    #[test]
    fn bursts_have_two_looks_a_gap_within_a_part_of_the_budget() {
        assert_eq!(every_ms(&counted(70, 0, 10), 10_000), Some(50));
        // A look costs 30 us, and a sixth of 1 % pays for 55 a second.
        assert_eq!(every_ms(&counted(140, 0, 50), 10_000), Some(18));
        assert_eq!(every_ms(&counted(700, 0, 80), 10_000), None);
        assert_eq!(every_ms(&counted(700, 0, 80), 50_000), Some(6));
        // One wait between two gaps is enough, and a gap for each wait between.
        assert_eq!(every_ms(&counted(10, 10, 10), 10_000), Some(50));
    }

    #[test]
    fn what_is_no_burst_has_no_look_by_the_clock() {
        let waits = [
            counted(0, 0, 0),
            // Hardly a short wait for a gap; too many between; gaps too seldom; no gap.
            counted(4, 0, 10),
            counted(70, 11, 10),
            counted(70, 0, 1),
            counted(70, 0, 0),
        ];
        for reading in waits {
            assert_eq!(every_ms(&reading, 10_000), None, "{reading:?}");
        }
    }

    #[test]
    fn holding_pays_where_it_catches_more_for_its_cost() {
        let holding = |short, ppm| {
            let mut waits = Waits::new();
            waits.add(&counted(short, 0, 10), 2000 * MS);
            Holding::of(&waits, 65_536, 10_000).map(|it| (it.extra_ppm, it.pays(ppm)))
        };
        // 20 looks of 30 us, and 10 polls that are 33 us longer.
        assert_eq!(holding(10, 700), Some((927, true)));
        assert_eq!(holding(80, 7000), Some((927, true)));
        // One more of a hundred for a seventh more.
        assert_eq!(holding(1000, 5000), Some((927, false)));
    }

    #[test]
    fn limits_take_turns_by_what_gaps_were_polled_for() {
        let mut gaps = Gaps::new();
        let mut after = |polls: u64, ns: u64| {
            let mut reading = counted(7, 0, polls);
            (reading.missed, reading.missed_ns) = (polls, polls * ns);
            gaps.limit_ns(&reading, 64 * US) / US
        };
        // A window of 64 us that the gap has halved grows by the next one, then shrinks.
        assert_eq!(after(1, 64 * US), WIDE_NS / US);
        assert_eq!(after(1, 64 * US), 128);
        assert_eq!(after(1, 128 * US), WIDE_NS / US);
        // No gap has ended since.
        assert_eq!(after(0, 0), WIDE_NS / US);
        // Several gaps have doubled it.
        assert_eq!(after(3, 300 * US), 128);
        // There was no window to poll with.
        assert_eq!(after(1, 0), WIDE_NS / US);
    }
}
