//! What a group's threads did within a window.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Cause, Group};
use tare_account::{Histogram, ObserverCost};

// Classes of `bpf/sched.bpf.c`.
const ON_WAITS: u32 = 1;
const ON_STOPPED: u32 = 2;
const ON_ENDS: u32 = 3;
const OFF: u32 = 4;
const READY: u32 = 5;
const READY_MOVED: u32 = 6;
const MOVED: u32 = 7;
const THREAD: u32 = 8;
const CHARGE: u32 = 9;

/// One group within a window. Stretches that go on at its end count with their
/// time until then, and are not yet in a bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Whose.
    pub group: Group,
    /// Length of the window, ns.
    pub window_ns: u64,
    /// Stretches on a CPU.
    pub on_cpu: Histogram,
    /// Stretches off a CPU by cause, the longest time first.
    pub off_cpu: Vec<OffCpuTime>,
    /// Times that a thread stopped to wait.
    pub voluntary_switches: u64,
    /// Times that a thread was stopped although it could have run.
    pub involuntary_switches: u64,
    /// Moves from one CPU to another.
    pub migrations: u64,
    /// Threads that began.
    pub threads_begun: u64,
    /// Times that CPU time was charged to control groups, while that was counted
    /// ([`super::Observer::count_charges`]).
    #[serde(default)]
    pub charges: u64,
    /// What observing cost, all groups together.
    pub observer: ObserverCost,
}

/// Time off a CPU for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpuTime {
    /// Why.
    pub cause: Cause,
    /// How long each time, and together.
    pub stretches: Histogram,
}

impl Times {
    /// Time off a CPU for a cause, ns.
    pub fn off_ns(&self, cause: Cause) -> u64 {
        let of = self.off_cpu.iter().filter(|off| off.cause == cause);
        of.map(|off| off.stretches.sum_ns).sum()
    }

    /// Time off a CPU in input and output, ns.
    pub fn io_ns(&self) -> u64 {
        let io = self.off_cpu.iter().filter(|off| off.cause.is_io());
        io.map(|off| off.stretches.sum_ns).sum()
    }

    /// CPUs kept busy on average, in thousandths of a CPU.
    pub fn busy_millicpus(&self) -> u64 {
        let busy = u128::from(self.on_cpu.sum_ns) * 1000 / u128::from(self.window_ns.max(1));
        u64::try_from(busy).unwrap_or(u64::MAX)
    }
}

/// A key of the map `counts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    group: u32,
    class: u32,
    what: u32,
    bucket: u32,
}

impl Key {
    pub(super) fn group(self) -> Group {
        Group(self.group)
    }
}

impl From<u64> for Key {
    fn from(word: u64) -> Self {
        Self {
            group: (word >> 36) as u32,
            class: (word >> 32) as u32 & 0xf,
            what: (word >> 12) as u32 & 0xf_ffff,
            bucket: word as u32 & 0xfff,
        }
    }
}

/// All counts at one time, with what goes on just then.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    pub(super) counts: BTreeMap<Key, (u64, u64)>,
    pending_on: BTreeMap<u32, u64>,
    pending_off: BTreeMap<(u32, Cause), u64>,
}

impl Reading {
    /// Adds a thread's stretch that goes on: its words in the map `threads`.
    pub(super) fn pending(&mut self, [ids, out, ready, inside]: [u64; 4], now_ns: u64) {
        let (group, what) = (ids as u32, (ids >> 32) as u32);
        let since = |from: u64| now_ns.saturating_sub(from);
        if inside > 0 {
            *self.pending_on.entry(group).or_default() += since(inside);
        }
        let mut off = |cause, ns| *self.pending_off.entry((group, cause)).or_default() += ns;
        if out > 0 && ready > 0 {
            off(Cause::RunQueue, since(ready));
            if ready > out {
                off(Cause::of(what), ready - out);
            }
        } else if out > 0 {
            off(Cause::of(what), since(out));
        }
    }

    /// Adds a thread's latest stretches: key, count and ns of each kind.
    pub(super) fn recent(&mut self, kinds: &[[u64; 3]]) {
        for [key, count, ns] in kinds.iter().filter(|[_, count, _]| *count > 0) {
            let sum = self.counts.entry(Key::from(*key)).or_default();
            *sum = (sum.0 + count, sum.1 + ns);
        }
    }

    /// Leaves out what is known of a group.
    pub(super) fn forget(&mut self, group: Group) {
        self.counts.retain(|key, _| key.group() != group);
        self.pending_on.remove(&group.0);
        self.pending_off.retain(|(of, _), _| *of != group.0);
    }

