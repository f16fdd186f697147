//! `--try`: alternates between pinned and unpinned, and keeps the pins only if they helped.
//!
//! Applications do not report their throughput, so the scheduler's figures decide: for CPU-bound
//! work, the CPU time that it gets; for other work, the part of its runnable time in which it waits
//! for a CPU. Pairs of windows alternate their order, and a rank test decides.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tare_control::exit::ExitCode;
use tare_pin::{Choice, Host, Plan, Store, Target, TaskId};
use tare_policy::placement::Class;
use tare_stats::{mann_whitney, quantile, sorted};

use crate::failure::CommandResult;
use crate::output::print;
use crate::pin::place;
use crate::signals::Requests;

/// Pairs of windows.
const PAIRS: usize = 8;
/// Accepted probability of seeing a difference where there is none.
const ALPHA: f64 = 0.05;
/// Shortest window; each begins with this much unmeasured time.
const SHORTEST: Duration = Duration::from_millis(200);
const SETTLE: Duration = Duration::from_millis(30);
const SLICE: Duration = Duration::from_millis(20);

/// A trial of pinning.
pub(super) struct Trial<'a> {
    pub(super) store: &'a Store,
    pub(super) name: &'a str,
    pub(super) target: &'a Target,
    pub(super) host: &'a Host,
    pub(super) class: Option<Class>,
    pub(super) window: Duration,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// CPU time as a number of CPUs; more is better.
    CpuTime,
    /// Part of runnable time spent waiting, %; less is better.
    Waiting,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialResult {
    Helped,
    NoDifference,
    Harmed,
}

impl Trial<'_> {
    /// Runs the trial, prints the result, and keeps the placement if it helped.
    pub(super) fn run(&self, requests: &Requests) -> CommandResult {
        let measure = match self.class {
            Some(Class::CpuBound) => Measure::CpuTime,
            _ => Measure::Waiting,
        };
        let plan = Plan::make(self.target, self.host, &Choice::Auto)?;
        let window = self.window.max(SHORTEST);
        let (mut free, mut pinned) = (Vec::new(), Vec::new());
        for pair in 0..PAIRS {
            // ABBA: a drift affects both arms equally.
            for turn in [pair % 2 == 0, pair % 2 == 1] {
                if let Some(code) = requests.came() {
                    return Ok(code);
                }
                let held = if turn {
                    None
                } else {
                    Some(place(self.store, self.name, &plan, requests)?)
                };
                let score = self.window(measure, window, requests);
                match (turn, score) {
                    (_, None) => {}
                    (true, Some(score)) => free.push(score),
                    (false, Some(score)) => pinned.push(score),
                }
                drop(held);
            }
        }
        if let Some(code) = requests.came() {
            return Ok(code);
        }
        let result = judge(measure, &free, &pinned);
        let text = summary(measure, result, &free, &pinned);
        if result != TrialResult::Helped {
            return print(&format!("{text}Placement restored.\n"));
        }
        let pinned = place(self.store, self.name, &plan, requests)?;
        pinned.keep()?;
        let name = self.name;
        print(&format!(
            "{text}It stays pinned. To undo: tare pin {name} --undo\n"
        ))?;
        Ok(ExitCode::Success)
    }

    /// The measure over one window; none if nothing ran.
    fn window(&self, measure: Measure, length: Duration, requests: &Requests) -> Option<f64> {
        std::thread::sleep(SETTLE);
        let before = self.times();
        let begin = Instant::now();
        while begin.elapsed() < length && requests.came().is_none() {
            std::thread::sleep(SLICE.min(length));
        }
        let wall_ns = begin.elapsed().as_nanos() as f64;
        let (mut run_ns, mut ready_ns) = (0, 0);
        for (id, (run, ready)) in self.times() {
            let (run_then, ready_then) = before.get(&id).copied().unwrap_or_default();
            run_ns += run.saturating_sub(run_then);
            ready_ns += ready.saturating_sub(ready_then);
        }
        let runnable_ns = run_ns + ready_ns;
        (runnable_ns > 0).then(|| match measure {
            Measure::CpuTime => run_ns as f64 / wall_ns,
            Measure::Waiting => ready_ns as f64 * 100.0 / runnable_ns as f64,
        })
    }

    fn times(&self) -> BTreeMap<TaskId, (u64, u64)> {
        let tasks = self.target.tasks().into_iter();
        tasks
            .map(|(task, _)| (task.id, (task.run_ns, task.ready_ns)))
            .collect()
    }
}

fn judge(measure: Measure, free: &[f64], pinned: &[f64]) -> TrialResult {
    let test = mann_whitney(pinned, free);
    let more = test.cliffs_delta > 0.0;
    if test.p >= ALPHA {
        TrialResult::NoDifference
    } else if more == (measure == Measure::CpuTime) {
        TrialResult::Helped
    } else {
        TrialResult::Harmed
    }
}

fn summary(measure: Measure, result: TrialResult, free: &[f64], pinned: &[f64]) -> String {
    let median = |samples: &[f64]| sorted(samples).map_or(0.0, |sorted| quantile(&sorted, 0.5));
    let test = mann_whitney(pinned, free);
    let (what, unit) = match measure {
        Measure::CpuTime => ("CPU time that it gets", "CPUs"),
        Measure::Waiting => ("runnable time spent waiting for a CPU", "%"),
    };
    let result = match result {
        TrialResult::Helped => "Pinning helped",
        TrialResult::NoDifference => "Pinning made no measurable difference",
        TrialResult::Harmed => "Pinning did harm",
    };
    format!(
        "{result}: {what}, {:.3} {unit} pinned and {:.3} {unit} not (medians of {} and {} windows \
         in turns, rank test p = {:.3}, effect {:+.2}).\n",
        median(pinned),
        median(free),
        pinned.len(),
        free.len(),
        test.p,
        test.cliffs_delta
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_gain_in_the_right_direction_helps() {
        let low = [1.0, 1.1, 1.2, 1.3, 1.15, 1.25, 1.05, 1.35];
        let high = low.map(|sample| sample + 1.0);
        let same = low.map(|sample| sample + 0.001);
        let cases = [
            (Measure::CpuTime, low, high, TrialResult::Helped),
            (Measure::CpuTime, high, low, TrialResult::Harmed),
            (Measure::Waiting, high, low, TrialResult::Helped),
            (Measure::Waiting, low, high, TrialResult::Harmed),
            (Measure::CpuTime, low, same, TrialResult::NoDifference),
        ];
        for (measure, free, pinned, expected) in cases {
            assert_eq!(judge(measure, &free, &pinned), expected);
        }
        assert_eq!(judge(Measure::CpuTime, &[], &[]), TrialResult::NoDifference);
    }
}
