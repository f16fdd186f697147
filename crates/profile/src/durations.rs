//! Times of one kind of call, kept so that they can be merged.

use serde::{Deserialize, Serialize};

/// How many of the fastest samples are kept: Kernel Tailoring's ideal
/// case is their mean.
pub const FASTEST: usize = 30;

/// Buckets of the histogram: bucket `i` counts samples of which the highest
/// set bit is bit `i`, that is from 2^i to 2^(i+1) - 1 ns; bucket 0 has 0 and 1 ns,
/// the last has everything longer (half a second and more).
pub const BUCKETS: usize = 30;

/// Durations in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Durations {
    /// Sum of all samples, ns.
    pub total_ns: u64,
    /// Shortest sample, ns; 0 for no samples.
    pub shortest_ns: u64,
    /// Longest sample, ns; 0 for no samples.
    pub longest_ns: u64,
    /// The [`FASTEST`] shortest samples in rising order, ns.
    pub fastest_ns: Vec<u64>,
    /// Samples by power of two, at most [`BUCKETS`].
    pub histogram: Vec<u64>,
}

impl Durations {
    /// The bucket that a sample belongs to.
    pub fn bucket(sample_ns: u64) -> usize {
        (sample_ns.max(1).ilog2() as usize).min(BUCKETS - 1)
    }

    /// Adds one sample.
    pub fn add(&mut self, sample_ns: u64) {
        self.merge(&Self {
            total_ns: sample_ns,
            shortest_ns: sample_ns,
            longest_ns: sample_ns,
            fastest_ns: vec![sample_ns],
            histogram: {
                let mut histogram = vec![0; Self::bucket(sample_ns) + 1];
                histogram[Self::bucket(sample_ns)] = 1;
                histogram
            },
        });
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.histogram
            .iter()
            .fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Arithmetic mean, ns.
    pub fn mean_ns(&self) -> Option<u64> {
        self.total_ns.checked_div(self.count())
    }

    /// Mean of the fastest samples, ns.
    pub fn mean_of_fastest_ns(&self) -> Option<u64> {
        let sum = self
            .fastest_ns
            .iter()
            .fold(0_u64, |sum, ns| sum.saturating_add(*ns));
        sum.checked_div(self.fastest_ns.len() as u64)
    }

    /// A bound on the given quantile (0 to 1), ns: the upper edge of the bucket
    /// it falls into, or the longest sample where that is shorter.
    pub fn quantile_bound_ns(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = (quantile.clamp(0.0, 1.0) * count as f64).ceil().max(1.0) as u64;
        let mut seen = 0_u64;
        let bucket = self.histogram.iter().position(|n| {
            seen = seen.saturating_add(*n);
            seen >= rank
        })?;
        let last = bucket == BUCKETS - 1;
        let edge = if last {
            u64::MAX
        } else {
            (2_u64 << bucket) - 1
        };
        Some(edge.min(self.longest_ns))
    }

    /// Adds another's samples, as if all had been seen together.
    pub fn merge(&mut self, other: &Self) {
        if other.count() == 0 {
            return;
        }
        self.shortest_ns = match self.count() {
            0 => other.shortest_ns,
            _ => self.shortest_ns.min(other.shortest_ns),
        };
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.fastest_ns.extend_from_slice(&other.fastest_ns);
        self.fastest_ns.sort_unstable();
        self.fastest_ns.truncate(FASTEST);
        if self.histogram.len() < other.histogram.len() {
            self.histogram.resize(other.histogram.len(), 0);
        }
        for (mine, others) in self.histogram.iter_mut().zip(&other.histogram) {
            *mine = mine.saturating_add(*others);
        }
    }

    /// What contradicts itself here, if anything.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        let count = self.count();
        let fastest = &self.fastest_ns;
        if self.histogram.len() > BUCKETS {
            return Some("a histogram with too many buckets");
        }
        if fastest.len() as u64 != count.min(FASTEST as u64) {
            return Some("fastest samples that the histogram does not have");
        }
        if !fastest.is_sorted() {
            return Some("fastest samples out of order");
        }
        if fastest.first().is_some_and(|ns| *ns != self.shortest_ns) {
            return Some("a shortest sample that is not the fastest");
        }
        if fastest.last().is_some_and(|ns| *ns > self.longest_ns) {
            return Some("a longest sample below others");
        }
        None
    }
}

#[cfg(test)]
#[path = "durations_tests.rs"]
mod tests;
