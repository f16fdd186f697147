//! Events counted in sampled slices of a window, each slice with its sampling weight.
//!
//! The observer's gate is open for longer where little happens, so the expensive part of a window is
//! sampled less than the rest: one factor for the whole window would estimate too few of its events.
//! Each slice has a sampling weight instead, the time that it represents over the time that it was
//! open. A slice of a period represents its period. A burst represents half of the rest before it
//! and half of the rest after it, since a storm may begin or end in either. Time that was counted
//! whole represents itself.
//!
//! Slices go to groups in turn, and sums are kept by group too. Each group is a sample of the same
//! window, so the variance between groups gives the error of the sum ([`Sample::margin`]). Time that
//! no slice represents, such as a rest that the window ended in, may have had no events, or as many
//! as the densest slice.

/// A weight of one.
pub(super) const WHOLE: u64 = 1 << 10;
/// Groups of slices.
pub(super) const GROUPS: usize = 8;
/// Student's t of 95 % for two groups and more.
const DEVIATIONS: [f64; GROUPS - 1] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36];
/// Part of a window that may be left unrepresented by rounding.
const ROUNDING: f64 = 1e-6;
/// Part of a window that may be represented by no slice: of more, only bounds are known.
const NOT_SAMPLED: f64 = 0.1;
/// Part of the longest group's time that another one must have to give a density of events.
const LONG_ENOUGH: f64 = 0.01;

/// A figure for each group of slices.
pub(super) type ByGroup = [f64; GROUPS];

/// Sums of weighted counts, in parts of [`WHOLE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weighted {
    /// Of slices that represent only themselves.
    pub(super) whole: u64,
    /// Of the others.
    pub(super) groups: [u64; GROUPS],
}

/// What was counted of one kind, and how it is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum {
    /// As it was counted.
    pub(super) counted: f64,
    /// In slices that represent only themselves.
    pub(super) whole: f64,
    /// In the others, by their weights.
    pub(super) groups: ByGroup,
    /// What these are multiplied by.
    pub(super) factor: f64,
}

/// The exposure of a count, ns: time by the clock, or time of a thread on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Exposure {
    /// In slices that represent only themselves.
    pub(super) whole: f64,
    /// In the others, by their weights.
    pub(super) groups: ByGroup,
    /// In no slice.
    pub(super) uncounted: f64,
    /// Represented by no slice.
    pub(super) unsampled: f64,
}

/// The weight of a slice that was open for one time and represents another.
pub(super) fn of_time(open_ns: u64, represented_ns: u64) -> u64 {
    let weight = u128::from(represented_ns) * u128::from(WHOLE) / u128::from(open_ns.max(1));
    u64::try_from(weight).unwrap_or(u64::MAX).max(WHOLE)
}

/// The group of a slice.
pub(super) fn group(slice: u64) -> usize {
    usize::try_from(slice % GROUPS as u64).unwrap_or(0)
}

impl Weighted {
    /// Adds what was counted in a slice.
    pub(super) fn add(&mut self, slice: u64, counted: u64, weight: u64) {
        let weighted = counted.saturating_mul(weight);
        if weight > WHOLE {
            let group = &mut self.groups[group(slice)];
            *group = group.saturating_add(weighted);
        } else {
            self.whole = self.whole.saturating_add(weighted);
        }
    }

    pub(super) fn since(self, before: &Self) -> Self {
        Self {
            whole: self.whole.saturating_sub(before.whole),
            groups: std::array::from_fn(|group| {
                self.groups[group].saturating_sub(before.groups[group])
            }),
        }
    }

    pub(super) fn whole(&self) -> f64 {
        in_counts(self.whole)
    }

    pub(super) fn groups(&self) -> ByGroup {
        self.groups.map(in_counts)
    }
}

pub(super) fn in_counts(weighted: u64) -> f64 {
    weighted as f64 / WHOLE as f64
}

/// Which time of a window was counted, and which time the counts represent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    window_ns: f64,
    /// Counted.
    open_ns: f64,
    /// Of that, in slices that represent more than themselves.
    sampled_ns: f64,
    /// What slices represent: themselves, or more.
    whole_ns: f64,
    groups_ns: ByGroup,
}

