//! Quantiles, confidence intervals, rank tests; pure.
//!
//! What a sound report needs: medians with intervals that assume no distribution,
//! means and ratios with intervals for comparisons with the literature, paired, rank and
//! permutation tests for "is A really faster than B", and the mean of the fastest
//! samples as in Kernel Tailoring. Below the number of samples that an interval or a p-value
//! needs there is none. Distribution functions come from `statrs`.
//!
//! The expected values in the tests come from SciPy 1.17 and NumPy; each
//! test names the call. Functions return `None` for samples that are not finite.

#![forbid(unsafe_code)]

mod interval;
mod many;
mod paired;
mod quantile;
mod random;
mod rank;
#[cfg(test)]
mod simulation;
mod summary;

pub use interval::{
    Interval, Part, count_interval, half_width, mean_interval, quantile_interval, ratio_interval,
    share_interval,
};
pub use many::{Difference, Estimated, adjusted, adjusted_by_holm, difference};
pub use paired::{LEAST_UNITS, PairedTest, permutation, signed_rank, signed_rank_p};
pub use quantile::{quantile, sorted};
pub use random::SplitMix64;
pub use rank::{RankTest, mann_whitney};
pub use summary::{Summary, mean, summarize};
