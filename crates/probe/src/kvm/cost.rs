//! What the BPF programs cost over a window, without the measuring itself costing
//! more than they do.
//!
//! The kernel reads the clock twice for each run that it measures, which is several
//! times the cost of a run that finds the gate closed, and turning that on or off changes its code:
//! 0.15 ms. While the gate is narrowed, runs are therefore measured for [`MEASURED`] of the time
//! only. The programs count their runs themselves (`runs` in `bpf/kvm.bpf.c`): one reading
//! says whether there are as many as before, and what those cost that were not measured.

use aya::maps::{Array, MapData};

use crate::Unavailable;
use crate::bpf::{Object, RunTime, RunTimeMeter, RunTimes};
use crate::clock::monotonic_ns;

/// Part of the time in which runs are measured while the gate is narrowed.
pub(super) const MEASURED: f64 = 0.28;
/// Looks without measuring until one measures for a whole period again.
const RESTS: u32 = 32;
/// What a run costs that finds the gate closed, ns: measured, and not.
pub(super) const CLOSED_MEASURED_NS: f64 = 50.0;
pub(super) const CLOSED_ALONE_NS: f64 = 10.0;
/// What a call costs that the kernel does not measure: the trace point, and the way to the
/// program and back.
pub(super) const DISPATCH_NS: f64 = 20.0;
/// What measuring a run takes beside what the kernel says of it: half of the two readings of
/// its clock, and the sums.
pub(super) const METER_NS: f64 = 37.0;

/// A storm that begins has this many times the runs that were measured before, and one that ends
/// this many times fewer.
const OTHER: f64 = 1.5;
/// And this many more or fewer in a second.
const OTHER_HZ: f64 = 10_000.0;
/// Words of `struct runs`.
const RUN_WORDS: usize = 512;
/// Programs that count what a thread does, in its time.
const ACTS: &str = "on_kvm_";

/// The cost of one object's programs.
#[derive(Debug)]
pub(super) struct Cost {
    meter: Option<RunTimeMeter>,
    last: RunTimes,
    book: Book,
}

/// What is known of the cost, and when it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Book {
    pace: Pace,
    bill: Bill,
    /// The last look that measured or guessed, and how many runs there had been.
    looked_ns: u64,
    runs: u64,
    /// Whether this look measured.
    has_measured: bool,
}

/// When runs are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Whole,
    /// Not in this look, and not in this many in all until one is measured again.
    Rest {
        looks: u32,
    },
}

/// What a look does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// There are as many runs as before, and it is early.
    Pass,
    /// Runs were not measured.
    Guess,
    Measure,
}

/// What was spent in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Bill {
    /// As the last look measured it.
    rate: Rate,
    sum: Rate,
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
            last: RunTimes::default(),
            book: Book::new(monotonic_ns()),
        })
    }

    /// A window begins at the last look.
    pub(super) fn begin(&mut self) {
        self.book.begin();
    }

    /// Time since the last look that did something.
    pub(super) fn elapsed_ns(&self) -> u64 {
        self.book.elapsed_ns(monotonic_ns())
    }

    /// What was measured since the last look that did something, if this one is due or there
    /// are other numbers of runs than before.
    pub(super) fn look(&mut self, object: &Object, due: Due) -> Option<Measured> {
        let (now_ns, runs) = (monotonic_ns(), counted_runs(object));
        match self.book.look(now_ns, runs, due) {
            Look::Pass => None,
            Look::Guess => {
                self.book.guess(now_ns, runs);
                None
            }
            Look::Measure => {
                let read = RunTimes::of(object);
                let added = read.since(&self.last);
                self.last = read;
                let spent = added.sum(|_| true);
                let acts = added.sum(|program| program.starts_with(ACTS));
                Some(self.book.measure(now_ns, runs, spent, acts))
            }
        }
    }

    /// What programs have run, at the last look that measured.
    pub(super) fn runs(&self) -> &RunTimes {
        &self.last
    }

    /// Rests from measuring if `narrowed`, or ends a rest that is over.
    pub(super) fn rest(&mut self, object: &Object, narrowed: Narrowed) {
        match (self.book.after_look(narrowed), &self.meter) {
            (false, _) => self.meter = None,
            (true, None) => {
                self.meter = RunTimeMeter::start().ok();
                // Another meter of the host may have had runs counted.
                self.last = RunTimes::of(object);
            }
            (true, Some(_)) => {}
        }
    }

    /// What the window has cost until the last look, with what calls cost beside.
    pub(super) fn total(&self) -> RunTime {
        self.book.total()
    }
}