impl Sample {
    pub(super) fn of(window_ns: u64) -> Self {
        Self {
            window_ns: window_ns as f64,
            ..Self::default()
        }
    }

    /// A slice, or a part of one.
    pub(super) fn add(&mut self, slice: u64, open_ns: u64, weight: u64) {
        let open_ns = open_ns as f64;
        self.open_ns += open_ns;
        if weight > WHOLE {
            self.sampled_ns += open_ns;
            self.groups_ns[group(slice)] += open_ns * in_counts(weight);
        } else {
            self.whole_ns += open_ns;
        }
    }

    /// Share of the window in which events were counted.
    pub(super) fn share(&self) -> f64 {
        if self.window_ns > 0.0 {
            (self.open_ns / self.window_ns).clamp(0.0, 1.0)
        } else {
            1.0
        }
    }

    /// The factor of the weighted sum without what is known of threads: time that was not counted
    /// whole over the time that slices represent.
    pub(super) fn rest(&self) -> f64 {
        let represented = self.represented();
        if represented > 0.0 {
            (self.window_ns - self.whole_ns).max(0.0) / represented
        } else if self.whole_ns > 0.0 {
            self.window_ns / self.whole_ns
        } else {
            1.0
        }
    }

    /// The same of sums that are not divided into groups.
    pub(super) fn all(&self) -> f64 {
        let represented = self.whole_ns + self.represented();
        if represented > 0.0 {
            self.window_ns / represented
        } else {
            1.0
        }
    }

    /// The sums by this sample: where the window was counted whole until it was counted no more, that
    /// is the one slice there is.
    pub(super) fn parts(&self, weighted: &Weighted) -> (f64, ByGroup) {
        let mut groups = weighted.groups();
        if !self.is_one_slice() {
            return (weighted.whole(), groups);
        }
        groups[0] += weighted.whole();
        (0.0, groups)
    }

    /// The same, with how they are scaled.
    pub(super) fn sum(&self, weighted: &Weighted, counted: u64, factor: f64) -> Sum {
        let (whole, groups) = self.parts(weighted);
        Sum {
            counted: counted as f64,
            whole,
            groups,
            factor,
        }
    }

    /// The same of figures that are not divided into groups, in parts of [`WHOLE`].
    pub(super) fn of_kinds(&self, whole: u64, sampled: u64) -> (f64, f64) {
        let (whole, sampled) = (in_counts(whole), in_counts(sampled));
        if self.is_one_slice() {
            (0.0, whole + sampled)
        } else {
            (whole, sampled)
        }
    }

    fn is_one_slice(&self) -> bool {
        !self.is_whole() && self.groups_ns.iter().all(|ns| *ns <= 0.0)
    }

    fn is_whole(&self) -> bool {
        self.sampled_ns <= 0.0 && self.whole_ns >= self.window_ns * (1.0 - ROUNDING)
    }

    /// The exposure by the clock.
    pub(super) fn exposure(&self) -> Exposure {
        let mut exposure = Exposure {
            whole: self.whole_ns,
            groups: self.groups_ns,
            uncounted: (self.window_ns - self.open_ns).max(0.0),
            unsampled: self.unsampled_ns(),
        };
        if self.is_one_slice() {
            exposure.groups[0] = std::mem::take(&mut exposure.whole);
        }
        exposure
    }

    /// The half width of a sum's 95 % interval; `None` if nothing was counted. A group is expected to
    /// have its share of the exposure. Where slices do not represent the window, the rest of it had
    /// between no events and as many as the densest slice.
    pub(super) fn margin(&self, sum: &Sum, exposure: &Exposure) -> Option<f64> {
        if self.is_whole() {
            return Some(0.0);
        }
        let densest = exposure.densest(sum)?;
        let off = match self.by_groups(sum, &exposure.groups) {
            Some(by_groups) if self.unsampled_ns() > self.window_ns * NOT_SAMPLED => {
                let mean = ratio(sum.groups.iter().sum(), exposure.groups.iter().sum());
                by_groups + exposure.unsampled * mean.max(densest - mean)
            }
            Some(by_groups) => by_groups,
            None => {
                let most = sum.counted + densest * exposure.uncounted;
                (sum.all() - sum.counted).max(most - sum.all()).max(0.0)
            }
        };
        // One event more or less must not surprise, even if no slice had one.
        Some(off + self.one_represents())
    }

