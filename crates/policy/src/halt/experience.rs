//! What polling brought, by window, as KVM counted it.
//!
//! The curve takes each wait within a window as caught. KVM's own rule below the
//! window ([`super::GrowShrink`]) can do worse: for waits that alternate between
//! 30 us and 5 ms it polls 10 us in vain each time and catches none. It can also cost
//! less than the curve says, which knows waits only by powers of two.

use super::curve::POINTS;
use super::reading::mul_div;
use super::{LONGEST_WINDOW_NS, Reading, SHORTEST_SHIFT};

/// Polling of this length is enough to judge a window by, and to correct its cost.
const ENOUGH_NS: u64 = 2_000_000;
/// A catch that costs more than this many of the longest window does not pay.
const EXPENSIVE: u64 = 2;
/// A window that does not pay rests for this long, and twice as long each time again.
const REST_NS: u64 = 2_000_000_000;
const LONGEST_REST_NS: u64 = 64_000_000_000;
/// Part of the predicted cost that is assumed at least.
const LEAST_COST: u64 = 4;

/// Results of all windows.
#[derive(Clone, Debug)]
pub(super) struct Experience {
    windows: [Tried; POINTS],
}

/// Results of one.
#[derive(Clone, Copy, Debug)]
struct Tried {
    /// Since it was last judged.
    caught: u64,
    polled_ns: u64,
    /// For its cost: as counted, and as the curve predicted it.
    counted_ns: u64,
    predicted_ns: u64,
    rests_until_ns: u64,
    next_rest_ns: u64,
}

impl Experience {
    /// None yet.
    pub(super) const fn new() -> Self {
        let untried = Tried {
            caught: 0,
            polled_ns: 0,
            counted_ns: 0,
            predicted_ns: 0,
            rests_until_ns: 0,
            next_rest_ns: REST_NS,
        };
        Self {
            windows: [untried; POINTS],
        }
    }

    /// Adds a stretch of time in which `window_ns` was in force, with the cost that
    /// the curve predicts for its waits.
    pub(super) fn add(
        &mut self,
        window_ns: u64,
        counted: &Reading,
        predicted_ns: u64,
        now_ns: u64,
    ) {
        let Some(tried) = index(window_ns).and_then(|index| self.windows.get_mut(index)) else {
            return;
        };
        tried.correct(counted.polled_ns(), predicted_ns);
        tried.caught = tried.caught.saturating_add(counted.catches());
        tried.polled_ns = tried.polled_ns.saturating_add(counted.polled_ns());
        if tried.polled_ns >= ENOUGH_NS {
            tried.judge(now_ns);
        }
    }

    /// Whether the window at this index of the curve rests.
    pub(super) fn rests(&self, index: usize, now_ns: u64) -> bool {
        let tried = self.windows.get(index);
        tried.is_some_and(|tried| now_ns < tried.rests_until_ns)
    }

    /// What the curve's cost at this index comes to.
    pub(super) fn cost(&self, index: usize, predicted: u128) -> u128 {
        match self.windows.get(index) {
            Some(tried) if tried.predicted_ns >= ENOUGH_NS => {
                let whole = tried.predicted_ns;
                let counted = tried.counted_ns.clamp(whole / LEAST_COST, whole);
                predicted * u128::from(counted) / u128::from(whole)
            }
            _ => predicted,
        }
    }
}

impl Tried {
    /// Old stretches weigh half once there are enough new ones.
    fn correct(&mut self, counted_ns: u64, predicted_ns: u64) {
        if self.predicted_ns >= 4 * ENOUGH_NS {
            self.counted_ns /= 2;
            self.predicted_ns /= 2;
        }
        self.counted_ns = self.counted_ns.saturating_add(counted_ns);
        self.predicted_ns = self.predicted_ns.saturating_add(predicted_ns);
    }

    fn judge(&mut self, now_ns: u64) {
        let worth_ns = self.caught.saturating_mul(EXPENSIVE * LONGEST_WINDOW_NS);
        if self.polled_ns > worth_ns {
            self.rests_until_ns = now_ns.saturating_add(self.next_rest_ns);
            self.next_rest_ns = mul_div(self.next_rest_ns, 2, 1).min(LONGEST_REST_NS);
        } else {
            self.next_rest_ns = REST_NS;
        }
        (self.caught, self.polled_ns) = (0, 0);
    }
}

/// The index of a window in the curve; none for no polling.
fn index(window_ns: u64) -> Option<usize> {
    let shift = window_ns.checked_ilog2()?;
    (shift as usize + 1).checked_sub(SHORTEST_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn polled(caught: u64, ns: u64) -> Reading {
        let mut counted = Reading {
            missed_ns: ns,
            ..Reading::default()
        };
        counted.caught[16] = caught;
        counted
    }

    #[test]
    fn a_window_that_catches_nothing_rests_longer_each_time() {
        let mut experience = Experience::new();
        let mut add = |caught, now_ns| {
            experience.add(1 << 16, &polled(caught, 3_000_000), 3_000_000, now_ns);
            let rests = |at| experience.rests(6, now_ns + at);
            (rests(SECOND), rests(3 * SECOND), rests(5 * SECOND))
        };
        assert_eq!(add(0, SECOND), (true, false, false));
        assert_eq!(add(0, 10 * SECOND), (true, true, false));
        assert_eq!(add(40, 20 * SECOND), (false, false, false));
        assert_eq!(add(0, 30 * SECOND), (true, false, false));
        assert!(!experience.rests(5, 30 * SECOND));
    }

    #[test]
    fn a_window_s_cost_is_corrected_by_what_was_counted() {
        let mut experience = Experience::new();
        assert_eq!(experience.cost(6, 1000), 1000);
        experience.add(1 << 16, &polled(100, 3_000_000), 4_000_000, 0);
        assert_eq!(experience.cost(6, 1000), 750);
        assert_eq!(experience.cost(7, 1000), 1000);
        experience.add(1 << 16, &polled(100, 9_000_000), 4_000_000, 0);
        // Never more than predicted: the account bounds that.
        assert_eq!(experience.cost(6, 1000), 1000);
    }

    #[test]
    fn no_polling_is_not_a_window() {
        assert_eq!(index(0), None);
        assert_eq!(index(1), None);
        assert_eq!(index(1 << SHORTEST_SHIFT), Some(1));
        assert_eq!(index(LONGEST_WINDOW_NS), Some(POINTS - 1));
    }
}
