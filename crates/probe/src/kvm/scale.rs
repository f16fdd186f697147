//! From what was counted in a part of the window to the whole of it.
//!
//! The time that is counted is unlike the rest in two ways. A burst begins and ends when the
//! observing thread has a CPU, which on a busy host a vCPU has less of then; and a vCPU that
//! others preempt has all of the CPU in one slice, and none in the next. And the programs take
//! some of the time in which a storm would go on: 100 to 200 ns of the 2 us between two
//! events. Both go with the thread's time on a CPU, which the programs sum up while they
//! count, and the scheduler always. So what a thread does more often than any clock makes
//! it do is scaled by that time, without what programs took of it. The rest, such as the
//! ticks of a guest, comes by the clock, whoever has the CPU: it is scaled by the time that the
//! slices stand for. Both sum up slices by their weights ([`super::weighted`]).

use std::collections::HashMap;

use super::classes::Key;
use super::events::{COUNTED_WORDS, THREAD_WORDS};
use super::slices::Slices;
use super::tally::{Tally, Value};
use super::weighted::{self, Exposure, Sample, WHOLE, Weighted};
use crate::bpf::Object;

/// What comes so often in a second on a CPU comes by no clock: 2.5 times a tick of 4 kHz.
const FASTER_THAN_CLOCKS_HZ: f64 = 10_000.0;
/// A thread that sleeps this often in a second on a CPU does what it does when it is woken: by a
/// clock, or by others. A storm does not sleep.
const SLEEPS_HZ: f64 = 1_000.0;
/// A shorter time on a CPU says nothing about the rest.
const SHORTEST_NS: f64 = 1_000_000.0;
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
    /// The time by the weights of its slices, and the runs: in slices that stand for themselves, and
    /// in the others.
    pub(super) weighted: Weighted,
    pub(super) whole_runs: u64,
    pub(super) weighted_runs: u64,
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
    /// What the gate said of the weight of that slice.
    pub(super) weight: u64,
    /// How long it was on a CPU until that slice, and how often programs had run.
    pub(super) ran_before: u64,
    pub(super) runs_before: u64,
    /// Sums of the slices before it.
    pub(super) whole_runs: u64,
    pub(super) weighted_runs: u64,
    pub(super) weighted: Weighted,
}

/// What a weighted figure is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Factor {
    /// Counts in slices that stand for more than themselves.
    counts: f64,
    /// All times.
    times: f64,
    /// The exposure of the counts.
    exposure: Exposure,
}

/// Factors for the counts of one machine.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    sample: Sample,
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
            let [_, _, _, slice, ..] = words;
            Self::of(slice, words.last_chunk().copied().unwrap_or_default())
        };
        threads.map(|(tid, words)| (tid, counted(words))).collect()
    }

    /// From a slice's number and the words from `in_ns` on of `struct thread` or `struct task_record`.
    pub(super) fn of(slice: u64, words: [u64; COUNTED_WORDS]) -> Self {
        let [in_ns, ran_ns, runs, weight, rest @ ..] = words;
        let [
            ran_before,
            runs_before,
            whole_runs,
            weighted_runs,
            rest @ ..,
        ] = rest;
        let [whole, groups @ ..] = rest;
        Self {
            slice,
            in_ns,
            ran_ns,
            runs,
            weight,
            ran_before,
            runs_before,
            whole_runs,
            weighted_runs,
            weighted: Weighted { whole, groups },
        }
    }
}

impl Ran {
    /// Of one that was on a CPU when its slice ended, user space adds the time until then.
    pub(super) fn of(counted: Counted, slices: &Slices<'_>) -> Self {
        let until_ns = (counted.in_ns > 0)
            .then(|| slices.until_ns(counted.slice))
            .flatten()
            .unwrap_or(0);
        let ns = counted.ran_ns + until_ns.saturating_sub(counted.in_ns);
        let weight = slices.weight(counted.slice, counted.weight);
        let mut ran = Self {
            ns,
            runs: counted.runs,
            weighted: counted.weighted,
            whole_runs: counted.whole_runs,
            weighted_runs: counted.weighted_runs,
        };
        let last_ns = ns.saturating_sub(counted.ran_before);
        ran.weighted.add(counted.slice, last_ns, weight);
        let last_runs = counted.runs.saturating_sub(counted.runs_before);
        let runs = if weight > WHOLE {
            &mut ran.weighted_runs
        } else {
            &mut ran.whole_runs
        };
        *runs = runs.saturating_add(last_runs.saturating_mul(weight));
        ran
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            ns: self.ns.saturating_sub(before.ns),
            runs: self.runs.saturating_sub(before.runs),
            weighted: self.weighted.since(&before.weighted),
            whole_runs: self.whole_runs.saturating_sub(before.whole_runs),
            weighted_runs: self.weighted_runs.saturating_sub(before.weighted_runs),
        }
    }
}

