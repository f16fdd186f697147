//! From what was counted in a part of the window to the whole of it.
//!
//! The time of a burst is unlike the rest in two ways. It begins and ends when the observing
//! thread has a CPU, which on a busy host a vCPU has less of then. And the programs take
//! some of the time in which a storm would go on: 100 to 200 ns of the 2 us between two
//! events. Both go with the thread's time on a CPU, which the programs sum up while they
//! count, and the scheduler always. So what a thread does more often than any clock makes
//! it do is scaled by that time, without what programs took of it. The rest, such as the
//! ticks of a guest, comes by the clock, whoever has the CPU: it is scaled by the share of
//! the window in which events were counted.

use std::collections::HashMap;

use super::classes::Key;
use super::events::THREAD_WORDS;
use super::gate_words::Words;
use crate::bpf::Object;

/// What comes so often in a second on a CPU comes by no clock: 2.5 times a tick of 4 kHz.
const FASTER_THAN_CLOCKS_HZ: f64 = 10_000.0;
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

/// All threads that the programs know.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads(HashMap<u32, Ran>);

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

impl Threads {
    /// So far, at `now_ns`.
    pub(super) fn read(object: &Object, now_ns: u64) -> Self {
        let gate = Words::read(object);
        let threads = object.numbered::<THREAD_WORDS>("threads").into_iter();
        Self(
            threads
                .map(|(tid, words)| (tid, Ran::of(&words, gate, now_ns)))
                .collect(),
        )
    }

    /// Of one thread since `before`.
    pub(super) fn since(&self, before: &Self, tid: u32) -> Ran {
        let now = self.0.get(&tid).copied().unwrap_or_default();
        let then = before.0.get(&tid).copied().unwrap_or_default();
        Ran {
            ns: now.ns.saturating_sub(then.ns),
            runs: now.runs.saturating_sub(then.runs),
        }
    }
}

impl Ran {
    /// From `struct thread`. Of one that was on a CPU when its burst ended, user space adds
    /// the time until then.
    fn of(words: &[u64; THREAD_WORDS], gate: Words, now_ns: u64) -> Self {
        let [_, _, _, slice, .., in_ns, ran_ns, runs] = *words;
        let until_ns = gate.until_ns(slice, now_ns).filter(|_| in_ns > 0);
        Self {
            ns: ran_ns + until_ns.unwrap_or(0).saturating_sub(in_ns),
            runs,
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

    /// A thread that ran like this in the counted time was on a CPU for `whole_ns` of the
    /// window; each run of a program takes `run_ns` of its time.
    pub(super) fn thread(&mut self, tid: u32, ran: Ran, whole_ns: u64, run_ns: f64) {
        let Some(factor) = Factor::of(ran, whole_ns, run_ns) else {
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
    use super::*;

    const MS: u64 = 1_000_000;
    const TID: u32 = 7;
    /// Time of a vCPU for one event, and of the programs that count it.
    const EVENT_NS: u64 = 2_000;
    const PROGRAMS_NS: u64 = 300;
    const BURST_NS: u64 = 24 * MS;
    const REST_NS: u64 = 400 * MS;

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
            scale.thread(TID, self.in_bursts, self.ran_ns, PROGRAMS_NS as f64);
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
        let mut words = [0; THREAD_WORDS];
        (words[3], words[25], words[26], words[27]) = (5, 100, 40, 3);
        let gate = |open_ticks, burst| Words {
            open_ticks,
            burst,
            closed_ns: 130,
            closed_burst: 5,
            ..Words::default()
        };
        let ns = |words: &[u64; THREAD_WORDS], gate| Ran::of(words, gate, 1_000).ns;
        assert_eq!(ns(&words, gate(0, 5)), 940);
        assert_eq!(ns(&words, gate(u64::MAX, 5)), 70);
        assert_eq!(ns(&words, gate(0, 6)), 70);
        words[3] = 4;
        assert_eq!(ns(&words, gate(0, 6)), 40);
        words[25] = 0;
        assert_eq!(ns(&words, gate(0, 4)), 40);
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
