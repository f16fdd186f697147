//! What the BPF programs cost over a window, without the measuring itself costing
//! more than they do.
//!
//! The kernel reads the clock twice for each run that it measures, which is several
//! times the cost of a run that finds the gate closed. While the gate is narrowed,
//! runs are therefore measured for [`MEASURED`] of the time only, and taken to go on
//! like that in the rest: for a period of the gate, and then for short [`Pace::Probe`]s, since runs
//! are counted only while they are measured, and a storm has to be noticed.

use std::time::Duration;

use crate::Unavailable;
use crate::bpf::{Object, RunTime, RunTimeMeter, RunTimes};
use crate::clock::monotonic_ns;

/// Part of the time in which runs are measured while the gate is narrowed.
pub(super) const MEASURED: f64 = 0.28;
/// Looks without measuring until one measures for a whole period again.
const RESTS: u32 = 16;
/// What a run costs that finds the gate closed, ns: measured, and not.
pub(super) const CLOSED_MEASURED_NS: f64 = 50.0;
pub(super) const CLOSED_ALONE_NS: f64 = 10.0;
/// What a call costs that the kernel does not measure: the trace point, and the way to the
/// program and back.
pub(super) const DISPATCH_NS: f64 = 20.0;
/// What measuring a run takes beside what the kernel says of it: half of the two readings of
/// its clock, and the sums.
pub(super) const METER_NS: f64 = 37.0;

/// Length of a probe.
const PROBE: Duration = Duration::from_millis(10);
/// A storm that begins has this many times the runs that were measured before, and one that ends
/// this many times fewer.
const OTHER: f64 = 1.5;
/// And this many more or fewer in a second.
const OTHER_HZ: f64 = 10_000.0;
/// Programs that count what a thread does, in its time.
const ACTS: &str = "on_kvm_";

/// The cost of one object's programs.
#[derive(Debug)]
pub(super) struct Cost {
    meter: Option<RunTimeMeter>,
    pace: Pace,
    last: RunTimes,
    looked_ns: u64,
    bill: Bill,
}

/// When runs are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// In this look.
    Whole,
    /// Not in this one, and not in this many in all until one is measured again.
    Rest { looks: u32 },
    /// For a moment after such a look.
    Probe { looks: u32 },
}

/// What was spent in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bill {
    /// As the last look measured it.
    rate: Rate,
    sum: Rate,
    /// Time before the last look in which nothing was measured, ns.
    guessed_ns: u64,
}

/// Cost of a stretch of time, or of each ns of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    ns: f64,
    runs: f64,
}

/// What was measured between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) spent: RunTime,
    /// Of that, by programs that count what threads do.
    pub(super) acts: RunTime,
    pub(super) elapsed_ns: u64,
}

impl Measured {
    /// This, and what the next look measured.
    pub(super) fn and(mut self, next: Self) -> Self {
        self.spent += next.spent;
        self.acts += next.acts;
        self.elapsed_ns += next.elapsed_ns;
        self
    }
}

impl Cost {
    /// Begins to measure.
    pub(super) fn start() -> Result<Self, Unavailable> {
        Ok(Self {
            meter: Some(RunTimeMeter::start()?),
            pace: Pace::Whole,
            last: RunTimes::default(),
            looked_ns: monotonic_ns(),
            bill: Bill::default(),
        })
    }

    /// A window begins at the last look.
    pub(super) fn begin(&mut self) {
        self.bill.begin();
    }

    /// The time since the last look, or beginning, ends; what was measured in it, where the
    /// gate is to go by it.
    pub(super) fn look(&mut self, object: &Object) -> Option<Measured> {
        let now_ns = monotonic_ns();
        let elapsed_ns = now_ns.saturating_sub(self.looked_ns);
        self.looked_ns = now_ns;
        if self.meter.is_none() {
            // The kernel counts no runs either.
            self.bill.guess(elapsed_ns);
            return None;
        }
        let read = RunTimes::of(object);
        let added = read.since(&self.last);
        self.last = read;
        let measured = Measured {
            spent: added.sum(|_| true),
            acts: added.sum(|program| program.starts_with(ACTS)),
            elapsed_ns,
        };
        let shows = self.pace.shows(self.bill, measured);
        self.bill.add(measured, shows);
        if shows {
            self.pace = Pace::Whole;
        }
        shows.then_some(measured)
    }

    /// What programs have run, at the last look that measured.
    pub(super) fn runs(&self) -> &RunTimes {
        &self.last
    }

    /// How soon to look again, at the latest.
    pub(super) fn next_look(&self) -> Option<Duration> {
        self.pace.next_look()
    }

    /// Rests from measuring if `narrowed`, or ends a rest that is over.
    pub(super) fn rest(&mut self, object: &Object, narrowed: Narrowed) {
        self.pace = self.pace.after_look(narrowed);
        match (self.pace, &self.meter) {
            (Pace::Rest { .. }, _) => self.meter = None,
            (_, None) => {
                self.meter = RunTimeMeter::start().ok();
                // Another meter of the host may have had runs counted.
                self.last = RunTimes::of(object);
            }
            (_, Some(_)) => {}
        }
    }

    /// What the window has cost until the last look, with what calls cost beside.
    pub(super) fn total(&self) -> RunTime {
        self.bill.total()
    }
}

/// Whether the gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Narrowed {
    Yes,
    No,
}

impl Pace {
    /// Whether the gate is to go by what was measured: a probe that finds nothing new says
    /// less than the look before it.
    pub(super) fn shows(self, bill: Bill, measured: Measured) -> bool {
        let Self::Probe { .. } = self else {
            return true;
        };
        let hz = measured.spent.runs as f64 / measured.elapsed_ns.max(1) as f64 * 1e9;
        let before_hz = bill.rate.runs * 1e9;
        let is_more = |more: f64, less: f64| more > less * OTHER + OTHER_HZ;
        is_more(hz, before_hz) || is_more(before_hz, hz)
    }

