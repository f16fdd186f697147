//! How much of the time the BPF programs count, so that watching a storm of
//! events stays cheap.
//!
//! Time is cut into periods of [`PERIOD_TICKS`] ticks of the kernel. The programs
//! count in the first ticks of each (`slice_now` in `bpf/kvm.bpf.c`), in all of them
//! unless that would cost more than a budget. What they counted is scaled by the time
//! that the gate was open.
//!
//! A program that finds the gate closed costs its call all the same. Where these calls
//! take a large part of the budget, the programs are attached for bursts and detached in
//! between, for as long as the budget needs to pay for the burst.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

use super::cost::{
    CLOSED_ALONE_NS, CLOSED_MEASURED_NS, CYCLE, DISPATCH_NS, METER_NS, Measured, Narrowed,
};
use super::gate_words::{ALL, CLOSED, Words};
use crate::bpf::{Object, RunTime};

/// Ticks in a period.
const PERIOD_TICKS: u64 = 1 << 5;
/// A slice's first and last tick are not whole when they are shorter.
const FEWEST_TICKS: u64 = 2;

/// Ticks after which the cost of an open gate is known.
const TICKS_OF_OPEN_GATE: u64 = 4;

/// Length of a burst.
pub(super) const BURST_NS: u64 = 24_000_000;
/// Shortest time until a burst or a rest is looked at again, however overdue it is.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// Longest rest after one: a storm that ends is noticed then.
const LONGEST_REST_NS: u64 = 3_000_000_000;
/// Share of a core that calls which find the gate closed may take: less than attaching and
/// detaching would.
const CLOSED_SHARE: f64 = 0.004;
/// Part of [`CLOSED_SHARE`] below which a storm is no longer counted in bursts.
const CALMER: f64 = 0.75;
/// No slice of a period has such a number.
const FIRST_BURST: u64 = 1 << 62;

/// Whether a storm may be sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counting {
    /// Every event is counted, whatever that costs.
    Every,
    /// The programs and the observing thread may cost this share of a core: a storm's
    /// events are counted in slices of time, and scaled.
    Within(f64),
}

impl Default for Counting {
    /// The rest of a goal of 2 % is for finding machines, and for what happens until the
    /// gate is narrowed.
    fn default() -> Self {
        Self::Within(0.015)
    }
}

/// What an observer may cost, and how much it keeps. Tests have other limits than users.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Whether a storm may be sampled.
    pub counting: Counting,
    /// Share of a core that calls which find the gate closed may take, before programs are
    /// attached for bursts only; `None`: 0.4 %.
    pub closed_share: Option<f64>,
    /// Processes whose tasks are read at once; `None`: 8192.
    pub owners: Option<u32>,
}

/// The gate of one object's programs.
#[derive(Debug)]
pub(super) struct Gate {
    counting: Counting,
    /// Share of a core that calls which find it closed may take.
    closed_share: f64,
    /// The window so far, in stretches of equal openness.
    stretches: Vec<Stretch>,
    rhythm: Mode,
    /// Bursts so far.
    bursts: u64,
    /// CPU time of attaching and detaching since the last rest began.
    switching_ns: u64,
    /// The last burst did not come about: its programs could not be attached.
    refused: bool,
    /// What looks measured that were too short to judge by, one after the other.
    carried: Option<Measured>,
    /// What the programs of the last bursts took.
    in_bursts: RunTime,
    /// When the last burst ended, and its number.
    closed: (u64, u64),
}

/// How a storm is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// In slices of each period, or not at all.
    Slices,
    /// The programs are attached and count everything, until then.
    Burst { until_ns: u64 },
    /// They are detached until then.
    Rest { until_ns: u64 },
}

/// What the programs have to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Programs {
    Stay,
    /// To be attached, then [`Gate::open_burst`].
    Attach,
    /// To be detached: the gate is closed.
    Detach,
}

/// What follows a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Slices { open_ticks: u64 },
    Rest { length_ns: u64 },
}

/// From when on the gate was open for `open_ticks` of each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    from_ns: u64,
    open_ticks: u64,
}

/// Where periods begin.
#[derive(Clone, Copy, Debug)]
struct Rhythm {
    tick_ns: u64,
    /// The beginning of any period.
    anchor_ns: u64,
}

