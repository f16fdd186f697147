//! How much of the time the BPF programs count, so that watching a storm of
//! events stays cheap.
//!
//! Time is cut into periods of [`PERIOD_TICKS`] ticks of the kernel. The programs
//! count in the first ticks of each (`slice_now` in `bpf/kvm.bpf.c`), in all of them
//! unless that would cost more than a budget. What they counted in each slice has the weight of the time
//! that it stands for ([`super::weighted`]).
//!
//! A program that finds the gate closed costs its call all the same. Where these calls
//! take a large part of the budget, the programs are attached for bursts and detached in
//! between, for as long as the budget needs to pay for the burst.

mod stretch;

use std::time::Duration;

use self::stretch::{Slice, Stretch, later, sample};
use super::cost::{
    CLOSED_ALONE_NS, CLOSED_MEASURED_NS, DISPATCH_NS, MEASURED, METER_NS, Measured, Narrowed,
};
use super::gate_words::{ALL, CLOSED, GateMap, Periods, Words};
use super::ledger::{Ledger, Spent};
use super::slices::{self, End, Ends, PERIOD_TICKS, Slices};
use super::weighted::{self, Sample, WHOLE};
use crate::bpf::RunTime;

/// A slice's first and last tick are not whole when they are shorter.
const FEWEST_TICKS: u64 = 2;

/// Openings that differ by less than this part cost alike.
const ALIKE: u64 = 4;
/// Ticks after which the cost of an open gate is known.
const TICKS_OF_OPEN_GATE: u64 = 4;

/// Time between looks at what the programs cost while they are attached: a storm that begins is
/// counted until then. Four of the kernel's ticks, if it has 250 a second.
const ATTACHED_LOOK: Duration = Duration::from_millis(17);
/// Time after which the cost is measured, though there are as many runs as before.
const LONGEST_LOOK_NS: u64 = 250_000_000;
/// Longest time between two looks in a rest.
const REST_LOOK: Duration = Duration::from_millis(250);

/// Length of the burst in which a storm is counted when it has shown itself: its programs are attached.
const FIRST_BURST_NS: u64 = 5_000_000;
/// Length of a burst, at most and at least.
const BURST_NS: u64 = 24_000_000;
const SHORTEST_BURST_NS: u64 = 10_000_000;
/// What programs may take in a burst, unless it is the shortest.
const BURST_COST_NS: f64 = 2_500_000.0;
/// Shortest time until a burst or a rest is looked at again, however overdue it is.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// Longest rest after one: a storm that ends is noticed then.
const LONGEST_REST_NS: u64 = 3_000_000_000;
/// Share of a core that calls which find the gate closed may take: less than attaching and
/// detaching would.
const CLOSED_SHARE: f64 = 0.004;
/// Part of a budget that they may take.
const CLOSED_PART: f64 = 0.5;
/// Part of these limits below which a storm is no longer counted in bursts.
const CALMER: f64 = 0.75;

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
        Self::Within(0.014)
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
    /// Whether a storm that shows itself is counted in a burst at once.
    pub first_burst: FirstBurst,
}

/// A burst of 5 ms, in which a storm that has shown itself is counted before the gate closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstBurst {
    /// It is counted.
    #[default]
    Counted,
    /// It is left out, as by versions before it: experiments measure what it costs.
    LeftOut,
}

/// The gate of one object's programs.
#[derive(Debug)]
pub(super) struct Gate {
    /// Length of the kernel's tick.
    tick_ns: u64,
    counting: Counting,
    /// Share of a core that calls which find it closed may take.
    closed_share: f64,
    first_burst: FirstBurst,
    /// The window so far, in stretches of equal openness.
    stretches: Vec<Stretch>,
    rhythm: Mode,
    /// Bursts so far.
    bursts: u64,
    /// Length of the next one.
    burst_ns: u64,
    /// What of this rest the burst before it stands for.
    allotted_ns: u64,
    /// How often all time began to be counted: the number of its slice.
    openings: u64,
    /// How often a part of each period did.
    settings: u64,
    /// CPU time of attaching and detaching since the last rest began.
    switching_ns: u64,
    /// The last burst did not come about: its programs could not be attached.
    refused: bool,
    /// What this opening costs has been measured for as long as it takes.
    is_known: bool,
    /// What programs cost since they count as they do now has been judged once.
    is_judged: bool,
    /// What looks measured that were too short to judge by, one after the other.
    carried: Option<Measured>,
    /// What those programs took that count what threads do, lately, while all time was counted.
    whole_runs: RunTime,
    ends: Ends,
    /// Slices of periods before it last changed.
    old: Periods,
    /// What the gate was while a window is read: nothing is counted then.
    frozen: Option<Words>,
    ledger: Ledger,
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
    Rest { length_ns: u64, burst_ns: u64 },
}

