//! How much was polled lately, and how much more until the next look.

use super::reading::mul_div;

/// The rule keeps its budget over any stretch of this length.
pub(super) const KEPT_NS: u64 = 10_000_000_000;
/// Parts of it that are summed apart.
const SLOTS: usize = 16;
pub(super) const SLOT_NS: u64 = KEPT_NS / SLOTS as u64;
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
        self.spread(polled_ns, elapsed_ns, now_ns);
        // Where ticks of several CPUs came soon after each other, the next may be a whole
        // one away: vCPUs that go on like this reach so much by then.
        let elapsed_ns = elapsed_ns.max(SHORTEST_NS);
        let by_tick_ns = mul_div(polled_ns, TICK_NS, elapsed_ns);
        // Where looks are far apart, as much leaves the sum as comes in: a slot's part.
        let within_slot_ns = mul_div(polled_ns, elapsed_ns.min(SLOT_NS), elapsed_ns);
        let next_ns = by_tick_ns.max(within_slot_ns.saturating_add(within_slot_ns / 2));
        self.longest_ns[0] = self.longest_ns[0].max(next_ns);
    }

    /// Divides what was polled among the slots in which it was.
    fn spread(&mut self, polled_ns: u64, elapsed_ns: u64, now_ns: u64) {
        let mut slot = self.slot;
        let mut until_ns = now_ns.max(slot.saturating_mul(SLOT_NS));
        let elapsed_ns = elapsed_ns.max(1);
        let began_ns = until_ns.saturating_sub(elapsed_ns);
        for _ in 0..=SLOTS {
            let from_ns = slot.saturating_mul(SLOT_NS).max(began_ns);
            let part_ns = mul_div(polled_ns, until_ns - from_ns, elapsed_ns);
            let kept = &mut self.polled_ns[(slot % (SLOTS as u64 + 1)) as usize];
            *kept = kept.saturating_add(part_ns);
            if from_ns == began_ns {
                break;
            }
            (slot, until_ns) = (slot - 1, from_ns);
        }
    }

    /// What will have been polled at the next look if polling goes on, and an eighth of that more: what vCPUs
    /// poll at once in a burst is divided evenly among the slots since the last look.
    pub(super) fn with_next_ns(&self) -> u64 {
        let sum = |sum: u64, ns: &u64| sum.saturating_add(*ns);
        let longest_ns = self.longest_ns[0].max(self.longest_ns[1]);
        let next_ns = longest_ns.saturating_add(longest_ns / 8);
        self.polled_ns.iter().fold(next_ns, sum)
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
        assert_eq!(lately.with_next_ns(), 10 * MS + 135 * MS / 8);
        lately.add(4 * MS, 20 * MS, 6000 * MS);
        assert_eq!(lately.with_next_ns(), 14 * MS + 135 * MS / 8);
        lately.add(0, MS, 12_000 * MS);
        assert_eq!(lately.with_next_ns(), 4 * MS + 135 * MS / 8);
        lately.add(0, MS, 40_000 * MS);
        assert_eq!(lately.with_next_ns(), 0);
    }

    #[test]
    fn what_a_whole_tick_would_add_is_expected_after_a_short_look() {
        let mut lately = Lately::new();
        lately.add(2 * MS, 2 * MS, 1000 * MS);
        // One more tick at a rate of one CPU, and an eighth of it.
        assert_eq!(lately.with_next_ns(), 6 * MS + MS / 2);
        // An interval that says little is taken for a millisecond.
        let mut lately = Lately::new();
        lately.add(MS / 2, 1, 1000 * MS);
        assert_eq!(lately.with_next_ns(), MS / 2 + 9 * MS / 4);
    }

    #[test]
    fn looks_that_are_far_apart_leave_the_budget_to_the_next() {
        // 5 ms a second: 50 in ten, a slot's part of each, and more.
        let mut lately = Lately::new();
        for second in 1..=40 {
            lately.add(5 * MS, 1000 * MS, second * 1000 * MS);
            assert!(lately.with_next_ns() <= 60 * MS, "{second}: {lately:?}");
        }
        // Ticks that meet no halt for 10 s change nothing: it was polled all the time.
        lately.add(50 * MS, 10_000 * MS, 50_000 * MS);
        let next_ns = lately.with_next_ns();
        assert!((50 * MS..=60 * MS).contains(&next_ns), "{next_ns}");
        // What is older than ten seconds is not of them.
        let mut lately = Lately::new();
        lately.add(200 * MS, 100_000 * MS, 100_000 * MS);
        assert!(lately.with_next_ns() <= 24 * MS, "{lately:?}");
    }

    #[test]
    fn a_clock_that_jumps_is_survived() {
        let mut lately = Lately::new();
        lately.add(u64::MAX, 0, u64::MAX);
        lately.add(u64::MAX, u64::MAX, 0);
        assert_eq!(lately.with_next_ns(), u64::MAX);
    }
}
