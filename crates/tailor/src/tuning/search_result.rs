//! What came of a search.

use serde::Serialize;

use super::Measure;

/// A change against the default, from paired boots.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// The middle change of the measured value, %.
    pub change_percent: f64,
    /// Its 95 % interval; `None` below six blocks.
    pub interval_percent: Option<(f64, f64)>,
    /// Two-sided p of no change (Wilcoxon's signed-rank test); `None` below six blocks.
    pub p: Option<f64>,
    /// Blocks in which both were measured.
    pub blocks: usize,
}

/// The result of a candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateResult {
    /// Not booted: the budget is too short for all.
    NoTime,
    /// Others were better in the screening, or the default was.
    ScreenedOut,
    /// The application did not work with it, twice; why.
    Broken(String),
    /// Tested, and not to be told from chance.
    Chance,
    /// Tested, and better than the default.
    Better,
}

/// A candidate and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Its place in the list.
    pub setting: usize,
    /// The result.
    pub verdict: CandidateResult,
    /// Of the boots of the last stage that it reached.
    pub effect: Option<Effect>,
    /// p after Holm's adjustment for all that were tested, one that is not better has 1.
    pub adjusted_p: Option<f64>,
}

/// Settings that were booted together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Combination {
    /// Their places in the list.
    pub settings: Vec<usize>,
    /// Of boots that chose none of them.
    pub effect: Effect,
}

/// What the kernel is to be booted with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The combination.
    Keep,
    /// Its default settings; why.
    Default(Why),
}

/// Why the default settings stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// No candidate was better in the screening.
    NothingBetter,
    /// Nothing differs from chance.
    Nothing,
    /// The default's boots differ too much from each other.
    TooNoisy,
    /// The control differs from the default.
    Unsound,
    /// The combination was not better on new boots.
    NotConfirmed,
    /// The combination does not work; why.
    NotTogether(String),
    /// The budget ended before there were boots enough.
    NoTime,
}

/// The whole of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchResult {
    /// What boots were measured by.
    pub measure: Measure,
    /// Of the orders of boots.
    pub seed: u64,
    /// Each candidate.
    pub tried: Vec<Tried>,
    /// The default against itself, in the test.
    pub control: Option<Effect>,
    /// The winners together.
    pub combination: Option<Combination>,
    /// What is to be done.
    pub decision: Decision,
    /// Boots in all.
    pub boots: usize,
    /// What they took, s.
    pub seconds: f64,
}

impl Tried {
    /// Not tried yet.
    pub(super) const fn not(setting: usize) -> Self {
        Self {
            setting,
            verdict: CandidateResult::NoTime,
            effect: None,
            adjusted_p: None,
        }
    }

    pub(super) const fn is_broken(&self) -> bool {
        matches!(self.verdict, CandidateResult::Broken(_))
    }
}

impl SearchResult {
    /// Settings to boot with; none where the default stays.
    pub fn settings(&self) -> &[usize] {
        match (&self.decision, &self.combination) {
            (Decision::Keep, Some(combination)) => &combination.settings,
            _ => &[],
        }
    }

    /// The smallest change that the test could see: half of the control's interval, %.
    pub fn resolution_percent(&self) -> Option<f64> {
        let (low, high) = self.control?.interval_percent?;
        Some((high - low) / 2.0)
    }

    /// Whether the default differs from itself, as no sound bench lets it.
    pub(super) fn differs_from_itself(&self, level: f64) -> bool {
        self.control.and_then(|it| it.p).is_some_and(|p| p <= level)
    }
}
