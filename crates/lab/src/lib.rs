//! Experiments, load generators, run records, reports.
