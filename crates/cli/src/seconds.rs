//! A time in seconds on the command line.

use std::str::FromStr;
use std::time::Duration;

/// Shortest and longest time that can be requested, s.
const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 86_400.0;

/// A time to watch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seconds(Duration);

/// A duration out of range.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a duration is {SHORTEST} to {LONGEST} seconds")]
pub(crate) struct SecondsError;

impl Seconds {
    /// The time.
    pub(crate) fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Seconds {
    type Err = SecondsError;

    fn from_str(text: &str) -> Result<Self, SecondsError> {
        let seconds: f64 = text.parse().map_err(|_| SecondsError)?;
        if (SHORTEST..=LONGEST).contains(&seconds) {
            Ok(Self(Duration::from_secs_f64(seconds)))
        } else {
            Err(SecondsError)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_bounded_on_both_sides() {
        let of = |text: &str| text.parse().map(Seconds::duration);
        assert_eq!(of("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1", "inf", "NaN", "5s", "86401"] {
            assert_eq!(of(text), Err(SecondsError), "{text}");
        }
    }
}