impl Gate {
    /// To be opened when the window begins ([`Self::open`]).
    pub(super) fn new(limits: Limits, tick_ns: u64, now_ns: u64) -> Self {
        let share = match limits.counting {
            Counting::Every => 0.0,
            Counting::Within(share) => share,
        };
        Self {
            tick_ns,
            counting: limits.counting,
            closed_share: limits.closed_share.unwrap_or(CLOSED_SHARE),
            first_burst: limits.first_burst,
            stretches: vec![Stretch::new(now_ns, PERIOD_TICKS)],
            rhythm: Mode::Slices,
            bursts: 0,
            burst_ns: BURST_NS,
            allotted_ns: 0,
            openings: 0,
            settings: 0,
            switching_ns: 0,
            refused: false,
            is_known: false,
            is_judged: false,
            carried: None,
            whole_runs: RunTime::default(),
            ends: Ends::default(),
            old: Periods::default(),
            frozen: None,
            ledger: Ledger::new(share, now_ns),
        }
    }

    /// A window begins.
    pub(super) fn begin(&mut self, map: &mut impl GateMap, now_ns: u64) {
        if let Some(before) = self.frozen.take() {
            let open_ticks = match before.open_ticks {
                ALL => PERIOD_TICKS,
                fewer => fewer,
            };
            if self.write(map, open_ticks, now_ns) {
                self.stretch(now_ns, open_ticks);
            }
        }
        self.stretches = vec![Stretch::new(now_ns, self.open_ticks())];
        self.allotted_ns = 0;
    }

    /// Has everything counted, and begins the first window. Until then the gate is closed: what
    /// came while the first readings were taken would be counted in no time. What the programs cost
    /// `before` shows a storm that goes on: the window begins with its first burst.
    pub(super) fn open(&mut self, map: &mut impl GateMap, before: Option<Measured>, now_ns: u64) {
        self.write(map, PERIOD_TICKS, now_ns);
        self.begin(map, now_ns);
        self.ledger.open(now_ns);
        let is_storm = |before: Measured| calls_share(before) > self.closed_limit();
        let is_sampled = self.counting != Counting::Every;
        if is_sampled && self.first_burst == FirstBurst::Counted && before.is_some_and(is_storm) {
            self.rhythm = Mode::Burst {
                until_ns: now_ns + FIRST_BURST_NS,
            };
        }
    }

    /// Counts no more until the next window begins, if this one was not counted whole: what
    /// is read now one after the other is of the same time.
    pub(super) fn freeze(&mut self, map: &mut impl GateMap, now_ns: u64) {
        let is_whole = self.rhythm == Mode::Slices && self.open_ticks() == PERIOD_TICKS;
        if is_whole || self.open_ticks() == 0 {
            return;
        }
        let before = map.read();
        self.end_slice(map, now_ns, 0);
        if self.write(map, 0, now_ns) {
            self.frozen = Some(before);
            self.stretch(now_ns, 0);
        }
    }

