//! What to do before a halt with a timer that comes earlier than needed.
//!
//! To leave it alone costs nothing if the core is woken often anyway: the deadline behind it
//! has moved on each time, and the timer ends one halt of many. On a core that is rarely
//! woken it is a wake-up by itself, which costs as much as ten writes of the timer or more.
//! To put it off costs one write now, and one when a nearer deadline comes.
//!
//! [`Pace`] takes the longest of the recent halts, which fades by a quarter with each, for
//! the next one.

/// Halts that may lie before the timer's interrupt if it is to be put off: two writes for
/// each, against a wake-up.
const HALTS: u64 = 4;

/// A timer that is early by less stays: the halt ends then in any case.
const LEAST_EARLY_NS: u64 = 1_000_000;

/// How long a core halts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    recent_ns: u64,
}

impl Pace {
    /// Of a core that has not halted yet.
    pub const fn new() -> Self {
        Self { recent_ns: 0 }
    }

    /// Takes note of a halt.
    #[inline]
    pub const fn record(&mut self, halt_ns: u64) {
        let faded_ns = self.recent_ns - (self.recent_ns >> 2);
        self.recent_ns = if halt_ns > faded_ns {
            halt_ns
        } else {
            faded_ns
        };
    }

    /// Whether to put off a timer that comes `left_ns` from now, when the core needs it at
    /// `needed_ns` from now only; `None`: not at all.
    #[inline]
    pub const fn puts_off(self, left_ns: u64, needed_ns: Option<u64>) -> bool {
        let is_early = match needed_ns {
            Some(needed_ns) => needed_ns.saturating_sub(left_ns) >= LEAST_EARLY_NS,
            None => true,
        };
        is_early && self.recent_ns.saturating_mul(HALTS) >= left_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn paced(halts_ns: impl IntoIterator<Item = u64>) -> Pace {
        let mut pace = Pace::new();
        halts_ns.into_iter().for_each(|ns| pace.record(ns));
        pace
    }

    #[test]
    fn a_core_that_is_woken_once_a_second_puts_a_timer_off() {
        // The halt before the request, and that before its acknowledgement.
        let pace = paced([1_000 * MS, MS]);
        assert!(pace.puts_off(200 * MS, None));
        assert!(pace.puts_off(200 * MS, Some(10_000 * MS)));
        assert!(!pace.puts_off(200 * MS, Some(200 * MS + LEAST_EARLY_NS - 1)));
    }

    #[test]
    fn a_core_that_is_woken_often_leaves_it_until_it_is_near() {
        let pace = paced([10 * MS; 20]);
        assert!(!pace.puts_off(200 * MS, None));
        assert!(pace.puts_off(40 * MS, None));
        let pace = paced([50_000; 20]);
        assert!(!pace.puts_off(MS, None));
    }

    #[test]
    fn a_long_halt_fades() {
        let pace = paced(core::iter::once(10_000 * MS).chain([10_000; 60]));
        assert!(!pace.puts_off(200 * MS, None));
    }
}
