//! Quantiles, confidence intervals, rank tests; pure.
//!
//! What a sound report needs: medians with intervals that assume no distribution,
//! means with intervals for comparisons with the literature, a rank test with an
//! effect size for "is A really faster than B", and the mean of the fastest
//! samples as in Kernel Tailoring. Distribution functions come from `statrs`.
//!
//! The expected values in the tests come from SciPy 1.17 and NumPy; each
//! test names the call. Functions return `None` for samples that are not finite.

#![forbid(unsafe_code)]

mod bootstrap;
mod interval;
mod quantile;
mod random;
mod rank;
mod summary;

pub use bootstrap::bootstrap_interval;
pub use interval::{Interval, mean_interval, median_interval};
pub use quantile::{quantile, sorted};
pub use random::SplitMix64;
pub use rank::{RankTest, mann_whitney};
pub use summary::{Summary, mean, mean_of_fastest, summarize};
