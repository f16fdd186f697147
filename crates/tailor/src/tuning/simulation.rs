//! The promise of a search, by simulation: of candidates whose effect is known, chance becomes
//! no winner and what is there is found.

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use tare_stats::SplitMix64;

use super::elimination::{NOISY_PERCENT, Search, Stage};
use super::search_result::{CandidateResult, Decision, SearchResult, Why};
use super::{Boot, Measure, Trials};

/// Boots whose candidates change the value by known factors.
pub(super) struct Planted {
    /// Factor of each candidate.
    pub(super) factors: Vec<f64>,
    /// Spread of boots, a share of the value.
    pub(super) noise: f64,
    /// Spread of the slow change that boots of one time share.
    pub(super) drift: f64,
    /// Factor of the second boot of a block.
    pub(super) second: f64,
    /// Share of boots that a busy host makes 3 % slower.
    pub(super) disturbed: f64,
    /// Of one boot, s.
    pub(super) seconds: f64,
    pub(super) random: SplitMix64,
    pub(super) level: f64,
    pub(super) boots: usize,
    /// Boots of a block, and of this stage until now.
    block: Rc<Cell<(usize, usize)>>,
}

impl Planted {
    pub(super) fn new(factors: &[f64], noise: f64, seed: u64) -> Self {
        Self {
            factors: factors.to_vec(),
            noise,
            drift: 0.0,
            second: 1.0,
            disturbed: 0.0,
            seconds: 5.0,
            random: SplitMix64::new(seed),
            level: 1.0,
            boots: 0,
            block: Rc::default(),
        }
    }

    /// Whether this is the second boot of a block.
    fn is_second(&self) -> bool {
        let (size, boots) = self.block.get();
        self.block.set((size, boots + 1));
        size > 0 && boots % size == 1
    }
}

/// How many boots a block of a stage has.
const fn block_of(stage: Stage) -> usize {
    match stage {
        Stage::Screening { candidates, .. } => candidates + 1,
        Stage::Test { candidates } => candidates + 2,
        Stage::Confirmation { .. } => 2,
    }
}

/// Normal with mean 0 and variance 1 (Box and Muller 1958).
pub(super) fn normal(random: &mut SplitMix64) -> f64 {
    let mut unit = || (random.below(1 << 30) as f64 + 0.5) / (1u64 << 30) as f64;
    let radius = (-2.0 * unit().ln()).sqrt();
    radius * (std::f64::consts::TAU * unit()).cos()
}

impl Trials for Planted {
    type Error = Infallible;

    fn boot(&mut self, settings: &[usize]) -> Result<Boot, Infallible> {
        self.boots += 1;
        self.level *= 1.0 + self.drift * normal(&mut self.random);
        let factor: f64 = settings.iter().map(|it| self.factors[*it]).product();
        let noise = 1.0 + self.noise * normal(&mut self.random);
        let place = if self.is_second() { self.second } else { 1.0 };
        let is_disturbed =
            self.disturbed > 0.0 && (self.random.below(1000) as f64) < 1000.0 * self.disturbed;
        let place = if is_disturbed { 1.03 * place } else { place };
        Ok(Boot {
            measured: Ok(50_000.0 * self.level * factor * noise * place),
            seconds: self.seconds,
        })
    }
}

fn search(trials: &mut Planted, minutes: f64, seed: u64) -> SearchResult {
    let search = Search {
        measure: Measure::Instructions,
        candidates: trials.factors.len(),
        budget_s: minutes * 60.0,
        seed,
    };
    let block = Rc::clone(&trials.block);
    let told = |stage| block.set((block_of(stage), 0));
    let found = search.run(trials, told).unwrap();
    assert!(found.seconds <= search.budget_s, "{}", found.seconds);
    found
}

/// Candidates of which the first ones have these factors and the others none, in a drawn order;
/// gives the places of the first ones too.
fn candidates(first: &[f64], count: usize, random: &mut SplitMix64) -> (Vec<f64>, Vec<usize>) {
    let mut order: Vec<usize> = (0..count).collect();
    random.shuffle(&mut order);
    let mut factors = vec![1.0; count];
    for (place, factor) in order.iter().zip(first) {
        factors[*place] = *factor;
    }
    (factors, order[..first.len()].to_vec())
}

/// Searches of 24 candidates within 20 minutes, and for each planted factor in how many of them
/// it was kept, then in how many a candidate without effect was.
fn shares(first: &[f64], noise: f64, drift: f64) -> (Vec<f64>, f64) {
    const SEARCHES: usize = 400;
    let mut random = SplitMix64::new(72);
    let mut kept = vec![0usize; first.len()];
    let mut false_ones = 0;
    for seed in 0..SEARCHES as u64 {
        let (factors, places) = candidates(first, 24, &mut random);
        let mut trials = Planted::new(&factors, noise, seed + 1000);
        trials.drift = drift;
        let found = search(&mut trials, 20.0, seed);
        let settings = found.settings();
        for (count, place) in kept.iter_mut().zip(&places) {
            *count += usize::from(settings.contains(place));
        }
        let is_planted = |it: &usize| places.contains(it);
        false_ones += usize::from(!settings.iter().all(is_planted));
    }
    let share = |count: usize| count as f64 / SEARCHES as f64;
    let kept: Vec<f64> = kept.into_iter().map(share).collect();
    println!("planted {first:?}, noise {noise}, drift {drift}: kept {kept:?}");
    println!("  a candidate without effect: {}", share(false_ones));
    (kept, share(false_ones))
}