    /// Slices until now.
    pub(super) fn slices(&self, map: &impl GateMap, now_ns: u64) -> Slices<'_> {
        Slices {
            gate: self.frozen.unwrap_or_else(|| map.read()),
            ends: &self.ends,
            tick_ns: self.tick_ns,
            now_ns,
        }
    }

    /// Whether it is not always open while the programs are attached, and what it costs so
    /// has been measured for long enough.
    pub(super) fn narrowed(&self) -> Narrowed {
        match (self.rhythm, self.open_ticks()) {
            (Mode::Slices, 0..PERIOD_TICKS) if self.is_known => Narrowed::Yes,
            _ => Narrowed::No,
        }
    }

    /// Time until what the programs cost is to be looked at.
    pub(super) fn next_look(&self, now_ns: u64) -> Duration {
        let left = match self.rhythm {
            Mode::Slices => return ATTACHED_LOOK,
            Mode::Rest { .. } if self.wants_burst() => Duration::ZERO,
            Mode::Burst { until_ns } | Mode::Rest { until_ns } => {
                Duration::from_nanos(until_ns.saturating_sub(now_ns))
            }
        };
        left.clamp(SHORTEST_PAUSE, REST_LOOK)
    }

    /// Whether what the programs cost since this time ago is to be measured now.
    pub(super) fn is_due(&self, elapsed_ns: u64, now_ns: u64) -> bool {
        let period_ns = self.tick_ns * PERIOD_TICKS;
        match self.rhythm {
            Mode::Slices if self.open_ticks() < PERIOD_TICKS => elapsed_ns >= period_ns,
            Mode::Burst { until_ns } => now_ns >= until_ns,
            // As many runs as before say nothing here: then they may have found the gate closed.
            Mode::Slices if !self.is_judged || self.carried.is_some() => elapsed_ns >= self.tick_ns,
            Mode::Slices | Mode::Rest { .. } => elapsed_ns >= LONGEST_LOOK_NS,
        }
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

    /// What the window has cost is drawn from the budget.
    pub(super) fn charge(&mut self, now_ns: u64, spent: Spent) {
        self.ledger.charge(now_ns, spent);
    }

    /// The same of all that the last window has cost: what follows is of the next one.
    pub(super) fn close_bill(&mut self, now_ns: u64, spent: Spent) {
        self.ledger.charge(now_ns, spent);
        self.ledger.begin(now_ns);
    }

    /// Chooses how long to be open from what the programs cost lately, and what is left of
    /// the budget.
    pub(super) fn choose(
        &mut self,
        map: &mut impl GateMap,
        measured: Option<Measured>,
        now_ns: u64,
    ) -> Programs {
        if self.counting == Counting::Every {
            return Programs::Stay;
        }
        match (self.rhythm, measured) {
            (Mode::Rest { until_ns }, _) if now_ns >= until_ns || self.wants_burst() => {
                Programs::Attach
            }
            (Mode::Burst { until_ns }, Some(measured)) if now_ns >= until_ns => {
                self.after_burst(map, measured, now_ns)
            }
            // What it costs is not known.
            (Mode::Burst { until_ns }, None) if now_ns >= until_ns => {
                self.rest(map, now_ns, LONGEST_REST_NS)
            }
            (Mode::Slices, Some(measured)) => self.slice(map, measured, now_ns),
            _ => Programs::Stay,
        }
    }

    fn slice(&mut self, map: &mut impl GateMap, measured: Measured, now_ns: u64) -> Programs {
        let Some(measured) = self.judged_by(measured, self.tick_ns) else {
            return Programs::Stay;
        };
        self.is_judged = true;
        if calls_share(measured) > self.closed_limit() {
            return match self.first_burst {
                FirstBurst::Counted => self.first_burst(map, now_ns),
                // What was open until now was the first one.
                FirstBurst::LeftOut => self.after_burst(map, measured, now_ns),
            };
        }
        if self.open_ticks() == PERIOD_TICKS {
            self.whole_runs = lately(self.whole_runs, measured.acts);
        }
        let before = self.open_ticks();
        let open_ticks = affordable(self.ledger.budget(), before, measured);
        self.open_for(map, open_ticks, now_ns);
        let is_alike = open_ticks.abs_diff(before) * ALIKE <= before;
        self.is_known = is_alike && before < PERIOD_TICKS;
        Programs::Stay
    }

    /// What to judge by, once enough ticks were measured: with long ticks one look is too
    /// short, and the next ones are added. A storm that has to be counted in bursts shows at once.
    fn judged_by(&mut self, look: Measured, tick_ns: u64) -> Option<Measured> {
        let measured = self
            .carried
            .take()
            .map_or(look, |carried| carried.and(look));
        let least_ns = |ticks: u64| tick_ns * ticks;
        let is_storm = measured.elapsed_ns >= least_ns(TICKS_OF_OPEN_GATE)
            && calls_share(measured) > self.closed_limit();
        if is_storm || measured.elapsed_ns >= least_ns(ticks_to_judge(self.open_ticks())) {
            return Some(measured);
        }
        self.is_known = false;
        self.carried = Some(measured);
        None
    }

    /// Share of a core that calls which find the gate closed may take now.
    fn closed_limit(&self) -> f64 {
        self.closed_share.min(self.ledger.budget() * CLOSED_PART)
    }

    fn open_for(&mut self, map: &mut impl GateMap, open_ticks: u64, now_ns: u64) -> Programs {
        // What follows a burst stands for itself.
        let is_burst = matches!(self.rhythm, Mode::Burst { .. });
        if is_burst || open_ticks != self.open_ticks() {
            self.end_slice(map, now_ns, 0);
            if self.write(map, open_ticks, now_ns) {
                self.stretch(now_ns, open_ticks);
            }
        }
        Programs::Stay
    }

    /// A storm has shown itself, and began at some time since the last look. What was counted until
    /// now stands for itself, and says little of how dense the storm is: a burst within it does,
    /// also where the window ends in the rest that follows.
    fn first_burst(&mut self, map: &mut impl GateMap, now_ns: u64) -> Programs {
        self.end_slice(map, now_ns, 0);
        if self.write(map, PERIOD_TICKS, now_ns) {
            self.stretch(now_ns, PERIOD_TICKS);
            self.rhythm = Mode::Burst {
                until_ns: now_ns + FIRST_BURST_NS,
            };
        }
        Programs::Stay
    }

    fn after_burst(&mut self, map: &mut impl GateMap, measured: Measured, now_ns: u64) -> Programs {
        if self.open_ticks() == PERIOD_TICKS {
            self.whole_runs = lately(self.whole_runs, measured.acts);
        }
        match self.next_after_burst(measured) {
            Next::Slices { open_ticks } => {
                let programs = self.open_for(map, open_ticks, now_ns);
                self.rhythm = Mode::Slices;
                programs
            }
            Next::Rest {
                length_ns,
                burst_ns,
            } => {
                self.burst_ns = burst_ns;
                self.rest(map, now_ns, length_ns)
            }
        }
    }

    /// A storm that calms down is counted in slices that it can afford from the burst on: the
    /// next look is a quarter of a second away. One that does so a little goes on in bursts,
    /// so that it is not attached and detached for each way of sampling in turns.
    fn next_after_burst(&self, burst: Measured) -> Next {
        let limit = match self.rhythm {
            Mode::Burst { .. } => self.closed_limit() * CALMER,
            Mode::Slices | Mode::Rest { .. } => self.closed_limit(),
        };
        if calls_share(burst) <= limit {
            return Next::Slices {
                open_ticks: affordable(self.ledger.budget(), self.open_ticks(), burst),
            };
        }
        let cost = cost(burst);
        let burst_ns = ((BURST_COST_NS / cost) as u64).clamp(SHORTEST_BURST_NS, BURST_NS);
        let next_ns = cost * burst_ns as f64 + self.switching_ns as f64;
        let rest_ns = self.ledger.affords_after(next_ns);
        Next::Rest {
            length_ns: rest_ns.clamp(BURST_NS, LONGEST_REST_NS),
            burst_ns,
        }
    }

    fn rest(&mut self, map: &mut impl GateMap, now_ns: u64, length_ns: u64) -> Programs {
        let half_ns = match self.rhythm {
            Mode::Burst { .. } => length_ns / 2,
            Mode::Slices | Mode::Rest { .. } => 0,
        };
        self.end_slice(map, now_ns, half_ns);
        if !self.write(map, 0, now_ns) {
            return Programs::Stay;
        }
        self.stretch(now_ns, 0);
        self.allotted_ns = half_ns;
        self.switching_ns = 0;
        self.rhythm = Mode::Rest {
            until_ns: now_ns + length_ns,
        };
        Programs::Detach
    }

    /// The programs are attached again.
    pub(super) fn open_burst(&mut self, map: &mut impl GateMap, now_ns: u64) {
        self.bursts += 1;
        self.refused = false;
        let rest = self.stretches.last();
        let rest_ns = rest.map_or(0, |rest| self.left_of(rest, now_ns));
        let weight = weighted::of_time(self.burst_ns, self.burst_ns + rest_ns);
        if self.write_weighted(map, PERIOD_TICKS, weight, now_ns) {
            self.stretch(now_ns, PERIOD_TICKS);
            self.rhythm = Mode::Burst {
                until_ns: now_ns + self.burst_ns,
            };
        }
    }

    /// Attaching or detaching has taken so much CPU time.
    pub(super) fn switched(&mut self, spent_ns: u64) {
        self.switching_ns += spent_ns;
    }

    /// Bursts so far; none while no storm is expensive.
    pub(super) fn bursts(&self) -> u64 {
        self.bursts
    }

    fn stretch(&mut self, from_ns: u64, open_ticks: u64) {
        self.carried = None;
        self.is_known = false;
        self.is_judged = false;
        self.stretches.push(Stretch::new(from_ns, open_ticks));
    }

    /// The slice that is counted now ends, and with it those of this stretch. A burst stands for
    /// this much of the rest that follows.
    fn end_slice(&mut self, map: &mut impl GateMap, now_ns: u64, rest_ns: u64) {
        let gate = map.read();
        let mut slice = Slice::of(gate);
        if gate.open_ticks == ALL {
            slice.weight = self.weight_of_burst(now_ns, rest_ns);
            let end = End {
                slice: gate.burst,
                ns: now_ns,
                weight: slice.weight,
            };
            self.ends.push(map, end);
        }
        if let Some(periods) = gate.periods() {
            let end_ns = periods.slice_ns + periods.open_ticks * self.tick_ns;
            let end = End {
                slice: periods.slice,
                ns: end_ns.min(now_ns),
                weight: gate.weight,
            };
            self.ends.push(map, end);
            self.old = periods;
        }
        if let Some(last) = self.stretches.last_mut() {
            last.slice = Some(slice);
        }
    }

    /// Of the slice of all time that ends now. A storm may begin or end in a rest, so the bursts
    /// on either side stand for half of it each. Time that was counted until a storm showed
    /// was not like what followed, and stands for itself.
    fn weight_of_burst(&self, now_ns: u64, rest_ns: u64) -> u64 {
        let (Mode::Burst { .. }, Some(burst)) = (self.rhythm, self.stretches.last()) else {
            return WHOLE;
        };
        let open_ns = now_ns.saturating_sub(burst.from_ns);
        let before = self.stretches.iter().rev().nth(1);
        let before_ns = before.map_or(0, |rest| self.left_of(rest, burst.from_ns));
        // One that was cut short would count as a separate window.
        weighted::of_time(
            open_ns.max(SHORTEST_BURST_NS / 2),
            open_ns + before_ns + rest_ns,
        )
    }

    /// What the burst before has left of a rest that ended then.
    fn left_of(&self, rest: &Stretch, end_ns: u64) -> u64 {
        let rest_ns = end_ns.saturating_sub(rest.from_ns);
        match rest.open_ticks {
            0 => rest_ns.saturating_sub(self.allotted_ns),
            _ => 0,
        }
    }

    /// What of the time from `since_ns`, or of the window if it began later, until `now_ns`
    /// the programs counted.
    pub(super) fn sample(&self, map: &impl GateMap, since_ns: u64, now_ns: u64) -> Sample {
        let last = Slice::of(map.read());
        let stretches = later(&self.stretches, since_ns);
        sample(&stretches, now_ns, self.tick_ns, last)
    }

    /// What a run of a program takes of the time of the thread that runs it, ns, if not
    /// all of this window was counted.
    pub(super) fn run_ns(&self) -> Option<f64> {
        let is_sampled = self.stretches.len() > 1 || self.open_ticks() < PERIOD_TICKS;
        let RunTime { ns, runs } = self.whole_runs;
        (is_sampled && runs > 0).then(|| ns as f64 / runs as f64 + DISPATCH_NS + METER_NS)
    }

    fn write(&mut self, map: &mut impl GateMap, open_ticks: u64, now_ns: u64) -> bool {
        self.write_weighted(map, open_ticks, slices::of_ticks(open_ticks), now_ns)
    }

    fn write_weighted(
        &mut self,
        map: &mut impl GateMap,
        open_ticks: u64,
        weight: u64,
        now_ns: u64,
    ) -> bool {
        let (open_ticks, burst) = match open_ticks {
            PERIOD_TICKS => {
                let number = self.openings;
                self.openings += 1;
                (ALL, slices::burst(number))
            }
            0 => (CLOSED, 0),
            fewer => {
                self.settings += 1;
                (fewer, slices::setting(self.settings))
            }
        };
        map.write(Words {
            open_ticks,
            burst,
            slice: 0,
            slice_ns: now_ns,
            old: self.old,
            weight,
        })
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

/// What a burst cost, share of a core.
fn cost(burst: Measured) -> f64 {
    let calls = burst.spent.runs as f64 * (DISPATCH_NS + METER_NS);
    (burst.spent.ns as f64 + calls) / burst.elapsed_ns.max(1) as f64
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
    let left = budget - (closed + runs(METER_NS)) * MEASURED;
    let fits = (left.max(0.0) / counting * PERIOD_TICKS as f64) as u64;
    fits.clamp(FEWEST_TICKS, PERIOD_TICKS - 1)
}

/// What was before weighs half.
fn lately(before: RunTime, now: RunTime) -> RunTime {
    RunTime {
        ns: before.ns / 2 + now.ns,
        runs: before.runs / 2 + now.runs,
    }
}

#[cfg(test)]
mod tests;