impl Gate {
    /// To be opened when the window begins ([`Self::open`]).
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            counting: limits.counting,
            closed_share: limits.closed_share.unwrap_or(CLOSED_SHARE),
            stretches: vec![Stretch {
                from_ns: nanoseconds(clock_gettime(ClockId::Monotonic)),
                open_ticks: PERIOD_TICKS,
            }],
            rhythm: Mode::Slices,
            bursts: 0,
            switching_ns: 0,
            refused: false,
            carried: None,
            in_bursts: RunTime::default(),
            closed: (0, 0),
        }
    }

    /// A window begins at `from_ns` of the monotonic clock.
    pub(super) fn begin(&mut self, from_ns: u64) {
        self.stretches = vec![Stretch {
            from_ns,
            open_ticks: self.open_ticks(),
        }];
    }

    /// Has everything counted, and begins the first window. Until then the gate is closed: what
    /// came while the first readings were taken would be counted in no time.
    pub(super) fn open(&mut self, object: &mut Object) {
        let from_ns = nanoseconds(clock_gettime(ClockId::Monotonic));
        self.set(object, PERIOD_TICKS, from_ns);
        self.begin(from_ns);
    }

    /// Whether it is not always open while the programs are attached, and what it costs so
    /// has been measured for long enough.
    pub(super) fn narrowed(&self) -> Narrowed {
        match (self.rhythm, self.open_ticks()) {
            (Mode::Slices, 0..PERIOD_TICKS) if self.carried.is_none() => Narrowed::Yes,
            _ => Narrowed::No,
        }
    }

    /// Time until a burst or a rest is over.
    pub(super) fn next_change(&self, now_ns: u64) -> Option<Duration> {
        let left = match self.rhythm {
            Mode::Slices => return None,
            Mode::Rest { .. } if self.wants_burst() => Duration::ZERO,
            Mode::Burst { until_ns } | Mode::Rest { until_ns } => {
                Duration::from_nanos(until_ns.saturating_sub(now_ns))
            }
        };
        Some(left.max(SHORTEST_PAUSE))
    }

    /// A window in which nothing is counted says nothing: it begins with a burst, unless
    /// bursts are refused.
    fn wants_burst(&self) -> bool {
        !self.refused && self.stretches.iter().all(|stretch| stretch.open_ticks == 0)
    }

    /// A rest is over: there is a machine of which nothing was counted yet.
    pub(super) fn end_rest(&mut self) {
        if let Mode::Rest { until_ns } = &mut self.rhythm {
            *until_ns = 0;
        }
    }

    /// A burst's programs could not be attached: the rest goes on.
    pub(super) fn put_off(&mut self, now_ns: u64) {
        self.refused = true;
        self.rhythm = Mode::Rest {
            until_ns: now_ns + LONGEST_REST_NS,
        };
    }

    /// Chooses how long to be open from what the programs cost lately, and the share of
    /// a core that the observing thread takes itself.
    pub(super) fn choose(
        &mut self,
        object: &mut Object,
        measured: Option<Measured>,
        own: f64,
    ) -> Programs {
        let Counting::Within(whole) = self.counting else {
            return Programs::Stay;
        };
        let budget = left_for_programs(whole, own);
        let now_ns = nanoseconds(clock_gettime(ClockId::Monotonic));
        match (self.rhythm, measured) {
            (Mode::Rest { until_ns }, _) if now_ns >= until_ns || self.wants_burst() => {
                Programs::Attach
            }
            (Mode::Burst { until_ns }, Some(measured)) if now_ns >= until_ns => {
                self.after_burst(object, measured, budget, now_ns)
            }
            // What it costs is not known.
            (Mode::Burst { until_ns }, None) if now_ns >= until_ns => {
                self.rest(object, now_ns, LONGEST_REST_NS)
            }
            (Mode::Slices, Some(measured)) => self.slice(object, measured, budget, now_ns),
            _ => Programs::Stay,
        }
    }

    fn slice(
        &mut self,
        object: &mut Object,
        measured: Measured,
        budget: f64,
        now_ns: u64,
    ) -> Programs {
        let Some(measured) = self.judged_by(measured, tick_ns()) else {
            return Programs::Stay;
        };
        if calls_share(measured) > self.closed_share {
            // What was open until now was the first burst.
            return self.after_burst(object, measured, budget, now_ns);
        }
        let open_ticks = affordable(budget, self.open_ticks(), measured);
        self.open_for(object, open_ticks, now_ns)
    }

    /// What to judge by, once enough ticks were measured: with long ticks one look is too
    /// short, and the next ones are added.
    fn judged_by(&mut self, look: Measured, tick_ns: u64) -> Option<Measured> {
        let measured = self
            .carried
            .take()
            .map_or(look, |carried| carried.and(look));
        if measured.elapsed_ns >= tick_ns * ticks_to_judge(self.open_ticks()) {
            return Some(measured);
        }
        self.carried = Some(measured);
        None
    }

    fn open_for(&mut self, object: &mut Object, open_ticks: u64, now_ns: u64) -> Programs {
        if open_ticks != self.open_ticks() && self.set(object, open_ticks, now_ns) {
            self.stretch(now_ns, open_ticks);
        }
        Programs::Stay
    }

    fn after_burst(
        &mut self,
        object: &mut Object,
        measured: Measured,
        budget: f64,
        now_ns: u64,
    ) -> Programs {
        self.in_bursts = lately(self.in_bursts, measured.spent);
        match self.next_after_burst(measured, budget) {
            Next::Slices { open_ticks } => {
                self.rhythm = Mode::Slices;
                self.open_for(object, open_ticks, now_ns)
            }
            Next::Rest { length_ns } => self.rest(object, now_ns, length_ns),
        }
    }

    /// A storm that calms down is counted in slices that it can afford from the burst on: the
    /// next look is a quarter of a second away. One that does so a little goes on in bursts,
    /// so that it is not attached and detached for each way of sampling in turns.
    fn next_after_burst(&self, burst: Measured, budget: f64) -> Next {
        let limit = match self.rhythm {
            Mode::Burst { .. } => self.closed_share * CALMER,
            Mode::Slices | Mode::Rest { .. } => self.closed_share,
        };
        if calls_share(burst) <= limit {
            return Next::Slices {
                open_ticks: affordable(budget, PERIOD_TICKS, burst),
            };
        }
        Next::Rest {
            length_ns: rest_ns(budget, burst, self.switching_ns),
        }
    }

    fn rest(&mut self, object: &mut Object, now_ns: u64, length_ns: u64) -> Programs {
        self.closed = (now_ns, self.burst());
        if !self.set(object, CLOSED, now_ns) {
            return Programs::Stay;
        }
        self.stretch(now_ns, 0);
        self.switching_ns = 0;
        self.rhythm = Mode::Rest {
            until_ns: now_ns + length_ns,
        };
        Programs::Detach
    }

    /// The programs are attached again.
    pub(super) fn open_burst(&mut self, object: &mut Object) {
        self.bursts += 1;
        self.refused = false;
        let now_ns = nanoseconds(clock_gettime(ClockId::Monotonic));
        if self.set(object, PERIOD_TICKS, now_ns) {
            self.stretch(now_ns, PERIOD_TICKS);
            self.rhythm = Mode::Burst {
                until_ns: now_ns + BURST_NS,
            };
        }
    }

    /// Attaching or detaching has taken so much CPU time.
    pub(super) fn switched(&mut self, spent_ns: u64) {
        self.switching_ns += spent_ns;
    }

    /// Bursts so far; none while no storm is dear.
    pub(super) fn bursts(&self) -> u64 {
        self.bursts
    }

    /// The number of this burst; what threads did in an earlier one is forgotten.
    fn burst(&self) -> u64 {
        match self.bursts {
            0 => 0,
            bursts => FIRST_BURST + bursts,
        }
    }

    fn stretch(&mut self, from_ns: u64, open_ticks: u64) {
        self.carried = None;
        self.stretches.push(Stretch {
            from_ns,
            open_ticks,
        });
    }

    /// Share of the time from `since_ns`, or of the window if it began later, until `now_ns`
    /// in which the programs counted.
    pub(super) fn share(&self, object: &Object, since_ns: u64, now_ns: u64) -> f64 {
        let rhythm = Rhythm {
            tick_ns: tick_ns(),
            anchor_ns: Words::read(object).slice_ns,
        };
        share(&later(&self.stretches, since_ns), now_ns, rhythm)
    }

    /// What a run of a program takes of the time of the thread that runs it, ns, if this
    /// window was counted in bursts, and nothing of it in slices of periods.
    pub(super) fn run_in_bursts_ns(&self) -> Option<f64> {
        let is_burst = |stretch: &Stretch| matches!(stretch.open_ticks, 0 | PERIOD_TICKS);
        let is_sampled = self.stretches.len() > 1 || self.open_ticks() == 0;
        let RunTime { ns, runs } = self.in_bursts;
        (is_sampled && runs > 0 && self.stretches.iter().all(is_burst))
            .then(|| ns as f64 / runs as f64 + DISPATCH_NS + METER_NS)
    }

    fn set(&self, object: &mut Object, open_ticks: u64, now_ns: u64) -> bool {
        let (closed_ns, closed_burst) = self.closed;
        let words = Words {
            open_ticks: match open_ticks {
                PERIOD_TICKS => ALL,
                fewer => fewer,
            },
            burst: self.burst(),
            slice_ns: now_ns,
            closed_ns,
            closed_burst,
        };
        words.write(object)
    }

    fn open_ticks(&self) -> u64 {
        let last = self.stretches.last();
        last.map_or(PERIOD_TICKS, |last| last.open_ticks)
    }
}

