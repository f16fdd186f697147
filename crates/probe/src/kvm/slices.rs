//! Slices of time in which events are counted: their numbers, and when one ended.
//!
//! The programs number them (`slice_now` in `bpf/kvm.bpf.c`): in each period of the kernel's
//! ticks one, and each burst one. They see neither a period's slice nor a burst end. A thread
//! that was on a CPU then was counted until the end and no longer, so both sides work it out:
//! the end of a burst, and of a slice that the gate cuts short, user space writes down
//! ([`Ends`]); others end by the clock.

use std::collections::VecDeque;

use rustix::time::{ClockId, clock_getres};

use super::gate_words::{ALL, GateMap, Words};

/// Ticks in a period.
pub(super) const PERIOD_TICKS: u64 = 1 << 5;
/// Bursts are numbered from here: no slice of a period has such a number.
const FIRST_BURST: u64 = 1 << 62;
/// Ends that are known.
pub(super) const ENDS: u64 = 64;

/// The number of a burst; the first, 0, is the time until the gate is narrowed.
pub(super) fn burst(number: u64) -> u64 {
    match number {
        0 => 0,
        number => FIRST_BURST + number,
    }
}

/// Ends of slices that user space ended: the slice and when.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends(VecDeque<(u64, u64)>);

impl Ends {
    /// The slice ends now.
    pub(super) fn push(&mut self, map: &mut impl GateMap, slice: u64, now_ns: u64) {
        self.0.retain(|(known, _)| known % ENDS != slice % ENDS);
        self.0.push_back((slice, now_ns));
        map.write_end(slice, now_ns);
    }

    fn of(&self, slice: u64) -> Option<u64> {
        let found = self.0.iter().find(|(known, _)| *known == slice);
        found.map(|(_, ns)| *ns)
    }
}

/// The slices until now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slices<'a> {
    pub(super) gate: Words,
    pub(super) ends: &'a Ends,
    pub(super) tick_ns: u64,
    pub(super) now_ns: u64,
}

impl Slices<'_> {
    /// Until when this slice was counted (`ended_ns` in `bpf/kvm.bpf.c`).
    pub(super) fn until_ns(&self, slice: u64) -> Option<u64> {
        if let Some(ended_ns) = self.ends.of(slice) {
            return Some(ended_ns);
        }
        if self.gate.open_ticks == ALL && self.gate.burst == slice {
            return Some(self.now_ns);
        }
        let old = Some(self.gate.old);
        let old = old.filter(|old| old.open_ticks > 0 && slice <= old.slice);
        let last = old.or_else(|| self.gate.periods())?;
        let end_ns = last.slice_ns + last.open_ticks * self.tick_ns;
        let periods = last.slice.checked_sub(slice)?;
        let ago_ns = periods.checked_mul(PERIOD_TICKS * self.tick_ns)?;
        Some(self.now_ns.min(end_ns.checked_sub(ago_ns)?))
    }
}

/// Length of the kernel's tick.
pub(super) fn tick_ns() -> u64 {
    let length = clock_getres(ClockId::MonotonicCoarse);
    let whole = u64::try_from(length.tv_sec).unwrap_or(0) * 1_000_000_000;
    (whole + u64::try_from(length.tv_nsec).unwrap_or(0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::gate_words::{CLOSED, InMemory, Periods};
    use super::*;

    const TICK_NS: u64 = 1_000;

    fn until(gate: Words, ends: &Ends, slice: u64) -> Option<u64> {
        let slices = Slices {
            gate,
            ends,
            tick_ns: TICK_NS,
            now_ns: 1_000_000,
        };
        slices.until_ns(slice)
    }

    #[test]
    fn bursts_end_when_user_space_ends_them_however_long_ago() {
        let mut map = InMemory::default();
        let mut ends = Ends::default();
        for number in 1..=ENDS {
            ends.push(&mut map, burst(number), number * 100);
        }
        let at_rest = Words::closed();
        assert_eq!(until(at_rest, &ends, burst(1)), Some(100));
        assert_eq!(until(at_rest, &ends, burst(ENDS)), Some(ENDS * 100));
        ends.push(&mut map, burst(ENDS + 1), 7);
        assert_eq!(until(at_rest, &ends, burst(1)), None);
        assert_eq!(map.ends.len(), ENDS as usize + 1);
        let open = Words {
            open_ticks: ALL,
            burst: burst(ENDS + 2),
            ..Words::default()
        };
        assert_eq!(until(open, &ends, burst(ENDS + 2)), Some(1_000_000));
    }

    #[test]
    fn slices_of_periods_end_by_the_clock() {
        let gate = Words {
            open_ticks: 4,
            slice: 90,
            slice_ns: 500_000,
            ..Words::default()
        };
        let mut ends = Ends::default();
        assert_eq!(until(gate, &ends, 90), Some(504_000));
        assert_eq!(until(gate, &ends, 88), Some(504_000 - 2 * 32_000));
        assert_eq!(until(gate, &ends, 91), None);
        // Longer ago than the clock.
        assert_eq!(until(gate, &ends, 1), None);
        assert_eq!(until(gate, &ends, burst(1)), None);
        // The gate was wider before it changed, and its slices went on from elsewhere.
        let changed = Words {
            old: Periods {
                open_ticks: 10,
                slice: 88,
                slice_ns: 430_000,
            },
            ..gate
        };
        assert_eq!(until(changed, &ends, 88), Some(440_000));
        assert_eq!(until(changed, &ends, 87), Some(408_000));
        assert_eq!(until(changed, &ends, 89), Some(504_000 - 32_000));
        let at_rest = Words {
            open_ticks: CLOSED,
            ..changed
        };
        assert_eq!(until(at_rest, &ends, 88), Some(440_000));
        assert_eq!(until(at_rest, &ends, 89), None);
        // The gate cut it short.
        ends.push(&mut InMemory::default(), 90, 501_000);
        assert_eq!(until(gate, &ends, 90), Some(501_000));
        // It is open still.
        let late = Words {
            slice_ns: 999_000,
            ..gate
        };
        assert_eq!(until(late, &Ends::default(), 90), Some(1_000_000));
    }
}
