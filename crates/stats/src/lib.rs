//! Quantiles, confidence intervals, rank tests; pure.
//!
//! What a report needs to say something that stands: medians with intervals
//! that assume no distribution, means with intervals where a comparison with
//! the literature asks for them, a rank test with an effect size for "is A
//! really faster than B", and the mean of the fastest samples of the fourth
//! talk. Distribution functions come from `statrs`.
//!
//! The known answers in the tests were worked out by SciPy 1.17 and NumPy; each
//! test names the call. Samples that are not finite have no order and no mean:
//! functions that meet one return `None`.

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