/// What calls would take that count nothing, share of a core.
fn calls_share(measured: Measured) -> f64 {
    let each = CLOSED_ALONE_NS + DISPATCH_NS;
    measured.spent.runs as f64 * each / measured.elapsed_ns.max(1) as f64
}

/// Time until the budget has paid for a burst, and for attaching and detaching.
fn rest_ns(budget: f64, burst: Measured, switching_ns: u64) -> u64 {
    let calls = burst.spent.runs as f64 * (DISPATCH_NS + METER_NS);
    let spent = burst.spent.ns as f64 + calls + switching_ns as f64;
    let paid_after = (spent / budget) as u64;
    let rest = paid_after.saturating_sub(burst.elapsed_ns);
    rest.clamp(BURST_NS, LONGEST_REST_NS)
}

/// The programs keep a part, however much the observing thread takes.
fn left_for_programs(whole: f64, own: f64) -> f64 {
    const LEAST: f64 = 0.25;
    (whole - own).max(whole * LEAST)
}

/// Ticks that show what events cost: a whole period where the gate was narrowed, a few
/// where it was open all the time, so that a storm is noticed soon.
fn ticks_to_judge(open: u64) -> u64 {
    if open == PERIOD_TICKS {
        TICKS_OF_OPEN_GATE
    } else {
        PERIOD_TICKS
    }
}