    /// The same by the variance between groups; `None` if one slice represents nearly all that
    /// they represent.
    fn by_groups(&self, sum: &Sum, exposure: &ByGroup) -> Option<f64> {
        let deviations = DEVIATIONS.get(self.effective_groups()?.checked_sub(2)?)?;
        let counted: Vec<usize> = (0..GROUPS).filter(|it| self.groups_ns[*it] > 0.0).collect();
        let each = ratio(sum.groups.iter().sum(), exposure.iter().sum());
        let squares: f64 = counted
            .iter()
            .map(|it| (sum.groups[*it] - each * exposure[*it]).powi(2))
            .sum();
        let number = counted.len() as f64;
        let missed = (1.0 - self.sampled_ns / self.represented()).max(0.0);
        let deviation = (squares * number / (number - 1.0) * missed).sqrt();
        Some(deviations * deviation * sum.factor)
    }

    /// Kish's effective sample size of the groups, rounded down: how many groups of equal weight give
    /// the same variance.
    fn effective_groups(&self) -> Option<usize> {
        let sampled = self.represented();
        let squares: f64 = self.groups_ns.iter().map(|ns| ns * ns).sum();
        let effective = sampled * sampled / squares + ROUNDING;
        effective.is_finite().then_some(effective as usize)
    }

    /// How many events one counted event represents.
    fn one_represents(&self) -> f64 {
        if self.sampled_ns > 0.0 {
            ratio(self.represented(), self.sampled_ns).max(1.0)
        } else {
            ratio(self.window_ns, self.open_ns).max(1.0)
        }
    }

    /// Time that no slice represents.
    fn unsampled_ns(&self) -> f64 {
        (self.window_ns - self.whole_ns - self.represented()).max(0.0)
    }

    fn represented(&self) -> f64 {
        self.groups_ns.iter().sum()
    }
}

impl Sum {
    /// As many as there were in the window.
    pub(super) fn all(&self) -> f64 {
        self.whole + self.groups.iter().sum::<f64>() * self.factor
    }
}

impl Exposure {
    /// Events per ns where they were densest; `None` where nothing was counted.
    fn densest(&self, sum: &Sum) -> Option<f64> {
        let longest = self.groups.iter().copied().fold(0.0, f64::max);
        let parts = self
            .groups
            .iter()
            .zip(&sum.groups)
            .chain([(&self.whole, &sum.whole)]);
        let long =
            parts.filter(|(exposure, _)| **exposure > 0.0 && **exposure >= longest * LONG_ENOUGH);
        long.map(|(exposure, count)| count / exposure)
            .reduce(f64::max)
    }
}

/// 0 where there is nothing to divide by.
fn ratio(figure: f64, all: f64) -> f64 {
    if all > 0.0 { figure / all } else { 0.0 }
}

