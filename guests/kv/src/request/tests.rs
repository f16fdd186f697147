//! Commands, good and bad.
