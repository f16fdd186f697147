//! The search: screening, test, confirmation. Pure, given who boots.

use tare_stats::adjusted_by_holm;

use super::order::Orders;
use super::pairs::Pairs;
use super::schedule::{LEAST_CONFIRMED, Schedule};
use super::search_result::{CandidateResult, Combination, Decision, SearchResult, Tried, Why};
use super::{Measure, Trials};

/// The chance of one false winner among all that are tested, and of a false confirmation.
const LEVEL: f64 = 0.05;
/// A control that differs from the default at this level shows a bench that favours a place
/// in the block; at 5 % sound ones would be thrown away too often.
const CONTROL_LEVEL: f64 = 0.01;
/// Half of the control's interval, %: a search that cannot see this much says so.
pub const NOISY_PERCENT: f64 = 5.0;
/// Fewest blocks of the test for which the screening leaves time.
const LEAST_TESTED: usize = 7;
/// Share of the boots that the first one promises which is planned: others may take longer.
const PLANNED: f64 = 0.9;
/// Most blocks of the test and of the confirmation, however much time is left.
const MOST_TESTED: usize = 40;
const MOST_CONFIRMED: usize = 30;

/// What is searched, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// What a boot is measured by.
    pub measure: Measure,
    /// How many candidates there are, the likeliest first.
    pub candidates: usize,
    /// How long all boots may take together, s.
    pub budget_s: f64,
    /// Of the orders of boots within blocks.
    pub seed: u64,
}

/// A search that came to no end.
#[derive(Debug, thiserror::Error)]
pub enum SearchError<E> {
    /// Nothing can be compared with a default that is not measured.
    #[error("the kernel with its default settings was not measured: {0}")]
    Default(String),
    /// Too short.
    #[error(
        "a boot takes {boot_s:.1} s here, so that a search of one setting needs {needed_min} min: give --search {needed_min}, or a load that takes less time"
    )]
    Budget {
        /// One boot.
        boot_s: f64,
        /// Of the shortest search.
        needed_min: u64,
    },
    /// No boots.
    #[error(transparent)]
    Trials(#[from] E),
}

/// Tells of the way of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    /// All candidates that are left, ranked.
    Screening {
        /// How many.
        candidates: usize,
        /// Boots of the whole search.
        boots: usize,
    },
    /// The best ones, tested.
    Test {
        /// How many.
        candidates: usize,
    },
    /// The combination of what passed.
    Confirmation {
        /// Of how many settings.
        settings: usize,
    },
}

/// A search that runs.
struct Run<'a, T, P> {
    search: Search,
    trials: &'a mut T,
    progress: P,
    orders: Orders,
    boots: usize,
    spent_s: f64,
    /// Blocks in which the default was not measured.
    lost: usize,
    tried: Vec<Tried>,
}

/// An arm of a block: what came of it.
type BootResult = Result<f64, String>;

impl Search {
    /// Runs it.
    pub fn run<T: Trials>(
        &self,
        trials: &mut T,
        progress: impl FnMut(Stage),
    ) -> Result<SearchResult, SearchError<T::Error>> {
        let mut run = Run {
            search: *self,
            trials,
            progress,
            orders: Orders::new(self.seed),
            boots: 0,
            spent_s: 0.0,
            lost: 0,
            tried: (0..self.candidates).map(Tried::not).collect(),
        };
        run.whole()
    }
}