#[cfg(test)]
impl Sample {
    /// One slice of this length.
    pub(super) fn one(open_ns: u64, window_ns: u64) -> Self {
        let mut sample = Self::of(window_ns);
        sample.add(0, open_ns, WHOLE);
        sample
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::slices::{PERIOD_TICKS, of_ticks};
    use super::*;

    const MS: u64 = 1_000_000;

    /// A window of slices of periods, each with its count.
    fn sampled(counts: &[u64], open_ticks: u64) -> (Sample, Weighted) {
        let period_ns = 128 * MS;
        let mut sample = Sample::of(counts.len() as u64 * period_ns);
        let mut weighted = Weighted::default();
        let weight = of_ticks(open_ticks);
        for (slice, count) in counts.iter().enumerate() {
            let slice = slice as u64;
            sample.add(slice, period_ns * open_ticks / PERIOD_TICKS, weight);
            weighted.add(slice, *count, weight);
        }
        (sample, weighted)
    }

    /// By the clock.
    fn sum(sample: &Sample, weighted: &Weighted, counted: u64) -> Sum {
        sample.sum(weighted, counted, sample.rest())
    }

    /// Of a sum of which at least this many were counted.
    fn margin_of(sample: &Sample, weighted: &Weighted, counted: u64) -> Option<f64> {
        sample.margin(&sum(sample, weighted, counted), &sample.exposure())
    }

    fn margin(sample: &Sample, weighted: &Weighted) -> Option<f64> {
        margin_of(sample, weighted, 0)
    }

    #[test]
    fn a_slice_stands_for_the_period_it_is_of() {
        assert_eq!(of_ticks(8), 4 * WHOLE);
        assert_eq!(of_ticks(PERIOD_TICKS), WHOLE);
        assert_eq!(of_time(10 * MS, 400 * MS), 40 * WHOLE);
        // Nothing stands for less than itself.
        assert_eq!(of_time(10 * MS, 0), WHOLE);
        for ticks in 1..PERIOD_TICKS {
            let period = of_ticks(ticks) * ticks;
            let all = WHOLE * PERIOD_TICKS;
            assert!(period.abs_diff(all) * 1_000 <= all, "{ticks}: {period}");
        }
    }

    #[test]
    fn what_was_counted_whole_is_exact() {
        let sample = Sample::one(900 * MS, 900 * MS);
        let mut weighted = Weighted::default();
        weighted.add(0, 1_234, WHOLE);
        assert_eq!(sample.parts(&weighted).0, 1_234.0);
        assert_eq!(margin(&sample, &weighted), Some(0.0));
    }

    #[test]
    fn one_slice_says_between_what_the_rest_of_the_window_was() {
        let sample = Sample::one(20 * MS, 700 * MS);
        let mut weighted = Weighted::default();
        weighted.add(0, 100, WHOLE);
        let sum = sum(&sample, &weighted, 100);
        assert_eq!(sum.all(), 3_500.0);
        // It may have had nothing; one event in 20 ms stands for 35.
        let margin = sample.margin(&sum, &sample.exposure()).unwrap();
        assert!((margin - 3_435.0).abs() < 1e-6, "{margin}");
        // Nothing at all was counted.
        let closed = Sample::of(700 * MS);
        assert_eq!(margin_of(&closed, &Weighted::default(), 0), None);
    }

    #[test]
    fn a_window_that_slices_do_not_stand_for_has_the_bounds_of_the_rest() {
        let counts = [100, 90, 110, 100];
        let (sample, weighted) = sampled(&counts, 2);
        let counted = counts.iter().sum();
        let known = margin_of(&sample, &weighted, counted).unwrap();
        // It ended in a rest of a quarter of the time before it.
        let longer = Sample {
            window_ns: sample.window_ns * 1.25,
            ..sample
        };
        let estimate = sum(&longer, &weighted, counted).all();
        let margin = margin_of(&longer, &weighted, counted).unwrap();
        let without = sum(&sample, &weighted, counted).all();
        assert!(estimate - margin <= without, "{estimate} {margin}");
        assert!(margin > known + without / 4.0, "{margin} {known}");
        assert!(
            margin < known * 1.5 + without / 4.0 * 1.2,
            "{margin} {known}"
        );
        // One burst stands for nearly all of it: the others say nothing of what it stands for.
        let (mut longest, mut with_burst) = (sample, weighted);
        longest.add(0, 10 * MS, 2_000 * WHOLE);
        longest.window_ns += 20_000.0 * MS as f64;
        with_burst.add(0, 30_000, 2_000 * WHOLE);
        let estimate = sum(&longest, &with_burst, counted + 30_000).all();
        let margin = margin_of(&longest, &with_burst, counted + 30_000).unwrap();
        assert!(estimate - margin <= (counted + 30_000) as f64);
        assert!(estimate + margin >= 30_000.0 * 2_000.0);
    }

    #[test]
    fn slices_that_differ_have_a_wide_interval() {
        let of = |counts: &[u64]| {
            let (sample, weighted) = sampled(counts, 4);
            let sum: f64 = weighted.groups().iter().sum();
            margin(&sample, &weighted).unwrap() / sum
        };
        let even = of(&[100; 16]);
        assert!(even < 0.01, "{even}");
        let burst = of(&[0, 0, 0, 0, 0, 800, 800, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(burst > 1.0, "{burst}");
        // The same sum in fewer slices is less certain.
        let few = of(&[120, 80]);
        let many = of(&[
            120, 80, 120, 80, 80, 120, 80, 120, 80, 120, 120, 80, 80, 120, 80, 120,
        ]);
        assert!(few > 2.0 * many, "{few} {many}");
    }

    #[test]
    fn a_thread_s_events_go_with_its_time_on_a_cpu() {
        let (sample, weighted) = sampled(&[100, 10, 150, 40, 0, 90, 60, 30], 4);
        let sum = sum(&sample, &weighted, 480);
        let by_clock = sample.margin(&sum, &sample.exposure()).unwrap();
        // Ten events in each unit of its time.
        let ran = Exposure {
            groups: sum.groups.map(|count| count / 10.0),
            ..Exposure::default()
        };
        let by_time = sample.margin(&sum, &ran).unwrap();
        assert!(by_time * 10.0 < by_clock, "{by_time} {by_clock}");
    }

    /// Random events in slices of a window: the interval holds the truth as often as it says.
    #[test]
    fn nineteen_of_twenty_intervals_hold_the_truth() {
        let mut random = 1_u64;
        let mut any = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        for slices in [3_usize, 6, 31] {
            let mut held = 0;
            let all = 2_000;
            for _ in 0..all {
                // Each period has its own rate; an eighth of it is counted.
                let rates: Vec<u64> = (0..slices).map(|_| 400 + any(800)).collect();
                let mut counts = Vec::new();
                for rate in &rates {
                    counts.push((0..*rate).filter(|_| any(8) == 0).count() as u64);
                }
                let truth: u64 = rates.iter().sum();
                let (sample, weighted) = sampled(&counts, 4);
                let sum = weighted.groups().iter().sum::<f64>() * sample.rest();
                let margin = margin(&sample, &weighted).unwrap();
                held += usize::from((sum - truth as f64).abs() <= margin);
            }
            let part = held as f64 / f64::from(all);
            assert!(part >= 0.94, "{slices} slices: {part}");
        }
    }

    proptest! {
        /// A storm of one rate lasts for a part of what was not counted: nothing, all, or between.
        #[test]
        fn a_storm_that_ends_in_time_without_a_slice_is_in_its_interval(
            open in 5_u64..50,
            closed in 1_u64..5_000,
            part in 0.0..=1.0_f64,
            per_ms in 1_u64..2_000,
        ) {
            let mut sample = Sample::of((open + closed) * MS);
            let mut weighted = Weighted::default();
            // Its burst stands for itself, and half of a rest that was planned longer.
            let weight = of_time(open * MS, (open + closed / 4) * MS);
            sample.add(1, open * MS, weight);
            weighted.add(1, open * per_ms, weight);
            let truth = (open as f64 + closed as f64 * part) * per_ms as f64;
            let all = sum(&sample, &weighted, open * per_ms).all();
            let margin = margin_of(&sample, &weighted, open * per_ms).unwrap();
            prop_assert!((all - truth).abs() <= margin, "{all} {truth} {margin}");
        }

        #[test]
        fn no_sums_make_an_interval_that_is_none(groups: [u32; GROUPS], open in 0_u64..1 << 40, window in 0_u64..1 << 40) {
            let mut sample = Sample::of(window);
            let mut weighted = Weighted::default();
            for (slice, count) in groups.iter().enumerate() {
                let slice = slice as u64;
                sample.add(slice, open, of_ticks(slice));
                weighted.add(slice, u64::from(*count), of_ticks(slice));
            }
            let share = sample.share();
            prop_assert!((0.0..=1.0).contains(&share), "{share}");
            prop_assert!(sample.rest() >= 0.0 && sample.rest().is_finite());
            if let Some(margin) = margin(&sample, &weighted) {
                prop_assert!(margin >= 0.0 && margin.is_finite(), "{margin}");
            }
        }
    }
}
