//! From what was counted in a part of the window to the whole of it.
//!
//! The time that is counted is unlike the rest in two ways. A burst begins and ends when the
//! observing thread has a CPU, which on a busy host a vCPU has less of then; and a vCPU that
//! others preempt has all of the CPU in one slice, and none in the next. And the programs take
//! some of the time in which a storm would go on: 100 to 200 ns of the 2 us between two
//! events. Both go with the thread's time on a CPU, which the programs sum up while they
//! count, and the scheduler always. So what a thread does more often than any clock makes
//! it do is scaled by that time, without what programs took of it. The rest, such as the
//! ticks of a guest, comes by the clock, whoever has the CPU: it is scaled by the share of
//! the window in which events were counted.

use std::collections::HashMap;

use super::classes::Key;
use super::events::THREAD_WORDS;
use super::slices::Slices;
use crate::bpf::Object;

/// What comes so often in a second on a CPU comes by no clock: 2.5 times a tick of 4 kHz.
const FASTER_THAN_CLOCKS_HZ: f64 = 10_000.0;
/// A thread that sleeps this often in a second on a CPU does what it does when it is woken: by a
/// clock, or by others. A storm does not sleep.
const SLEEPS_HZ: f64 = 1_000.0;
/// A shorter time on a CPU says nothing about the rest.
const SHORTEST_NS: u64 = 1_000_000;
/// By so much the scheduler's account of a thread may be late: a tick at 100 Hz.
const LATE_NS: u64 = 10_000_000;
/// Part of its time that programs leave to a thread, at least.
const LEFT: f64 = 0.25;

/// A thread in the time that was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ran {
    /// How long it was on a CPU.
    pub(super) ns: u64,
    /// How often programs ran there for it.
    pub(super) runs: u64,
}

/// A thread in the whole window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    /// How long it was on a CPU.
    pub(super) ns: u64,
    /// How often it left one to wait.
    pub(super) sleeps: u64,
}

/// What the programs know of the time of a thread that was counted (`struct thread`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// The last slice in which it was seen.
    pub(super) slice: u64,
    /// Since when it has been on a CPU in it; 0 if it is not.
    pub(super) in_ns: u64,
    /// How long it was before.
    pub(super) ran_ns: u64,
    pub(super) runs: u64,
}

/// What a figure is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Factor {
    pub(super) counts: f64,
    pub(super) times: f64,
}

/// Factors for the counts of one machine.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    by_clock: Factor,
    /// Of what threads do that the clock does not make them do, and how often they do it
    /// at least.
    threads: HashMap<u32, (Factor, f64)>,
}

impl Counted {
    /// Of all threads: where the kernel's tasks, which have it, are not read.
    pub(super) fn read(object: &Object) -> HashMap<u32, Self> {
        let threads = object.numbered::<THREAD_WORDS>("threads").into_iter();
        let counted = |words: [u64; THREAD_WORDS]| {
            let [_, _, _, slice, .., in_ns, ran_ns, runs] = words;
            Self {
                slice,
                in_ns,
                ran_ns,
                runs,
            }
        };
        threads.map(|(tid, words)| (tid, counted(words))).collect()
    }
}

impl Ran {
    /// Of one that was on a CPU when its slice ended, user space adds the time until then.
    pub(super) fn of(counted: Counted, slices: &Slices<'_>) -> Self {
        let until_ns = (counted.in_ns > 0).then(|| slices.until_ns(counted.slice));
        let until_ns = until_ns.flatten().unwrap_or(0);
        Self {
            ns: counted.ran_ns + until_ns.saturating_sub(counted.in_ns),
            runs: counted.runs,
        }
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            ns: self.ns.saturating_sub(before.ns),
            runs: self.runs.saturating_sub(before.runs),
        }
    }
}

impl Scale {
    /// Of what was counted in this share of the time.
    pub(super) fn by_clock(share: f64) -> Self {
        let by = if share > 0.0 { share.recip() } else { 1.0 };
        Self {
            by_clock: Factor {
                counts: by,
                times: by,
            },
            threads: HashMap::new(),
        }
    }

    /// A thread that ran like this in the counted time was on a CPU for `whole.ns` of the
    /// window; each run of a program takes `run_ns` of its time.
    pub(super) fn thread(&mut self, tid: u32, ran: Ran, whole: Whole, run_ns: f64) {
        let is_woken = whole.sleeps as f64 * 1e9 >= whole.ns as f64 * SLEEPS_HZ;
        let Some(factor) = Factor::of(ran, whole.ns, run_ns).filter(|_| !is_woken) else {
            return;
        };
        let often = ran.ns as f64 / 1e9 * FASTER_THAN_CLOCKS_HZ;
        self.threads.insert(tid, (factor, often));
    }

