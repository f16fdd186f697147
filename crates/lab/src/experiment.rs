//! What an experiment is: its plan, its turns, and what it makes of its samples.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tare_control::stats::Kvm;
use tare_load::interrupt::Interrupt;

use crate::bench::{self, Bench, RunError};
use crate::data::Data;
use crate::depth::Depth;
use crate::error::WeighError;
use crate::figure::Figure;
use crate::goal::Goal;
use crate::host::HostFacts;
use crate::metric::{Direction, Metric};
use crate::progress::Progress;
use crate::record::Recorder;
use crate::replay::{Record, Replay};
use crate::report::ReportText;

/// One experiment, planned for one depth.
pub trait Experiment {
    /// Checks its options and reads the files that they name; called once, before it runs.
    fn configure(&mut self) -> Result<(), WeighError> {
        Ok(())
    }

    /// The directory of the record that it continues, if it continues one.
    fn resumes(&self) -> Option<&Path> {
        None
    }

    /// The plan, for the record.
    fn plan(&self) -> Value;

    /// Its turns, in their order.
    fn turns(&self) -> Vec<Turn> {
        Vec::new()
    }

    /// Does one of them.
    fn take_turn(&mut self, _bench: &mut Bench<'_>, _turn: &Turn) -> Result<(), RunError> {
        Ok(())
    }

    /// Planned duration.
    fn planned(&self) -> Duration {
        self.turns().iter().map(|turn| turn.planned).sum()
    }

    /// Takes over the plan of a record that is to be read back.
    fn replan(&mut self, _plan: &Value) {}

    /// Reads a record back. What ran on machines that print runs again on their lines.
    fn replay(&mut self, record: &Record) -> Result<(), RunError> {
        let mut replay = Replay::of(record);
        self.run(&mut Bench {
            executor: &mut replay,
            recorder: &mut Recorder::silent(&record.dir),
            progress: &Progress::silent(),
            interrupt: &Interrupt::default(),
        })
    }

    /// Whether its records of version 1 lack what some figures rest on, such as sizes of kernels.
    fn was_recorded_in_part(&self) -> bool {
        false
    }

    /// Whether the record that was read back lacks samples of a figure, which its summary may
    /// rest on.
    fn lacks(&self, _figure: &str) -> bool {
        false
    }

    /// Runs it: its turns, one after the other. Samples taken before an error are kept.
    fn run(&mut self, bench: &mut Bench<'_>) -> Result<(), RunError> {
        for turn in self.turns() {
            let known = self.data().is_some_and(|data| data.is_missing(&turn.label));
            if turn.if_fails != IfFails::Drop || !known {
                bench.progress.step(&turn.step);
                let result = self.take_turn(bench, &turn);
                let why = match turn.if_fails {
                    IfFails::BreakOff => result.map(|()| None)?,
                    IfFails::GoOn | IfFails::Drop => bench::optional(result)?,
                };
                if let Some(data) = self.data_mut() {
                    data.unavailable(&turn.label, why);
                }
                bench.recorder.flush()?;
            }
            bench.progress.done(turn.planned);
        }
        Ok(())
    }

    /// What it has measured, if it keeps that in the form that most have.
    fn data(&self) -> Option<&Data> {
        None
    }

    /// The same, to add to.
    fn data_mut(&mut self) -> Option<&mut Data> {
        None
    }

    /// The KVM that executed guests, as the machines reported it.
    fn kvm(&self) -> Kvm {
        self.data().map_or(Kvm::None, |data| data.kvm)
    }

    /// Where the runs are from, if they were read from records instead of measured.
    fn merged(&self) -> Option<&Merged> {
        None
    }

    /// Figures so far.
    fn figures(&self) -> Vec<Figure>;

    /// The longest that its own threads were seen to wait for a CPU while a figure was taken,
    /// percent of that time, beside what is seen of the whole run.
    fn waited_pct(&self) -> Option<f64> {
        None
    }

    /// Why a figure does not meet its goal, if the run knows: a sentence.
    fn cause(&self, _figures: &[Figure], _figure: &Figure) -> Option<String> {
        None
    }

    /// Failed samples and checks, one sentence each.
    fn failures(&self) -> Vec<String> {
        self.data()
            .map_or_else(Vec::new, |data| data.failures.clone())
    }

    /// The experiment's part of the report.
    fn report(&self, figures: &[Figure]) -> ReportText;
}

/// Has an experiment's samples in its field `data`.
#[macro_export]
macro_rules! has_data {
    () => {
        fn data(&self) -> Option<&$crate::kit::Data> {
            Some(&self.data)
        }

        fn data_mut(&mut self) -> Option<&mut $crate::kit::Data> {
            Some(&mut self.data)
        }
    };
}

/// A turn: what is done between two steps of progress.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Which of the experiment's arms, in its own order.
    pub index: usize,
    /// Which time the arm has its turn, from 0.
    pub round: usize,
    /// What a report calls it where it is unavailable.
    pub label: String,
    /// What progress calls it.
    pub step: String,
    /// How long it is planned to take.
    pub planned: Duration,
    /// What follows where it fails.
    pub if_fails: IfFails,
}

