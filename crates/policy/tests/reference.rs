//! The coalescer against its definition: a model that keeps lists where the
//! coalescer keeps counters, driven by arbitrary submissions, completions,
//! pauses, timers and changes of settings.

#![allow(clippy::unwrap_used)]

#[path = "reference/model.rs"]
mod model;

use model::Model;
use proptest::prelude::*;
use tare_policy::coalesce::{Coalescer, Decision, Mode, Parameters, Ratio, RequestKind, Settings};

const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Step {
    Submit(RequestKind, usize),
    /// Completes the oldest, or one picked at random, this many times.
    Complete(Option<usize>, usize),
    /// Keeps the number in flight for this many completions this far apart.
    Steady(u64, usize),
    /// Requests take this long from now on.
    Latency(u64),
    Pass(u64),
    CaughtUp,
    Configure(Parameters),
    Reset,
}

fn kind() -> impl Strategy<Value = RequestKind> {
    prop_oneof![
        20 => Just(RequestKind::Read),
        20 => Just(RequestKind::Write),
        1 => Just(RequestKind::WriteThrough),
        1 => Just(RequestKind::Flush),
        1 => Just(RequestKind::Control),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        8 => Just(Mode::Auto),
        1 => Just(Mode::Off),
        1 => (1..9u32, 0..9u32).prop_map(|(c, more)| Mode::Fixed(Ratio::new(c, c + more).unwrap())),
    ]
}

