//! How much was polled lately, and how much more until the next look.

/// The rule keeps its budget over any stretch of this length.
pub(super) const KEPT_NS: u64 = 10_000_000_000;
/// Parts of it that are summed apart.
const SLOTS: usize = 16;
const SLOT_NS: u64 = KEPT_NS / SLOTS as u64;
/// A look comes by a host's tick: 4 ms at 250 Hz.
const TICK_NS: u64 = 4_000_000;
/// A shorter time between two looks says little about the next.
const SHORTEST_NS: u64 = 1_000_000;

/// Polling within the last [`KEPT_NS`] and up to a slot more.
#[derive(Clone, Debug)]
pub(super) struct Lately {
    polled_ns: [u64; SLOTS + 1],
    /// Number of the latest slot since the clock began.
    slot: u64,
    /// The most between two looks, in slots of the last two [`KEPT_NS`].
    longest_ns: [u64; 2],
    half: u64,
}

impl Lately {
    pub(super) const fn new() -> Self {
        Self {
            polled_ns: [0; SLOTS + 1],
            slot: 0,
            longest_ns: [0; 2],
            half: 0,
        }
    }

    /// Adds what was polled in the `elapsed_ns` before `now_ns`.
    pub(super) fn add(&mut self, polled_ns: u64, elapsed_ns: u64, now_ns: u64) {
        self.turn(now_ns);
        let slot = &mut self.polled_ns[(self.slot % (SLOTS as u64 + 1)) as usize];
        *slot = slot.saturating_add(polled_ns);
        // Where ticks of several CPUs came soon after each other, the next may be a whole
        // one away: vCPUs that go on like this reach so much by then.
        let elapsed_ns = elapsed_ns.max(SHORTEST_NS);
        let by_tick_ns = super::reading::mul_div(polled_ns, TICK_NS, elapsed_ns);
        let next_ns = by_tick_ns.max(polled_ns.saturating_add(polled_ns / 2));
        self.longest_ns[0] = self.longest_ns[0].max(next_ns);
    }

    /// What will have been polled at the next look if polling goes on.
    pub(super) fn with_next_ns(&self) -> u64 {
        let sum = |sum: u64, ns: &u64| sum.saturating_add(*ns);
        let longest_ns = self.longest_ns[0].max(self.longest_ns[1]);
        self.polled_ns.iter().fold(longest_ns, sum)
    }

    /// Forgets slots that are over.
    fn turn(&mut self, now_ns: u64) {
        let slot = now_ns / SLOT_NS;
        let slots = SLOTS as u64 + 1;
        for over in (self.slot + 1..=slot).take(SLOTS + 1) {
            self.polled_ns[(over % slots) as usize] = 0;
        }
        let half = now_ns / KEPT_NS;
        match half.saturating_sub(self.half) {
            0 => {}
            1 => self.longest_ns = [0, self.longest_ns[0]],
            _ => self.longest_ns = [0; 2],
        }
        (self.slot, self.half) = (slot.max(self.slot), half.max(self.half));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn polling_is_forgotten_after_ten_seconds() {
        let mut lately = Lately::new();
        lately.add(10 * MS, 20 * MS, 1000 * MS);
        assert_eq!(lately.with_next_ns(), 25 * MS);
        lately.add(4 * MS, 20 * MS, 6000 * MS);
        assert_eq!(lately.with_next_ns(), 29 * MS);
        lately.add(0, MS, 12_000 * MS);
        assert_eq!(lately.with_next_ns(), 19 * MS);
        lately.add(0, MS, 40_000 * MS);
        assert_eq!(lately.with_next_ns(), 0);
    }

    #[test]
    fn what_a_whole_tick_would_add_is_expected_after_a_short_look() {
        let mut lately = Lately::new();
        lately.add(2 * MS, 2 * MS, 1000 * MS);
        // One more tick at a rate of one CPU.
        assert_eq!(lately.with_next_ns(), 6 * MS);
        // An interval that says little is taken for a millisecond.
        let mut lately = Lately::new();
        lately.add(MS / 2, 1, 1000 * MS);
        assert_eq!(lately.with_next_ns(), MS / 2 + 2 * MS);
    }

    #[test]
    fn a_clock_that_jumps_is_survived() {
        let mut lately = Lately::new();
        lately.add(u64::MAX, 0, u64::MAX);
        lately.add(u64::MAX, u64::MAX, 0);
        assert_eq!(lately.with_next_ns(), u64::MAX);
    }
}