impl Scale {
    /// Of what was counted in this time.
    pub(super) fn by_clock(sample: Sample) -> Self {
        Self {
            by_clock: Factor {
                counts: sample.rest(),
                times: sample.all(),
                exposure: sample.exposure(),
            },
            sample,
            threads: HashMap::new(),
        }
    }

    /// A thread that ran like this in the counted time was on a CPU for `whole.ns` of the
    /// window; each run of a program takes `run_ns` of its time.
    pub(super) fn thread(&mut self, tid: u32, ran: Ran, whole: Whole, run_ns: f64) {
        let is_woken = whole.sleeps as f64 * 1e9 >= whole.ns as f64 * SLEEPS_HZ;
        let factor = Factor::of(&self.sample, ran, whole.ns, run_ns);
        let Some(factor) = factor.filter(|_| !is_woken) else {
            return;
        };
        let often = ran.ns as f64 / 1e9 * FASTER_THAN_CLOCKS_HZ;
        self.threads.insert(tid, (factor, often));
    }

    /// As many as there were in the whole window; never fewer than were counted.
    pub(super) fn scaled(&self, key: &Key, tally: &Tally) -> Value {
        let factor = self.of(key, tally.count);
        let sum = self.sample.sum(&tally.weighted, tally.count, factor.counts);
        let margin = self.sample.margin(&sum, &factor.exposure);
        let rounded = |figure: f64, least: u64| (figure.round() as u64).max(least);
        Value {
            count: rounded(sum.all(), tally.count),
            ns: rounded(
                weighted::in_counts(tally.weighted_ns) * factor.times,
                tally.ns,
            ),
            margin: margin.map(|margin| margin.ceil() as u64),
        }
    }

    /// For an entry that was counted so often.
    fn of(&self, key: &Key, count: u64) -> Factor {
        match self.threads.get(&key.tid) {
            Some((factor, often)) if key.is_act() && count as f64 >= *often => *factor,
            _ => self.by_clock,
        }
    }
}

