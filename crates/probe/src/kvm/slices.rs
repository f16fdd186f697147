//! Slices of time in which events are counted: their numbers, and when one ended.
//!
//! The programs number them (`slice_now` in `bpf/kvm.bpf.c`): in each period of the kernel's
//! ticks one, and each burst one. They see neither a period's slice nor a burst end. A thread
//! that was on a CPU then was counted until the end and no longer, so both sides work it out:
//! the end of a burst, and of a slice that the gate cuts short, user space writes down
//! ([`Ends`]); others end by the clock. With its end goes what a burst stands for: how long it
//! was, and the rests beside it.

use std::collections::VecDeque;

use rustix::time::{ClockId, clock_getres};

use super::gate_words::{ALL, GateMap, Words};
use super::weighted::WHOLE;

/// Ticks in a period.
pub(super) const PERIOD_TICKS: u64 = 1 << 5;
/// Bursts are numbered from here: no slice of a period has such a number.
const FIRST_BURST: u64 = 1 << 62;
/// Those of periods are numbered from a multiple of this, another one whenever the gate changes: a
/// slice is one of one length.
const A_SETTING: u64 = 1 << 40;
/// Ends that are known.
pub(super) const ENDS: u64 = 64;

/// The number of a burst; the first, 0, is the time until the gate is narrowed.
pub(super) fn burst(number: u64) -> u64 {
    match number {
        0 => 0,
        number => FIRST_BURST + number,
    }
}

/// What the numbers of periods are added to, for the gate's nth change.
pub(super) fn setting(number: u64) -> u64 {
    number % (FIRST_BURST / A_SETTING) * A_SETTING
}

/// What a count stands for in a slice of a period that is open for this many ticks.
pub(super) fn of_ticks(open_ticks: u64) -> u64 {
    match open_ticks {
        0 | PERIOD_TICKS.. => WHOLE,
        fewer => (WHOLE * PERIOD_TICKS + fewer / 2) / fewer,
    }
}

/// The end of a slice that user space ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) slice: u64,
    pub(super) ns: u64,
    /// What a count of it stands for.
    pub(super) weight: u64,
}

/// Those that are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends(VecDeque<End>);

impl Ends {
    /// A slice ends.
    pub(super) fn push(&mut self, map: &mut impl GateMap, end: End) {
        self.0
            .retain(|known| known.slice % ENDS != end.slice % ENDS);
        self.0.push_back(end);
        map.write_end(end);
    }

    fn of(&self, slice: u64) -> Option<End> {
        self.0.iter().find(|known| known.slice == slice).copied()
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
    /// What a count of this slice stands for; `begun`: what the gate said when it began
    /// (`weight_of` in `bpf/kvm.bpf.c`).
    pub(super) fn weight(&self, slice: u64, begun: u64) -> u64 {
        match self.ends.of(slice) {
            Some(end) => end.weight,
            None if begun == 0 => WHOLE,
            None => begun,
        }
    }

    /// Until when this slice was counted (`ended_ns` in `bpf/kvm.bpf.c`).
    pub(super) fn until_ns(&self, slice: u64) -> Option<u64> {
        if let Some(end) = self.ends.of(slice) {
            return Some(end.ns);
        }
        if self.gate.open_ticks == ALL && self.gate.burst == slice {
            return Some(self.now_ns);
        }
        let old = Some(self.gate.old).filter(|old| old.open_ticks > 0 && slice <= old.slice);
        let last = old.or_else(|| self.gate.periods())?;
        if last.slice / A_SETTING != slice / A_SETTING {
            return None;
        }
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

    fn end(slice: u64, ns: u64) -> End {
        End {
            slice,
            ns,
            weight: WHOLE,
        }
    }

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
            ends.push(&mut map, end(burst(number), number * 100));
        }
        let at_rest = Words::closed();
        assert_eq!(until(at_rest, &ends, burst(1)), Some(100));
        assert_eq!(until(at_rest, &ends, burst(ENDS)), Some(ENDS * 100));
        ends.push(&mut map, end(burst(ENDS + 1), 7));
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
    fn the_end_of_a_slice_says_what_it_stands_for() {
        let mut ends = Ends::default();
        let weight = 40 * WHOLE;
        let burst = End {
            weight,
            ..end(burst(3), 100)
        };
        ends.push(&mut InMemory::default(), burst);
        let slices = Slices {
            gate: Words::closed(),
            ends: &ends,
            tick_ns: TICK_NS,
            now_ns: 1_000,
        };
        assert_eq!(slices.weight(burst.slice, 7 * WHOLE), weight);
        assert_eq!(slices.weight(burst.slice + 1, 7 * WHOLE), 7 * WHOLE);
        // Before the gate said anything, all was counted.
        assert_eq!(slices.weight(0, 0), WHOLE);
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
        // The gate was another one before, and what it was is not known any more.
        let later = Words {
            slice: setting(2) + 90,
            old: Periods {
                slice: setting(1) + 88,
                ..changed.old
            },
            ..changed
        };
        assert_eq!(until(later, &ends, setting(1) + 87), Some(408_000));
        assert_eq!(until(later, &ends, 87), None);
        // The gate cut it short.
        ends.push(&mut InMemory::default(), end(90, 501_000));
        assert_eq!(until(gate, &ends, 90), Some(501_000));
        // It is open still.
        let late = Words {
            slice_ns: 999_000,
            ..gate
        };
        assert_eq!(until(late, &Ends::default(), 90), Some(1_000_000));
    }
}
