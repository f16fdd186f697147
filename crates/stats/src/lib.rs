//! Quantiles, confidence intervals, rank tests; pure.