impl Factor {
    /// Of a thread. Its own time is what programs leave of it; of what was counted whole nothing
    /// is to be scaled.
    fn of(sample: &Sample, ran: Ran, whole_ns: u64, run_ns: f64) -> Option<Self> {
        let (known, groups) = sample.parts(&ran.weighted);
        let (known_runs, runs) = sample.of_kinds(ran.whole_runs, ran.weighted_runs);
        let sampled: f64 = groups.iter().sum();
        let is_short = ran.ns as f64 - known < SHORTEST_NS;
        if is_short || sampled <= 0.0 || ran.ns > whole_ns.saturating_add(LATE_NS) {
            return None;
        }
        // Runs of programs in slices that stand for more than themselves, once each.
        let once = (ran.runs as f64 - known_runs).max(0.0);
        let left = |ns: f64, runs: f64| ns - (runs * run_ns).min(ns * (1.0 - LEFT));
        let own = left(sampled, runs);
        let rest = (whole_ns as f64 - known).max(0.0);
        let part = own / sampled;
        Some(Self {
            counts: left(rest, once) / own,
            times: whole_ns as f64 / (known + sampled),
            exposure: Exposure {
                whole: known,
                groups: groups.map(|ns| ns * part),
                uncounted: whole_ns.saturating_sub(ran.ns) as f64,
                unsampled: (rest - sampled).max(0.0),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::classes;
    use super::super::gate_words::{ALL, CLOSED, InMemory, Periods, Words};
    use super::super::slices::{self, End, Ends, PERIOD_TICKS, of_ticks};
    use super::super::weighted::of_time;
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

    /// In slices that stand for themselves.
    fn ran(ns: u64, runs: u64) -> Ran {
        Ran {
            ns,
            runs,
            weighted: Weighted {
                whole: ns.saturating_mul(WHOLE),
                ..Weighted::default()
            },
            whole_runs: runs.saturating_mul(WHOLE),
            weighted_runs: 0,
        }
    }

    /// The same.
    fn tally(count: u64) -> Tally {
        Tally {
            count,
            weighted: ran(count, 0).weighted,
            ..Tally::default()
        }
    }

    #[test]
    fn a_thread_that_sleeps_after_each_event_is_scaled_by_the_clock() {
        // KVM's PIT: 1,000 ticks a second of 10 us, with four runs of programs in each.
        let ran = ran(20 * MS, 8_000);
        let whole = Whole {
            ns: 100 * MS,
            sleeps: 10_000,
        };
        let mut scale = Scale::by_clock(Sample::one(200 * MS, 1_000 * MS));
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
            let mut scale = self.by_clock();
            let Ran { ns, runs, .. } = self.in_bursts;
            scale.thread(TID, ran(ns, runs), awake(self.ran_ns), PROGRAMS_NS as f64);
            scale
        }

        fn by_clock(&self) -> Scale {
            Scale::by_clock(Sample::one(self.open_ns, self.now_ns))
        }
    }

    #[test]
    fn a_storm_is_counted_as_often_as_it_goes_on_without_the_programs() {
        for bursts in [8, 20, 100] {
            let model = Model::watched(bursts);
            let whole = |scale: &Scale| {
                let value = scale.scaled(&key(classes::CPUID), &tally(model.counted));
                value.count as f64 / model.events as f64
            };
            let ratio = whole(&model.scale());
            assert!((ratio - 1.0).abs() < 0.005, "{bursts}: {ratio}");
            // What the time that was counted says alone.
            let by_clock = whole(&model.by_clock());
            assert!(by_clock < 0.85, "{bursts}: {by_clock}");
        }
    }

    #[test]
    fn a_tick_in_a_storm_is_scaled_by_the_clock() {
        let model = Model::watched(20);
        let scale = model.scale();
        let ticks = model.open_ns / MS;
        let value = scale.scaled(&key(classes::ACCEPT), &tally(ticks));
        let ratio = value.count as f64 / (model.now_ns / MS) as f64;
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
            ..Counted::default()
        };
        let end = |number, ns| End {
            slice: slices::burst(number),
            ns,
            weight: WHOLE,
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
        ends.push(&mut map, end(5, 130));
        assert_eq!(ns(counted, Words::closed(), &ends), 70);
        // It had no CPU in the burst after it.
        ends.push(&mut map, end(6, 500));
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

    impl Slice {
        fn is_burst(&self) -> bool {
            self.to_ns - self.from_ns == BURST_NS
        }

        fn weight(&self) -> u64 {
            if self.is_burst() {
                of_time(BURST_NS, BURST_NS + REST_NS)
            } else {
                of_ticks(OPEN_TICKS)
            }
        }

        fn end(&self) -> End {
            End {
                slice: self.number,
                ns: self.to_ns,
                weight: self.weight(),
            }
        }
    }

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
        counted: Tally,
        ran_ns: u64,
    }

    impl Preempted {
        fn gate(&self, slice: Slice) -> Words {
            Words {
                open_ticks: if slice.is_burst() { ALL } else { OPEN_TICKS },
                burst: slice.number,
                slice: slice.number,
                slice_ns: slice.from_ns,
                old: self.old,
                weight: slice.weight(),
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
            let Ran {
                ns,
                runs,
                weighted,
                whole_runs,
                weighted_runs,
            } = Ran::of(self.thread, &slices);
            self.thread = Counted {
                slice: slice.number,
                weight: slice.weight(),
                in_ns: 0,
                ran_ns: ns,
                ran_before: ns,
                runs,
                runs_before: runs,
                weighted,
                whole_runs,
                weighted_runs,
            };
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
                self.counted.count += events;
                let weighted = &mut self.counted.weighted;
                weighted.add(slice.number, events, slice.weight());
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
            let mut rest = all.iter().peekable();
            while now_ns < end_ns {
                now_ns += 4 * MS + model.random.any(30 * MS);
                let until_ns = now_ns + MS + model.random.any(5 * MS);
                model.runs(now_ns, until_ns, all);
                now_ns = until_ns;
                while let Some(slice) = rest.next_if(|it| it.to_ns <= now_ns) {
                    if slice.is_burst() {
                        model.ends.push(&mut model.map, slice.end());
                    } else if rest.peek().is_none_or(|next| next.is_burst()) {
                        model.old = model.gate(*slice).periods().unwrap();
                    }
                }
            }
            let closed = Words {
                open_ticks: CLOSED,
                ..model.gate(last)
            };
            let ran = Ran::of(model.thread, &model.slices(closed, now_ns));
            let mut sample = Sample::of(now_ns - PERIOD_NS);
            for slice in all {
                sample.add(slice.number, slice.to_ns - slice.from_ns, slice.weight());
            }
            let by_clock = Scale::by_clock(sample);
            let mut scale = by_clock.clone();
            scale.thread(TID, ran, awake(model.ran_ns), PROGRAMS_NS as f64);
            [scale, by_clock]
                .map(|scale| {
                    let value = scale.scaled(&key(classes::CPUID), &model.counted);
                    value.count as f64 / model.events as f64
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
        fn no_figures_make_fewer_of_what_was_counted(
            ns: u64,
            runs: u64,
            whole: u64,
            run in 0.0..1e6,
            count in 0_u64..1 << 40,
            (open, window) in (0_u64..1 << 40, 0_u64..1 << 40),
        ) {
            let mut sample = Sample::one(open, window);
            for groups in 0..3 {
                let mut scale = Scale::by_clock(sample);
                scale.thread(TID, ran(ns, runs), awake(whole), run);
                let value = scale.scaled(&key(classes::CPUID), &tally(count));
                prop_assert!(value.count >= count, "{value:?}");
                sample.add(groups, open, 4 * WHOLE);
            }
        }
    }
}