    /// For an entry that was counted so often.
    pub(super) fn of(&self, key: &Key, count: u64) -> Factor {
        match self.threads.get(&key.tid) {
            Some((factor, often)) if key.is_act() && count as f64 >= *often => *factor,
            _ => self.by_clock,
        }
    }
}

impl Factor {
    fn of(ran: Ran, whole_ns: u64, run_ns: f64) -> Option<Self> {
        if ran.ns < SHORTEST_NS || ran.ns > whole_ns.saturating_add(LATE_NS) {
            return None;
        }
        let (counted, whole) = (ran.ns as f64, whole_ns as f64);
        let programs = (ran.runs as f64 * run_ns).min(counted * (1.0 - LEFT));
        Some(Self {
            counts: ((whole - programs) / (counted - programs)).max(1.0),
            times: (whole / counted).max(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::classes;
    use super::super::gate_words::{ALL, CLOSED, InMemory, Periods, Words};
    use super::super::slices::{self, Ends, PERIOD_TICKS};
    use super::*;

    const MS: u64 = 1_000_000;
    const TID: u32 = 7;
    /// Time of a vCPU for one event, and of the programs that count it.
    const EVENT_NS: u64 = 2_000;
    const PROGRAMS_NS: u64 = 300;
    const BURST_NS: u64 = 24 * MS;
    const REST_NS: u64 = 400 * MS;

    /// It never sleeps.
    fn awake(ns: u64) -> Whole {
        Whole { ns, sleeps: 0 }
    }

    #[test]
    fn a_thread_that_sleeps_after_each_event_is_scaled_by_the_clock() {
        // KVM's PIT: 1,000 ticks a second of 10 us, with four runs of programs in each.
        let ran = Ran {
            ns: 20 * MS,
            runs: 8_000,
        };
        let whole = Whole {
            ns: 100 * MS,
            sleeps: 10_000,
        };
        let mut scale = Scale::by_clock(0.2);
        scale.thread(TID, ran, whole, 1_000.0);
        assert_eq!(scale.of(&key(classes::LINE), 2_000), scale.by_clock);
        // A storm of the same number has its own time.
        scale.thread(TID, ran, awake(whole.ns), 1_000.0);
        assert_ne!(scale.of(&key(classes::LINE), 2_000), scale.by_clock);
    }

    fn key(class: u32) -> Key {
        Key {
            tgid: TID,
            tid: TID,
            class,
            a: 0,
            b: 0,
        }
    }

    /// A vCPU that does the same again and again, others on its CPU, and an observer that
    /// is let onto it only where the vCPU is not.
    #[derive(Default)]
    struct Model {
        now_ns: u64,
        random: u64,
        /// All events, and those that were counted.
        events: u64,
        counted: u64,
        ran_ns: u64,
        in_bursts: Ran,
        open_ns: u64,
    }

    impl Model {
        fn any(&mut self, below: u64) -> u64 {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005) + 1;
            (self.random >> 33) % below
        }

        /// The vCPU has the CPU for a while, in a burst or not.
        fn vcpu(&mut self, is_open: bool) {
            let ns = 2 * MS + self.any(4 * MS);
            let each_ns = EVENT_NS + if is_open { PROGRAMS_NS } else { 0 };
            let events = ns / each_ns;
            self.events += events;
            self.ran_ns += ns;
            if is_open {
                self.counted += events;
                self.in_bursts.ns += ns;
                self.in_bursts.runs += events;
            }
            self.pass(ns, is_open);
        }

        /// Others have it, the observer among them.
        fn others(&mut self, is_open: bool) {
            let ns = MS + self.any(9 * MS);
            self.pass(ns, is_open);
        }

        fn pass(&mut self, ns: u64, is_open: bool) {
            self.now_ns += ns;
            self.open_ns += if is_open { ns } else { 0 };
        }

        fn until(&mut self, end_ns: u64, is_open: bool) {
            while self.now_ns < end_ns {
                self.others(is_open);
                self.vcpu(is_open);
            }
            // The observer is late, and the others are before it.
            self.others(is_open);
        }

        fn watched(bursts: u64) -> Self {
            let mut model = Self::default();
            for _ in 0..bursts {
                model.until(model.now_ns + BURST_NS, true);
                model.until(model.now_ns + REST_NS, false);
            }
            model
        }

        fn scale(&self) -> Scale {
            let mut scale = Scale::by_clock(self.open_ns as f64 / self.now_ns as f64);
            scale.thread(TID, self.in_bursts, awake(self.ran_ns), PROGRAMS_NS as f64);
            scale
        }
    }

    #[test]
    fn a_storm_is_counted_as_often_as_it_goes_on_without_the_programs() {
        for bursts in [8, 20, 100] {
            let model = Model::watched(bursts);
            let whole = |scale: &Scale| {
                let factor = scale.of(&key(classes::CPUID), model.counted);
                model.counted as f64 * factor.counts / model.events as f64
            };
            let ratio = whole(&model.scale());
            assert!((ratio - 1.0).abs() < 0.005, "{bursts}: {ratio}");
            let share = model.open_ns as f64 / model.now_ns as f64;
            // What the share alone says.
            let by_clock = whole(&Scale::by_clock(share));
            assert!(by_clock < 0.85, "{bursts}: {by_clock}");
        }
    }

    #[test]
    fn a_tick_in_a_storm_is_scaled_by_the_clock() {
        let model = Model::watched(20);
        let scale = model.scale();
        let ticks = model.open_ns / MS;
        let ratio = ticks as f64 * scale.of(&key(classes::ACCEPT), ticks).counts;
        let ratio = ratio / (model.now_ns / MS) as f64;
        assert!((ratio - 1.0).abs() < 0.001, "{ratio}");
        // And so is how long something took, and another thread's storm.
        let by_clock = scale.of(&key(classes::RUN_DELAY), u64::MAX);
        assert_eq!(by_clock, scale.by_clock);
        let other = Key {
            tid: TID + 1,
            ..key(classes::CPUID)
        };
        assert_eq!(scale.of(&other, u64::MAX), scale.by_clock);
    }

    #[test]
    fn a_thread_on_a_cpu_has_been_there_until_its_burst_ended() {
        let mut ends = Ends::default();
        let counted = Counted {
            slice: slices::burst(5),
            in_ns: 100,
            ran_ns: 40,
            runs: 3,
        };
        let ns = |counted, gate, ends: &Ends| {
            let slices = Slices {
                gate,
                ends,
                tick_ns: 1_000,
                now_ns: 1_000,
            };
            Ran::of(counted, &slices).ns
        };
        let open = |number| Words {
            burst: slices::burst(number),
            ..Words::default()
        };
        assert_eq!(ns(counted, open(5), &ends), 940);
        // It is not known when it ended.
        assert_eq!(ns(counted, open(6), &ends), 40);
        let mut map = InMemory::default();
        ends.push(&mut map, slices::burst(5), 130);
        assert_eq!(ns(counted, Words::closed(), &ends), 70);
        // It had no CPU in the burst after it.
        ends.push(&mut map, slices::burst(6), 500);
        assert_eq!(ns(counted, open(7), &ends), 70);
        let left = Counted {
            in_ns: 0,
            ..counted
        };
        assert_eq!(ns(left, open(7), &ends), 40);
    }

    /// A time that was counted.
    #[derive(Clone, Copy)]
    struct Slice {
        from_ns: u64,
        to_ns: u64,
        number: u64,
    }

    const TICK_NS: u64 = 4 * MS;
    const OPEN_TICKS: u64 = 3;
    const PERIOD_NS: u64 = TICK_NS * PERIOD_TICKS;

    /// Slices of periods, then bursts.
    fn sampled(periods: u64, bursts: u64) -> Vec<Slice> {
        let of_periods = (1..=periods).map(|number| Slice {
            from_ns: number * PERIOD_NS,
            to_ns: number * PERIOD_NS + OPEN_TICKS * TICK_NS,
            number,
        });
        let began_ns = (periods + 1) * PERIOD_NS;
        let of_bursts = (0..bursts).map(|number| Slice {
            from_ns: began_ns + number * (BURST_NS + REST_NS),
            to_ns: began_ns + number * (BURST_NS + REST_NS) + BURST_NS,
            number: slices::burst(number + 1),
        });
        of_periods.chain(of_bursts).collect()
    }

    /// A storm that others preempt, as the programs see it in slices: `current_in`, `enters`,
    /// `leaves` and `of_slice` in `bpf/kvm.bpf.c`.
    #[derive(Default)]
    struct Preempted {
        random: Model,
        thread: Counted,
        map: InMemory,
        ends: Ends,
        old: Periods,
        events: u64,
        counted: u64,
        ran_ns: u64,
    }

    impl Preempted {
        fn gate(&self, slice: Slice) -> Words {
            Words {
                open_ticks: match slice.to_ns - slice.from_ns {
                    BURST_NS => ALL,
                    _ => OPEN_TICKS,
                },
                burst: slice.number,
                slice: slice.number,
                slice_ns: slice.from_ns,
                old: self.old,
            }
        }

        fn slices(&self, gate: Words, now_ns: u64) -> Slices<'_> {
            Slices {
                gate,
                ends: &self.ends,
                tick_ns: TICK_NS,
                now_ns,
            }
        }

        fn of_slice(&mut self, slice: Slice) {
            if self.thread.slice == slice.number {
                return;
            }
            let slices = self.slices(self.gate(slice), slice.from_ns);
            self.thread.ran_ns = Ran::of(self.thread, &slices).ns;
            self.thread.in_ns = 0;
            self.thread.slice = slice.number;
        }

        /// The vCPU has a CPU in this time.
        fn runs(&mut self, from_ns: u64, to_ns: u64, all: &[Slice]) {
            self.ran_ns += to_ns - from_ns;
            let mut open_ns = 0;
            for slice in all
                .iter()
                .filter(|it| it.to_ns > from_ns && it.from_ns < to_ns)
            {
                let ns = slice.to_ns.min(to_ns) - slice.from_ns.max(from_ns);
                let events = ns / (EVENT_NS + PROGRAMS_NS);
                self.of_slice(*slice);
                self.thread.in_ns = slice.from_ns.max(from_ns);
                self.thread.runs += events;
                self.counted += events;
                self.events += events;
                open_ns += ns;
                if to_ns < slice.to_ns {
                    self.thread.ran_ns += ns;
                    self.thread.in_ns = 0;
                }
            }
            self.events += (to_ns - from_ns - open_ns) / EVENT_NS;
        }

        /// What a window with these slices says of the number of events, as a part of it, by
        /// its time on a CPU and by the clock.
        fn watched(seed: u64, all: &[Slice]) -> (f64, f64) {
            let mut model = Self::default();
            model.random.random = seed;
            let last = *all.last().unwrap();
            let end_ns = last.to_ns + REST_NS;
            let mut now_ns = PERIOD_NS;
            let is_burst = |slice: &Slice| slice.to_ns - slice.from_ns == BURST_NS;
            let mut rest = all.iter().peekable();
            while now_ns < end_ns {
                now_ns += 4 * MS + model.random.any(30 * MS);
                let until_ns = now_ns + MS + model.random.any(5 * MS);
                model.runs(now_ns, until_ns, all);
                now_ns = until_ns;
                while let Some(slice) = rest.next_if(|it| it.to_ns <= now_ns) {
                    if is_burst(slice) {
                        model.ends.push(&mut model.map, slice.number, slice.to_ns);
                    } else if rest.peek().is_none_or(|next| is_burst(next)) {
                        model.old = model.gate(*slice).periods().unwrap();
                    }
                }
            }
            let closed = Words {
                open_ticks: CLOSED,
                ..model.gate(last)
            };
            let ran = Ran::of(model.thread, &model.slices(closed, now_ns));
            let open_ns: u64 = all.iter().map(|it| it.to_ns - it.from_ns).sum();
            let by_clock = Scale::by_clock(open_ns as f64 / (now_ns - PERIOD_NS) as f64);
            let mut scale = by_clock.clone();
            scale.thread(TID, ran, awake(model.ran_ns), PROGRAMS_NS as f64);
            [scale, by_clock]
                .map(|scale| {
                    let factor = scale.of(&key(classes::CPUID), model.counted);
                    model.counted as f64 * factor.counts / model.events as f64
                })
                .into()
        }
    }

    #[test]
    fn a_preempted_storm_is_counted_by_its_time_on_a_cpu_in_slices_and_in_bursts() {
        // Slices alone, bursts alone, and a window that changes over.
        for (periods, bursts) in [(60, 0), (0, 40), (30, 20)] {
            let all = sampled(periods, bursts);
            let mut worst_by_clock: f64 = 0.0;
            for seed in 1..=20 {
                let (by_time, by_clock) = Preempted::watched(seed, &all);
                let differs = (by_time - 1.0).abs();
                assert!(differs < 0.01, "{periods} {bursts} {seed}: {by_time}");
                worst_by_clock = worst_by_clock.max((by_clock - 1.0).abs());
            }
            // Who has the CPU in them is chance.
            assert!(worst_by_clock > 0.2, "{worst_by_clock}");
        }
    }

    proptest! {
        #[test]
        fn no_figures_make_fewer_of_what_was_counted(ns: u64, runs: u64, whole: u64, run in 0.0..1e6) {
            if let Some(factor) = Factor::of(Ran { ns, runs }, whole, run) {
                prop_assert!(factor.counts >= 1.0 && factor.counts.is_finite(), "{factor:?}");
                prop_assert!(factor.times >= 1.0 && factor.times.is_finite(), "{factor:?}");
            }
        }
    }
}
