//! What one kind of event came to, as it was counted and in a whole window.

use super::events::VALUE_WORDS;
use super::slices::Slices;
use super::weighted::Weighted;

/// What the programs have counted of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) count: u64,
    pub(super) ns: u64,
    /// Each by the weight of its slice.
    pub(super) weighted: Weighted,
    pub(super) weighted_ns: u64,
}

/// How often and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) count: u64,
    pub(super) ns: u64,
    /// By how much the count may be off ([`super::weighted::Sample::margin`]); `None`: not known.
    pub(super) margin: Option<u64>,
}

impl Tally {
    pub(super) fn of(words: [u64; VALUE_WORDS], slices: &Slices<'_>) -> Self {
        let [count, ns, _, _, slice, weight, rest @ ..] = words;
        let [count_before, ns_before, weighted_ns, whole, groups @ ..] = rest;
        let weight = slices.weight(slice, weight);
        let mut weighted = Weighted { whole, groups };
        weighted.add(slice, count.saturating_sub(count_before), weight);
        let last_ns = ns.saturating_sub(ns_before);
        Self {
            count,
            ns,
            weighted,
            weighted_ns: weighted_ns.saturating_add(last_ns.saturating_mul(weight)),
        }
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            ns: self.ns.saturating_sub(before.ns),
            weighted: self.weighted.since(&before.weighted),
            weighted_ns: self.weighted_ns.saturating_sub(before.weighted_ns),
        }
    }
}