fn parameters() -> impl Strategy<Value = Parameters> {
    (
        mode(),
        2..9u32,
        0..20_000u32,
        1..5u64,
        1..2_000u64,
        0..6u32,
        0..6u32,
    )
        .prop_map(
            |(mode, cif, iops, epoch_ms, hold_us, read, write)| Parameters {
                mode,
                cif_threshold: cif,
                iops_threshold: iops,
                epoch_ns: epoch_ms * MS,
                longest_hold_ns: hold_us * 1_000,
                read_urgent_below: read,
                write_urgent_below: write,
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (kind(), 1..20usize).prop_map(|(kind, count)| Step::Submit(kind, count)),
        8 => (prop::option::of(any::<usize>()), 1..20usize)
            .prop_map(|(pick, count)| Step::Complete(pick, count)),
        8 => (1..100_000u64, 1..200usize).prop_map(|(gap_ns, count)| Step::Steady(gap_ns, count)),
        6 => (0..3 * MS).prop_map(Step::Pass),
        2 => prop_oneof![0..20_000u64, 100_000..30 * MS].prop_map(Step::Latency),
        2 => Just(Step::CaughtUp),
        1 => parameters().prop_map(Step::Configure),
        1 => Just(Step::Reset),
    ]
}

/// Both, side by side.
struct Pair {
    model: Model,
    coalescer: Coalescer,
    now_ns: u64,
    latency_ns: u64,
    epoch_start_ns: u64,
    /// Completions that came, and completions that the driver knows of.
    came: u64,
    known: u64,
}

impl Pair {
    fn new(parameters: Parameters) -> Self {
        Self {
            model: Model::new(parameters),
            coalescer: Coalescer::new(Settings::new(parameters).unwrap()),
            now_ns: 0,
            latency_ns: MS,
            epoch_start_ns: 0,
            came: 0,
            known: 0,
        }
    }

    fn submit(&mut self, kind: RequestKind) {
        self.model.submitted(kind);
        self.coalescer.submitted(kind);
    }

    fn complete(&mut self, pick: Option<usize>) -> Result<(), TestCaseError> {
        let in_flight = self.model.in_flight.len();
        if in_flight == 0 {
            return Ok(());
        }
        let index = pick.map_or(0, |pick| pick % in_flight);
        let kind = self.model.in_flight[index];
        let latency_ns = self.latency_ns;
        let epochs = self.coalescer.counters().epochs;
        let decision = self.coalescer.completed(self.now_ns, kind, latency_ns);
        let longest_cycle = self.coalescer.ratio().skip_up();
        let ends = self.coalescer.counters().epochs > epochs;
        // A trial may end an epoch early, and nothing ends one late.
        let lapsed = self.epoch_start_ns + self.model.parameters.epoch_ns <= self.now_ns;
        prop_assert!(ends || !lapsed);
        if ends {
            self.epoch_start_ns = self.now_ns;
        }
        let trial = (
            ends,
            longest_cycle,
            self.coalescer.hold_limit_ns(latency_ns),
        );
        let (_, expected) = self.model.completed(self.now_ns, index, trial);
        prop_assert_eq!(decision, expected);
        self.came += 1;
        if decision == Decision::Deliver {
            self.known = self.came;
        }
        if self.model.parameters.mode == Mode::Auto {
            let urgent = matches!(
                kind,
                RequestKind::Flush | RequestKind::WriteThrough | RequestKind::Control
            );
            prop_assert!(decision == Decision::Deliver || !urgent && in_flight > 1);
        }
        Ok(())
    }

    /// Time passes; the timer fires when it is due.
    fn pass(&mut self, ns: u64) -> Result<(), TestCaseError> {
        let until_ns = self.now_ns + ns;
        if let Some(due_ns) = self.coalescer.deadline().filter(|due| *due <= until_ns) {
            prop_assert!(due_ns >= self.now_ns);
            prop_assert!(self.model.expired(due_ns));
            prop_assert_eq!(self.coalescer.expired(due_ns), Decision::Deliver);
            self.known = self.came;
        }
        self.now_ns = until_ns;
        Ok(())
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Submit(kind, count) => (0..count).for_each(|_| self.submit(kind)),
            Step::Complete(pick, count) => {
                for _ in 0..count {
                    self.complete(pick)?;
                }
            }
            Step::Steady(gap_ns, count) => {
                for turn in 0..count {
                    self.pass(gap_ns)?;
                    self.complete(None)?;
                    let kind = if turn % 3 == 0 {
                        RequestKind::Write
                    } else {
                        RequestKind::Read
                    };
                    self.submit(kind);
                }
            }
            Step::Latency(ns) => self.latency_ns = ns,
            Step::Pass(ns) => self.pass(ns)?,
            Step::CaughtUp => {
                self.model.caught_up();
                self.coalescer.caught_up(self.now_ns);
                self.known = self.came;
            }
            Step::Configure(parameters) => self.configure(parameters)?,
            Step::Reset => {
                self.model.reset(self.now_ns);
                self.epoch_start_ns = self.now_ns;
                self.coalescer.reset(self.now_ns);
                self.known = self.came;
            }
        }
        self.check()
    }

    fn configure(&mut self, parameters: Parameters) -> Result<(), TestCaseError> {
        let told = self.model.configure(self.now_ns, parameters);
        let settings = Settings::new(parameters).unwrap();
        let decision = self.coalescer.configure(self.now_ns, settings);
        prop_assert_eq!(decision == Decision::Deliver, told);
        self.epoch_start_ns = self.now_ns;
        self.known = self.came;
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let (model, coalescer) = (&self.model, &self.coalescer);
        prop_assert_eq!(coalescer.in_flight(), model.in_flight.len() as u64);
        prop_assert_eq!(coalescer.held(), model.held.len() as u64);
        prop_assert_eq!(coalescer.held(), self.came - self.known);
        prop_assert_eq!(coalescer.deadline(), model.deadline());
        let ratio = coalescer.ratio();
        prop_assert_eq!((ratio.count_up(), ratio.skip_up()), model.pair);
        let counters = coalescer.counters();
        prop_assert_eq!(counters.completions, self.came);
        prop_assert_eq!(counters.completions, counters.delivered + counters.held);
        prop_assert_eq!(
            counters.delivered,
            counters.delivered_by.iter().sum::<u64>()
        );
        let released: u64 = counters.released.iter().sum();
        prop_assert_eq!(counters.held, released + coalescer.held());
        prop_assert_eq!(counters.unmatched, 0);
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_coalescer_is_its_definition(
        parameters in parameters(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut pair = Pair::new(parameters);
        for step in steps {
            pair.take(step)?;
        }
    }

    #[test]
    fn in_flight_never_underflows_whatever_is_reported(
        reports in prop::collection::vec((any::<bool>(), kind(), 0..MS), 0..200),
    ) {
        let mut coalescer = Coalescer::new(Settings::default());
        let (mut now_ns, mut submitted) = (0, 0);
        for (submit, kind, ns) in reports {
            now_ns += ns;
            if submit {
                coalescer.submitted(kind);
                submitted += 1;
            } else {
                let _ = coalescer.completed(now_ns, kind, ns);
            }
            let counters = coalescer.counters();
            let matched = counters.completions - counters.unmatched;
            prop_assert_eq!(coalescer.in_flight() + matched, submitted);
        }
    }
}