/// Ticks to be open so that the programs cost no more than the budget, if events
/// go on as they did while the gate was open for `open` ticks.
fn affordable(budget: f64, open: u64, measured: Measured) -> u64 {
    let elapsed_ns = measured.elapsed_ns.max(1) as f64;
    let runs = |each_ns: f64| measured.spent.runs as f64 * each_ns / elapsed_ns;
    // The way to a program and back is paid whether it counts or not.
    let budget = budget - runs(DISPATCH_NS);
    let closed = runs(CLOSED_MEASURED_NS);
    let whole = measured.spent.ns as f64 / elapsed_ns;
    // A gate that is always open is always measured.
    let always = budget - runs(METER_NS);
    if whole <= always && open == PERIOD_TICKS {
        return PERIOD_TICKS;
    }
    let counting = (whole - closed).max(0.0) * PERIOD_TICKS as f64 / open as f64;
    if counting + closed <= always {
        return PERIOD_TICKS;
    }
    // Runs that find it closed are measured now and then only.
    let left = budget - (closed + runs(METER_NS)) / f64::from(CYCLE);
    let fits = (left.max(0.0) / counting * PERIOD_TICKS as f64) as u64;
    fits.clamp(FEWEST_TICKS, PERIOD_TICKS - 1)
}

/// The stretches, or parts of them, that are later than `since_ns`.
fn later(stretches: &[Stretch], since_ns: u64) -> Vec<Stretch> {
    let ended = |stretch: &&Stretch| stretch.from_ns <= since_ns;
    let first = stretches.iter().take_while(ended).count().saturating_sub(1);
    let rest = stretches[first..].iter();
    rest.map(|stretch| Stretch {
        from_ns: stretch.from_ns.max(since_ns),
        ..*stretch
    })
    .collect()
}

fn share(stretches: &[Stretch], now_ns: u64, rhythm: Rhythm) -> f64 {
    let ends = stretches.iter().skip(1).map(|stretch| stretch.from_ns);
    let (mut open_ns, mut whole_ns) = (0, 0);
    for (stretch, end_ns) in stretches.iter().zip(ends.chain([now_ns])) {
        let until = |ns: u64| rhythm.open_until(ns, stretch.open_ticks);
        open_ns += until(end_ns) - until(stretch.from_ns);
        whole_ns += end_ns.saturating_sub(stretch.from_ns);
    }
    match whole_ns {
        0 => 1.0,
        whole => (open_ns as f64 / whole as f64).clamp(0.0, 1.0),
    }
}

impl Rhythm {
    /// Time from the anchor to `ns` in which a gate of `ticks` was open;
    /// negative before it.
    fn open_until(self, ns: u64, ticks: u64) -> i128 {
        let period = i128::from(self.tick_ns * PERIOD_TICKS);
        let open = i128::from(self.tick_ns * ticks);
        let ns = i128::from(ns) - i128::from(self.anchor_ns);
        ns.div_euclid(period) * open + ns.rem_euclid(period).min(open)
    }
}

/// Old bursts weigh half.
fn lately(before: RunTime, burst: RunTime) -> RunTime {
    RunTime {
        ns: before.ns / 2 + burst.ns,
        runs: before.runs / 2 + burst.runs,
    }
}

/// Length of the kernel's tick.
fn tick_ns() -> u64 {
    nanoseconds(clock_getres(ClockId::MonotonicCoarse)).max(1)
}

fn nanoseconds(time: Timespec) -> u64 {
    let whole = u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000;
    whole + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests;