/// Runs of the programs so far, as they count them.
fn counted_runs(object: &Object) -> u64 {
    let map = object.map("runs");
    let array = map.and_then(|map| Array::<&MapData, [u64; RUN_WORDS]>::try_from(map).ok());
    let runs = array.and_then(|array| array.get(&0, 0).ok());
    runs.map_or(0, |runs| {
        runs.iter().fold(0, |sum, runs| sum.wrapping_add(*runs))
    })
}

/// Whether a look is to measure whatever it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Yes,
    No,
}

impl From<bool> for Due {
    fn from(due: bool) -> Self {
        if due { Self::Yes } else { Self::No }
    }
}

impl Book {
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            pace: Pace::Whole,
            bill: Bill::default(),
            looked_ns: now_ns,
            runs: 0,
            has_measured: false,
        }
    }

    /// A window begins at the last look.
    pub(super) fn begin(&mut self) {
        self.bill.sum = Rate::default();
    }

    /// What a look does that finds this number of runs.
    pub(super) fn look(&mut self, now_ns: u64, runs: u64, due: Due) -> Look {
        self.has_measured = false;
        let elapsed_ns = now_ns.saturating_sub(self.looked_ns);
        let hz = runs.saturating_sub(self.runs) as f64 / elapsed_ns.max(1) as f64 * 1e9;
        let is_other = is_other(hz, self.bill.rate.runs * 1e9);
        match &mut self.pace {
            Pace::Whole if due == Due::Yes || is_other => Look::Measure,
            Pace::Whole => Look::Pass,
            Pace::Rest { looks } => {
                if is_other {
                    *looks = 1;
                }
                Look::Guess
            }
        }
    }

    pub(super) fn guess(&mut self, now_ns: u64, runs: u64) {
        self.bill.guess(runs.saturating_sub(self.runs));
        (self.looked_ns, self.runs) = (now_ns, runs);
    }

    pub(super) fn measure(
        &mut self,
        now_ns: u64,
        runs: u64,
        spent: RunTime,
        acts: RunTime,
    ) -> Measured {
        let measured = Measured {
            spent,
            acts,
            elapsed_ns: now_ns.saturating_sub(self.looked_ns),
        };
        self.bill.add(measured);
        self.has_measured = true;
        (self.looked_ns, self.runs) = (now_ns, runs);
        measured
    }

    /// Whether what follows is measured.
    pub(super) fn after_look(&mut self, narrowed: Narrowed) -> bool {
        self.pace = match (narrowed, self.pace) {
            (Narrowed::No, _) | (_, Pace::Rest { looks: 0 | 1 }) => Pace::Whole,
            (_, Pace::Whole) if self.has_measured => Pace::Rest { looks: RESTS },
            (_, Pace::Whole) => Pace::Whole,
            (_, Pace::Rest { looks }) => Pace::Rest { looks: looks - 1 },
        };
        self.pace == Pace::Whole
    }

    pub(super) fn elapsed_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.looked_ns)
    }

    pub(super) fn total(&self) -> RunTime {
        self.bill.total()
    }
}

