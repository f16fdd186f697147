//! [`Backoff`]: how long a failed machine waits for its next start, with Docker's rule.

use std::time::Duration;

/// The delay before the first restart in a row; each further one doubles it.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// A machine that ran at least this long begins a new row.
const STEADY: Duration = Duration::from_secs(10);

/// The restarts of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    most: Option<u32>,
    in_a_row: u32,
    total: u32,
}

impl Backoff {
    /// No restart so far, and at most `most` in a row.
    pub(super) fn new(most: Option<u32>) -> Self {
        Self {
            most,
            in_a_row: 0,
            total: 0,
        }
    }

    /// Restarts so far.
    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// Counts a restart of a machine that failed after running for `ran`; returns the delay. `None`
    /// if no restart is left.
    pub(super) fn next(&mut self, ran: Duration) -> Option<Duration> {
        if ran >= STEADY {
            self.in_a_row = 0;
        }
        if self.most.is_some_and(|most| self.in_a_row >= most) {
            return None;
        }
        let doubled = 2u32.checked_pow(self.in_a_row);
        let delay = doubled.and_then(|factor| FIRST.checked_mul(factor));
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.total = self.total.saturating_add(1);
        Some(delay.map_or(LONGEST, |delay| delay.min(LONGEST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::from_millis(5);

    #[test]
    fn delays_double_up_to_ten_seconds() {
        let mut backoff = Backoff::new(None);
        let delays: Vec<u128> = (0..9)
            .map(|_| backoff.next(AT_ONCE).unwrap_or_default().as_millis())
            .collect();
        let doubled = [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000];
        assert_eq!(delays, doubled);
        for _ in 0..100 {
            assert_eq!(backoff.next(AT_ONCE), Some(LONGEST));
        }
        assert_eq!(backoff.total(), 109);
    }

    #[test]
    fn a_machine_that_ran_begins_a_new_row() {
        let mut backoff = Backoff::new(Some(2));
        for _ in 0..3 {
            assert_eq!(backoff.next(STEADY), Some(FIRST));
        }
        let just_short = STEADY - Duration::from_nanos(1);
        assert_eq!(backoff.next(just_short), Some(2 * FIRST));
        assert_eq!(backoff.next(AT_ONCE), None);
        assert_eq!(backoff.total(), 4);
    }
}