#[test]
fn candidates_without_effect_are_kept_in_at_most_one_search_of_twenty() {
    for (noise, drift) in [(0.002, 0.0), (0.01, 0.0), (0.01, 0.01), (0.1, 0.0)] {
        let (_, false_ones) = shares(&[], noise, drift);
        assert!(false_ones <= 0.05, "noise {noise}: {false_ones}");
    }
}

/// Of 400 searches without an effect the shares that kept something, and in which the default
/// differed from itself. Of each four one has the seed of orders of another.
fn alarms(second: f64, drift: f64, disturbed: f64) -> (f64, f64) {
    const SEARCHES: u64 = 400;
    let (mut kept, mut unsound) = (0u32, 0u32);
    for seed in 0..SEARCHES {
        let mut trials = Planted::new(&[1.0; 24], 0.002, seed + 9000);
        (trials.second, trials.drift) = (second, drift);
        trials.disturbed = disturbed;
        let found = search(&mut trials, 20.0, seed / 4);
        kept += u32::from(!found.settings().is_empty());
        unsound += u32::from(found.decision == Decision::Default(Why::Unsound));
    }
    let share = |count: u32| f64::from(count) / SEARCHES as f64;
    println!("second boot {second}, drift {drift}, disturbed {disturbed}");
    println!("  kept {}", share(kept));
    println!("  the default differed from itself: {}", share(unsound));
    (share(kept), share(unsound))
}

#[test]
fn what_a_boots_place_in_its_block_does_is_no_setting_and_no_fault() {
    for (second, drift) in [(1.005, 0.0), (0.995, 0.003), (1.03, 0.0)] {
        let (kept, unsound) = alarms(second, drift, 0.0);
        assert!(kept <= 0.05 && unsound <= 0.02, "{kept}, {unsound}");
    }
    // The middle of two boots is disturbed more often than one, so that differences from it are
    // not symmetric.
    for disturbed in [0.05, 0.2] {
        let (kept, unsound) = alarms(1.005, 0.0, disturbed);
        assert!(kept <= 0.05 && unsound <= 0.02, "{kept}, {unsound}");
    }
}

#[test]
fn effects_of_ten_and_two_percent_are_found_among_others() {
    let (kept, false_ones) = shares(&[0.9, 0.98], 0.005, 0.0);
    assert!(kept.iter().all(|share| *share >= 0.95), "{kept:?}");
    assert!(false_ones <= 0.05, "{false_ones}");
    // What changes slowly is in both boots of a pair.
    let (kept, false_ones) = shares(&[0.9, 0.98], 0.005, 0.003);
    assert!(kept[0] >= 0.95 && kept[1] >= 0.8, "{kept:?}");
    assert!(false_ones <= 0.05, "{false_ones}");
    // Settings that make it slower are never kept.
    let (kept, false_ones) = shares(&[0.9, 1.05, 1.02], 0.005, 0.0);
    assert!(kept[0] >= 0.95 && kept[1] == 0.0, "{kept:?}");
    assert!(kept[2] <= 0.01 && false_ones <= 0.05, "{kept:?}");
}

#[test]
fn the_interval_of_a_combination_holds_its_true_effect() {
    let (searches, mut held, mut kept) = (400, 0, 0);
    let mut random = SplitMix64::new(7);
    for seed in 0..searches {
        let (factors, places) = candidates(&[0.9, 0.97], 12, &mut random);
        let found = search(&mut Planted::new(&factors, 0.01, seed), 20.0, seed);
        let Some(combination) = found.combination.as_ref() else {
            continue;
        };
        kept += 1;
        let all = combination.settings.iter().map(|it| factors[*it]);
        let truth = (all.product::<f64>() - 1.0) * 100.0;
        let (low, high) = combination.effect.interval_percent.unwrap();
        held += u32::from(low <= truth && truth <= high);
        assert!(combination.settings.contains(&places[0]));
    }
    let share = f64::from(held) / f64::from(kept);
    println!("{share} of {kept} intervals hold the truth");
    assert!(kept >= 380 && (0.92..=0.985).contains(&share), "{share}");
}

#[test]
fn a_search_that_is_too_noisy_says_so_and_keeps_the_default() {
    let mut said = 0;
    for seed in 0..50 {
        let mut trials = Planted::new(&[0.98; 6], 0.3, seed);
        let found = search(&mut trials, 20.0, seed);
        assert!(found.settings().is_empty(), "{found:?}");
        said += usize::from(found.decision == Decision::Default(Why::TooNoisy));
        let resolution = found.resolution_percent();
        assert!(resolution.is_none_or(|it| it > NOISY_PERCENT));
    }
    // The others: the screening saw nothing better.
    assert!(said >= 40, "{said}");
}

#[test]
fn more_of_a_rate_is_better() {
    let mut trials = Planted::new(&[1.1, 0.9, 1.0], 0.002, 3);
    let search = Search {
        measure: Measure::Rate,
        candidates: 3,
        budget_s: 1200.0,
        seed: 1,
    };
    let found = search.run(&mut trials, |_| {}).unwrap();
    assert_eq!(found.settings(), [0], "{found:?}");
    let effect = found.combination.unwrap().effect;
    assert!((effect.change_percent - 10.0).abs() < 0.5, "{effect:?}");
    assert_eq!(found.tried[0].verdict, CandidateResult::Better);
}