    /// What a group did between `before` and this.
    pub(super) fn times(&self, before: &Self, group: Group) -> Times {
        let mut times = Times {
            group,
            window_ns: 0,
            on_cpu: Histogram::default(),
            off_cpu: Vec::new(),
            voluntary_switches: 0,
            involuntary_switches: 0,
            migrations: 0,
            threads_begun: 0,
            charges: 0,
            observer: ObserverCost::default(),
        };
        let mut off: BTreeMap<Cause, Histogram> = BTreeMap::new();
        for (key, now) in self.counts.iter().filter(|(key, _)| key.group == group.0) {
            let then = before.counts.get(key).copied().unwrap_or_default();
            let (count, ns) = (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
            if count == 0 {
                continue;
            }
            let mut add = |cause| off.entry(cause).or_default().add(key.bucket, count, ns);
            match key.class {
                ON_WAITS | ON_STOPPED | ON_ENDS => times.on_cpu.add(key.bucket, count, ns),
                OFF => add(Cause::of(key.what)),
                READY | READY_MOVED => add(Cause::RunQueue),
                _ => {}
            }
            match key.class {
                ON_WAITS => times.voluntary_switches += count,
                ON_STOPPED => times.involuntary_switches += count,
                READY_MOVED | MOVED => times.migrations += count,
                THREAD => times.threads_begun += count,
                CHARGE => times.charges += count,
                _ => {}
            }
        }
        let pending = |reading: &Self| reading.pending_on.get(&group.0).copied().unwrap_or(0);
        shift(&mut times.on_cpu.sum_ns, pending(self), pending(before));
        for cause in Cause::ALL {
            let pending = |reading: &Self| reading.pending_off.get(&(group.0, cause)).copied();
            let (now, then) = (pending(self), pending(before));
            if now.is_some() || then.is_some() {
                let sum = &mut off.entry(cause).or_default().sum_ns;
                shift(sum, now.unwrap_or(0), then.unwrap_or(0));
            }
        }
        let parts = off
            .into_iter()
            .filter(|(_, stretches)| stretches.sum_ns > 0);
        times.off_cpu = parts
            .map(|(cause, stretches)| OffCpuTime { cause, stretches })
            .collect();
        times
            .off_cpu
            .sort_by_key(|off| std::cmp::Reverse(off.stretches.sum_ns));
        times
    }
}

/// What was pending at the beginning belongs to the window before.
fn shift(sum_ns: &mut u64, now_ns: u64, then_ns: u64) {
    *sum_ns = (*sum_ns + now_ns).saturating_sub(then_ns);
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Group = Group(3);

    fn key(class: u32, what: u32) -> Key {
        Key::from(3 << 36 | u64::from(class) << 32 | u64::from(what) << 12 | 40)
    }

    #[test]
    fn a_stretch_that_goes_on_belongs_to_both_windows_in_part() {
        let mut first = Reading::default();
        first.pending([3 | 202 << 32, 1_000, 0, 0], 1_400);
        let times = first.times(&Reading::default(), GROUP);
        assert_eq!(times.off_ns(Cause::Lock), 400);
        let mut second = Reading::default();
        second.counts.insert(key(OFF, 202), (1, 1_000));
        let times = second.times(&first, GROUP);
        assert_eq!(times.off_ns(Cause::Lock), 600);
        assert_eq!(times.off_cpu[0].stretches.count(), 1);
    }

    #[test]
    fn a_thread_that_was_woken_waits_for_a_cpu_from_then_on() {
        let mut reading = Reading::default();
        reading.pending([3 | 7 << 32, 1_000, 1_300, 0], 2_000);
        reading.pending([3, 0, 0, 1_900], 2_000);
        let times = reading.times(&Reading::default(), GROUP);
        assert_eq!(times.off_ns(Cause::Events), 300);
        assert_eq!(times.off_ns(Cause::RunQueue), 700);
        assert_eq!((times.on_cpu.sum_ns, times.io_ns()), (100, 300));
    }

    #[test]
    fn what_a_thread_has_at_hand_is_added_to_what_is_counted() {
        let mut reading = Reading::default();
        reading.counts.insert(key(OFF, 202), (1, 1_000));
        let word = 3 << 36 | u64::from(OFF) << 32 | 202 << 12 | 40;
        reading.recent(&[[word, 2, 500], [word, 1, 300], [0, 0, 0]]);
        let times = reading.times(&Reading::default(), GROUP);
        assert_eq!(times.off_ns(Cause::Lock), 1_800);
        assert_eq!(times.off_cpu[0].stretches.count(), 4);
        assert_eq!(reading.counts.len(), 1);
    }

    #[test]
    fn other_groups_are_left_out() {
        let mut reading = Reading::default();
        reading.counts.insert(key(MOVED, 0), (5, 0));
        assert_eq!(reading.times(&Reading::default(), GROUP).migrations, 5);
        assert_eq!(reading.times(&Reading::default(), Group(4)).migrations, 0);
        assert_eq!(reading.times(&reading.clone(), GROUP).migrations, 0);
    }
}