/// What follows where a machine fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfFails {
    /// The experiment ends; what was measured is kept.
    BreakOff,
    /// The report says why, and the rest goes on.
    GoOn,
    /// The same, and the arm has no further turn.
    Drop,
}

impl Turn {
    /// A turn in the first round, without which the experiment ends.
    pub fn new(index: usize, label: &str, planned: Duration) -> Self {
        Self {
            index,
            round: 0,
            label: label.to_owned(),
            step: label.to_owned(),
            planned,
            if_fails: IfFails::BreakOff,
        }
    }

    /// With what follows where it fails.
    pub fn if_fails(self, if_fails: IfFails) -> Self {
        Self { if_fails, ..self }
    }
}

/// Rounds of blocks, each of as many arms as it says, in which each arm has its turn, if `turn` gives one
/// for block, arm and round. The order within a block is rotated by `by` arms from round to
/// round, so that none is always first.
pub fn rounds(
    rounds: usize,
    blocks: &[usize],
    by: usize,
    turn: impl Fn(usize, usize, usize) -> Option<Turn>,
) -> Vec<Turn> {
    let mut turns = Vec::new();
    for round in 0..rounds {
        for (block, count) in blocks.iter().enumerate() {
            let arms = (0..*count).map(|place| (place + round * by) % count);
            turns.extend(arms.filter_map(|arm| {
                let turn = turn(block, arm, round)?;
                let step = format!("round {} of {rounds}: {}", round + 1, turn.label);
                Some(Turn {
                    round,
                    step,
                    ..turn
                })
            }));
        }
    }
    turns
}

/// A time, `count` times.
pub fn times(time: Duration, count: usize) -> Duration {
    time * u32::try_from(count).unwrap_or(u32::MAX)
}

/// No plan has more rounds, turns or the like: a record is a file, which others may have written.
pub const MOST_PLANNED: usize = 100_000;

/// Takes a number of a record's plan, if it is there.
pub fn replanned(plan: &Value, name: &str, number: &mut usize) {
    let recorded = plan.get(name).and_then(Value::as_u64);
    let recorded = recorded.map(|it| usize::try_from(it).unwrap_or(usize::MAX));
    *number = recorded.map_or(*number, |it| it.min(MOST_PLANNED));
}

/// The same with a time in ms.
pub fn replanned_ms(plan: &Value, name: &str, time: &mut Duration) {
    let recorded = plan.get(name).and_then(Value::as_u64);
    *time = recorded.map_or(*time, Duration::from_millis);
}

/// Where merged runs are from.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The machines' facts; processors of several are listed.
    pub machine: HostFacts,
    /// Revisions of the programs that measured.
    pub revision: String,
    /// When the first began, RFC 3339, UTC.
    pub started: String,
}

/// An experiment in the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// What it measures.
    pub metrics: &'static [Metric],
    /// Goals for its figures.
    pub goals: &'static [Goal],
    /// Plans it with its default options.
    pub make: Make,
}

/// How an experiment is planned for a depth.
#[derive(Clone, Copy, Debug)]
pub enum Make {
    /// It measures an image of the library OS: its own for `None`.
    OfImage(fn(Depth, Option<String>) -> Box<dyn Experiment>),
    /// It has no options, or its own ones, with which its crate plans it.
    Other(fn(Depth) -> Box<dyn Experiment>),
}

impl Entry {
    /// The experiment with its default options, on an image if it measures one.
    pub fn planned(&self, depth: Depth, image: Option<String>) -> Box<dyn Experiment> {
        match self.make {
            Make::OfImage(make) => make(depth, image),
            Make::Other(make) => make(depth),
        }
    }
}

/// Metrics of earlier versions: of figures in stored runs alone.
const EARLIER: [Metric; 4] = [
    Metric::less("aa_difference_pct", "%"),
    Metric::more("bytes_per_s", "1/s"),
    Metric::more("delivery_ratio", "1"),
    Metric::more("gbit_per_s", "Gbit/s"),
];

/// The better side of a figure, by the metrics of these experiments; `None` for one of none.
pub fn better(known: &[Entry], figure: &str) -> Option<Direction> {
    let metrics = known.iter().flat_map(|entry| entry.metrics);
    let mut all = metrics.chain(&EARLIER);
    all.find(|metric| metric.is_of(figure))
        .map(|metric| metric.better)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_has_each_once_from_the_given_one_on() {
        let order = |by| {
            let turn = |_, arm: usize, _| Some(Turn::new(arm, "arm", Duration::ZERO));
            let turns = rounds(3, &[3], by, turn).into_iter();
            turns.map(|turn| turn.index).collect::<Vec<_>>()
        };
        assert_eq!(order(0), [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(order(1), [0, 1, 2, 1, 2, 0, 2, 0, 1]);
        assert_eq!(order(5), [0, 1, 2, 2, 0, 1, 1, 2, 0]);
    }
}