impl<T: Trials, P: FnMut(Stage)> Run<'_, T, P> {
    fn whole(&mut self) -> Result<SearchResult, SearchError<T::Error>> {
        // Thrown away: it fills the host's caches, and shows how long a boot takes.
        if let Err(why) = self.boot_twice(&[])? {
            return Err(SearchError::Default(why));
        }
        let planned = self.affordable() as f64 * PLANNED;
        let planned = planned as usize + 1;
        let Some(schedule) = Schedule::fitting(planned, self.search.candidates) else {
            let needed_s = Schedule::least() as f64 * self.boot_s() / PLANNED;
            return Err(SearchError::Budget {
                boot_s: self.boot_s(),
                needed_min: (needed_s / 60.0).ceil() as u64 + 1,
            });
        };
        let finalists = self.screen(&schedule)?;
        let (control, winners) = self.test(&schedule, &finalists)?;
        let mut found = SearchResult {
            measure: self.search.measure,
            seed: self.search.seed,
            tried: Vec::new(),
            control: control.effect(self.search.measure),
            combination: None,
            decision: Decision::Default(Why::Nothing),
            boots: 0,
            seconds: 0.0,
        };
        found.decision = Decision::Default(if finalists.is_empty() {
            Why::NothingBetter
        } else if control
            .effect(self.search.measure)
            .is_none_or(|it| it.p.is_none())
        {
            Why::NoTime
        } else if found.differs_from_itself(CONTROL_LEVEL) {
            Why::Unsound
        } else if winners.is_empty() && found.resolution_percent() > Some(NOISY_PERCENT) {
            Why::TooNoisy
        } else {
            Why::Nothing
        });
        if !winners.is_empty() && found.decision == Decision::Default(Why::Nothing) {
            self.confirm(winners, &mut found)?;
        }
        found.tried = std::mem::take(&mut self.tried);
        (found.boots, found.seconds) = (self.boots, self.spent_s);
        Ok(found)
    }

    /// Halves the candidates, round by round; gives the best ones, which were better than the
    /// default.
    fn screen(&mut self, schedule: &Schedule) -> Result<Vec<usize>, SearchError<T::Error>> {
        let mut left: Vec<usize> = (0..schedule.candidates).collect();
        let mut pairs = vec![Pairs::default(); self.search.candidates];
        let reserve = LEAST_TESTED * (schedule.finalists + 2) + LEAST_CONFIRMED * 2;
        while left.len() > schedule.finalists {
            (self.progress)(Stage::Screening {
                candidates: left.len(),
                boots: schedule.boots(),
            });
            let mut has_time = true;
            for _ in 0..schedule.screened {
                has_time = self.has_time_for(left.len() + 1 + reserve);
                if !has_time {
                    break;
                }
                let arms = arms(&left);
                let came = self.block(&arms)?;
                self.add(&left, &came[1..], &came[0], &mut pairs);
            }
            left.retain(|it| !self.tried[*it].is_broken());
            // Unmeasured ones come last; the earlier of the list comes first among equals.
            left.sort_by(|a, b| {
                let middle = |it: &usize| pairs[*it].middle().unwrap_or(f64::NEG_INFINITY);
                middle(b).total_cmp(&middle(a))
            });
            let kept = if has_time {
                schedule.kept(left.len())
            } else {
                schedule.finalists
            };
            for index in left.split_off(kept.min(left.len())) {
                self.screened_out(index, &pairs[index]);
            }
            left.sort_unstable();
        }
        // With no more candidates than are tested nothing was screened.
        let is_better = |it: &usize| pairs[*it].middle().is_none_or(|middle| middle > 0.0);
        let (finalists, others): (Vec<_>, Vec<_>) = left.into_iter().partition(is_better);
        for index in others {
            self.screened_out(index, &pairs[index]);
        }
        Ok(finalists)
    }

    /// New boots for each finalist, and for the default once more as a control; gives the
    /// control's and the winners. Finalists are compared with both boots of the default, so that
    /// neither decides alone.
    fn test(
        &mut self,
        schedule: &Schedule,
        finalists: &[usize],
    ) -> Result<(Pairs, Vec<usize>), SearchError<T::Error>> {
        let mut control = Pairs::default();
        if finalists.is_empty() {
            return Ok((control, Vec::new()));
        }
        (self.progress)(Stage::Test {
            candidates: finalists.len(),
        });
        let mut pairs = vec![Pairs::default(); self.search.candidates];
        // As many blocks as there is time for: what boots measured does not decide.
        for block in 0..MOST_TESTED {
            let after = if block < schedule.tested {
                LEAST_CONFIRMED
            } else {
                schedule.confirmed
            };
            if !self.has_time_for(finalists.len() + 2 + after * 2) {
                break;
            }
            let is_left = |it: &&usize| !self.tried[**it].is_broken();
            let left: Vec<usize> = finalists.iter().filter(is_left).copied().collect();
            let mut arms = arms(&left);
            arms.push(Vec::new());
            let came = self.block(&arms)?;
            let again = &came[left.len() + 1];
            self.add(&left, &came[1..], &pooled(&came[0], again), &mut pairs);
            self.add_pair(&mut control, &came[0], again);
        }
        let p_values: Vec<f64> = finalists
            .iter()
            .map(|it| pairs[*it].p_of_better())
            .collect();
        let mut winners = Vec::new();
        for (index, p) in finalists.iter().zip(adjusted_by_holm(&p_values)) {
            let tried = &mut self.tried[*index];
            tried.effect = pairs[*index].effect(self.search.measure);
            if tried.is_broken() {
                continue;
            }
            tried.adjusted_p = Some(p);
            tried.verdict = CandidateResult::Chance;
            if p <= LEVEL {
                tried.verdict = CandidateResult::Better;
                winners.push(*index);
            }
        }
        Ok((control, winners))
    }

    /// The combination of the winners against the default, on boots that chose nothing.
    fn confirm(
        &mut self,
        winners: Vec<usize>,
        found: &mut SearchResult,
    ) -> Result<(), SearchError<T::Error>> {
        (self.progress)(Stage::Confirmation {
            settings: winners.len(),
        });
        let mut pairs = Pairs::default();
        let arms = [Vec::new(), winners.clone()];
        let mut broken = None;
        for _ in 0..MOST_CONFIRMED {
            if !self.has_time_for(arms.len()) {
                break;
            }
            let came = self.block(&arms)?;
            if let Err(why) = &came[1] {
                broken = Some(why.clone());
                break;
            }
            self.add_pair(&mut pairs, &came[0], &came[1]);
        }
        let effect = pairs.effect(self.search.measure);
        let is_sure = effect.is_some_and(|it| it.p.is_some());
        found.decision = match broken {
            Some(why) => Decision::Default(Why::NotTogether(why)),
            None if !is_sure => Decision::Default(Why::NoTime),
            None if pairs.p_of_better() <= LEVEL => Decision::Keep,
            None => Decision::Default(Why::NotConfirmed),
        };
        found.combination = effect.map(|effect| Combination {
            settings: winners,
            effect,
        });
        Ok(())
    }

    /// Boots each arm once.
    fn block(&mut self, arms: &[Vec<usize>]) -> Result<Vec<BootResult>, SearchError<T::Error>> {
        let mut came: Vec<BootResult> = arms.iter().map(|_| Err(String::new())).collect();
        for arm in self.orders.next(arms.len()) {
            came[arm] = self.boot_twice(&arms[arm])?;
        }
        if let Err(why) = &came[0] {
            self.lost += 1;
            if self.lost > 1 {
                return Err(SearchError::Default(why.clone()));
            }
        }
        Ok(came)
    }

    /// One boot, and another where it gave no value: a busy host is not a broken kernel.
    fn boot_twice(&mut self, settings: &[usize]) -> Result<BootResult, SearchError<T::Error>> {
        let first = self.boot(settings)?;
        if first.is_ok() {
            return Ok(first);
        }
        self.boot(settings)
    }

    fn boot(&mut self, settings: &[usize]) -> Result<BootResult, SearchError<T::Error>> {
        let boot = self.trials.boot(settings)?;
        self.boots += 1;
        self.spent_s += boot.seconds.max(0.0);
        let is_value = |value: &f64| value.is_finite() && *value > 0.0;
        let none = || "it measured nothing".to_owned();
        Ok(boot
            .measured
            .and_then(|value| Some(value).filter(is_value).ok_or_else(none)))
    }

    /// Adds a block's values to each arm's pairs; an arm without a value is broken.
    fn add(
        &mut self,
        arms: &[usize],
        came: &[BootResult],
        default: &BootResult,
        pairs: &mut [Pairs],
    ) {
        for (index, outcome) in arms.iter().zip(came) {
            match outcome {
                Err(why) => self.tried[*index].verdict = CandidateResult::Broken(why.clone()),
                Ok(_) => self.add_pair(&mut pairs[*index], default, outcome),
            }
        }
    }

    fn add_pair(&self, pairs: &mut Pairs, default: &BootResult, arm: &BootResult) {
        if let (Ok(default), Ok(arm)) = (default, arm) {
            pairs.add(self.search.measure, *default, *arm);
        }
    }

    fn screened_out(&mut self, index: usize, pairs: &Pairs) {
        let tried = &mut self.tried[index];
        tried.verdict = CandidateResult::ScreenedOut;
        tried.effect = pairs.effect(self.search.measure);
    }

    /// What a boot took until now, s.
    fn boot_s(&self) -> f64 {
        self.spent_s / self.boots.max(1) as f64
    }

    /// How many boots fit into what is left of the budget.
    fn affordable(&self) -> usize {
        let left_s = (self.search.budget_s - self.spent_s).max(0.0);
        // A trial that takes no time is one of a test.
        (left_s / self.boot_s().max(1e-3)) as usize
    }

    fn has_time_for(&self, boots: usize) -> bool {
        boots <= self.affordable()
    }
}

/// The middle of the default's two boots (of their logarithms, as ratios are compared).
fn pooled(default: &BootResult, again: &BootResult) -> BootResult {
    match (default, again) {
        (Ok(one), Ok(other)) => Ok((one * other).sqrt()),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(*one),
        (Err(why), Err(_)) => Err(why.clone()),
    }
}

/// The default and each candidate alone.
fn arms(candidates: &[usize]) -> Vec<Vec<usize>> {
    let alone = candidates.iter().map(|it| vec![*it]);
    std::iter::once(Vec::new()).chain(alone).collect()
}