    pub(super) fn after_look(self, narrowed: Narrowed) -> Self {
        match (narrowed, self) {
            (Narrowed::No, _) | (_, Self::Rest { looks: 0 | 1 }) => Self::Whole,
            (_, Self::Whole) => Self::Rest { looks: RESTS },
            (_, Self::Rest { looks }) => Self::Probe { looks: looks - 1 },
            (_, Self::Probe { looks }) => Self::Rest { looks },
        }
    }

    pub(super) fn next_look(self) -> Option<Duration> {
        matches!(self, Self::Probe { .. }).then_some(PROBE)
    }
}

impl Bill {
    fn begin(&mut self) {
        self.sum = Rate::default();
        self.guessed_ns = 0;
    }

    /// What was measured; `shows`: what is not measured next goes on like that.
    pub(super) fn add(&mut self, measured: Measured, shows: bool) {
        let spent = Rate {
            ns: measured.spent.ns as f64,
            runs: measured.spent.runs as f64,
        };
        if shows {
            let rate = spent.by(measured.elapsed_ns);
            // Half of the time before went on like this already, as far as is known.
            let half_ns = self.guessed_ns / 2;
            self.sum.take(self.rate.unmeasured().over(half_ns));
            self.sum.add(rate.unmeasured().over(half_ns));
            self.rate = rate;
        }
        self.guessed_ns = 0;
        self.sum.add(spent.with_meter());
    }

    /// Time in which nothing was measured.
    pub(super) fn guess(&mut self, elapsed_ns: u64) {
        self.sum.add(self.rate.unmeasured().over(elapsed_ns));
        self.guessed_ns += elapsed_ns;
    }

    pub(super) fn total(&self) -> RunTime {
        let calls = self.sum.runs * DISPATCH_NS;
        RunTime {
            ns: (self.sum.ns + calls).round() as u64,
            runs: self.sum.runs.round() as u64,
        }
    }
}

impl Rate {
    fn over(self, ns: u64) -> Self {
        Self {
            ns: self.ns * ns as f64,
            runs: self.runs * ns as f64,
        }
    }

    fn by(self, ns: u64) -> Self {
        let ns = ns.max(1) as f64;
        Self {
            ns: self.ns / ns,
            runs: self.runs / ns,
        }
    }

    fn add(&mut self, more: Self) {
        self.ns += more.ns;
        self.runs += more.runs;
    }

    fn take(&mut self, less: Self) {
        self.ns = (self.ns - less.ns).max(0.0);
        self.runs = (self.runs - less.runs).max(0.0);
    }

    /// With what measuring them took beside.
    fn with_meter(self) -> Self {
        Self {
            ns: self.ns + self.runs * METER_NS,
            ..self
        }
    }

    /// The same runs without the measuring.
    fn unmeasured(self) -> Self {
        let each = CLOSED_MEASURED_NS - CLOSED_ALONE_NS;
        Self {
            ns: (self.ns - self.runs * each).max(self.runs * CLOSED_ALONE_NS),
            runs: self.runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_not_measured_costs_its_runs_without_the_measuring() {
        let close = |rate: Rate, ns: f64| assert!((rate.ns - ns).abs() < 1e-9, "{rate:?}");
        let runs = 1_000.0;
        close(Rate { ns: 60_000.0, runs }.unmeasured(), 20_000.0);
        close(Rate { ns: 30_000.0, runs }.unmeasured(), 10_000.0);
        assert_eq!(Rate::default().unmeasured(), Rate::default());
    }

    fn measured(runs: u64, elapsed_ns: u64) -> Measured {
        let spent = RunTime {
            ns: runs * 60,
            runs,
        };
        Measured {
            spent,
            acts: spent,
            elapsed_ns,
        }
    }

    #[test]
    fn a_storm_shows_in_a_probe_and_nothing_else_does() {
        let mut bill = Bill::default();
        bill.add(measured(8_000, 250 * MS), true);
        let probe = Pace::Probe { looks: 2 };
        assert!(!probe.shows(bill, measured(700, 20 * MS)));
        assert!(probe.shows(bill, measured(1_400, 20 * MS)));
        assert!(!probe.shows(bill, measured(500, 20 * MS)));
        assert!(probe.shows(bill, measured(100, 20 * MS)));
        assert!(Pace::Whole.shows(bill, measured(0, 20 * MS)));
        // What a probe measures is billed, and what follows goes on as before.
        bill.add(measured(10, MS), false);
        assert_eq!(bill.total().runs, 8_010);
        bill.guess(250 * MS);
        assert_eq!(bill.total().runs, 16_010);
        // A storm that shows began in that time.
        bill.add(measured(1_600, 10 * MS), true);
        assert_eq!(bill.total().runs, 16_010 - 4_000 + 20_000 + 1_600);
    }

    #[test]
    fn each_look_that_measures_nothing_is_followed_by_a_probe() {
        let mut pace = Pace::Whole;
        let mut whole = Vec::new();
        let mut unseen = 0;
        for look in 0..200 {
            pace = pace.after_look(Narrowed::Yes);
            match pace {
                Pace::Whole => {
                    unseen = 0;
                    whole.push(look);
                }
                Pace::Rest { .. } => unseen += 1,
                Pace::Probe { .. } => unseen = 0,
            }
            assert!(unseen <= 1, "{look}: {whole:?}");
        }
        assert!(whole.len() >= 5, "{whole:?}");
        assert_eq!(
            Pace::Rest { looks: 3 }.after_look(Narrowed::No),
            Pace::Whole
        );
    }
}