/// Whether a storm has begun or ended.
fn is_other(hz: f64, before_hz: f64) -> bool {
    let is_more = |more: f64, less: f64| more > less * OTHER + OTHER_HZ;
    is_more(hz, before_hz) || is_more(before_hz, hz)
}

/// Whether the gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Narrowed {
    Yes,
    No,
}

impl Bill {
    /// What is not measured next costs the same, run by run.
    fn add(&mut self, measured: Measured) {
        let spent = Rate {
            ns: measured.spent.ns as f64,
            runs: measured.spent.runs as f64,
        };
        self.rate = spent.by(measured.elapsed_ns);
        self.sum.add(spent.with_meter());
    }

    /// Runs that were not measured.
    fn guess(&mut self, runs: u64) {
        let Rate { ns, runs: measured } = self.rate.unmeasured();
        let each_ns = if measured > 0.0 {
            ns / measured
        } else {
            CLOSED_ALONE_NS
        };
        let runs = runs as f64;
        self.sum.add(Rate {
            ns: each_ns * runs,
            runs,
        });
    }

    fn total(&self) -> RunTime {
        let calls = self.sum.runs * DISPATCH_NS;
        RunTime {
            ns: (self.sum.ns + calls).round() as u64,
            runs: self.sum.runs.round() as u64,
        }
    }
}

impl Rate {
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

    /// A look that measures these runs of 60 ns.
    fn measure(book: &mut Book, now_ns: u64, runs: u64) {
        assert_eq!(book.look(now_ns, runs, Due::Yes), Look::Measure);
        let added = runs - book.runs;
        let spent = RunTime {
            ns: added * 60,
            runs: added,
        };
        book.measure(now_ns, runs, spent, spent);
    }

    #[test]
    fn a_storm_shows_while_nothing_is_measured_and_when_no_look_is_due() {
        let mut book = Book::new(0);
        measure(&mut book, 250 * MS, 8_000);
        // As many as before.
        let later = 275 * MS;
        assert_eq!(book.look(later, 8_800, Due::No), Look::Pass);
        assert_eq!(book.look(later, 9_500, Due::No), Look::Measure);
        assert_eq!(book.look(later, 8_100, Due::No), Look::Measure);
        measure(&mut book, later, 8_800);
        assert!(!book.after_look(Narrowed::Yes));
        let look = |mut book: Book, runs| {
            assert_eq!(book.look(300 * MS, runs, Due::No), Look::Guess);
            book.guess(300 * MS, runs);
            book.after_look(Narrowed::Yes)
        };
        assert!(!look(book, 9_600));
        assert!(look(book, 10_400));
        assert!(look(book, 8_800));
    }

    #[test]
    fn runs_that_were_not_measured_are_billed_by_their_number() {
        let mut book = Book::new(0);
        measure(&mut book, 250 * MS, 8_000);
        let before = book.total();
        assert!(!book.after_look(Narrowed::Yes));
        book.guess(500 * MS, 24_000);
        let added = book.total().runs - before.runs;
        let ns = book.total().ns - before.ns;
        assert_eq!((added, ns), (16_000, 16_000 * (60 - 40 + 20)));
    }

    #[test]
    fn runs_are_measured_again_after_some_looks_and_for_as_long_as_it_takes() {
        let mut book = Book::new(0);
        let mut now_ns = 0;
        let mut rests = 0;
        for _ in 0..10 {
            // A look that measures nothing ends no measuring.
            book.look(now_ns, 0, Due::No);
            assert!(book.after_look(Narrowed::Yes));
            now_ns += 130 * MS;
            measure(&mut book, now_ns, 0);
            let mut measures = book.after_look(Narrowed::Yes);
            while !measures {
                rests += 1;
                book.look(now_ns, 0, Due::No);
                measures = book.after_look(Narrowed::Yes);
            }
        }
        assert_eq!(rests, 10 * RESTS);
        measure(&mut book, now_ns, 0);
        assert!(book.after_look(Narrowed::No));
    }
}
