//! What BPF programs cost, as the kernel measures it.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use aya::programs::Program;
use aya::sys::{Stats, enable_stats};

use super::{Object, reason};
use crate::{Source, Unavailable};

/// Makes the kernel measure the run time of BPF programs while it lives. It
/// costs two readings of the clock for each run, of all programs of the host.
#[derive(Debug)]
pub struct RunTimeMeter {
    _enabled: OwnedFd,
}

/// Measures for a moment of each third of a second, because measuring a short run
/// costs as much as the run: on the machine of ADR 22, 77 ns for the two of a call,
/// whose programs took about as long.
#[derive(Debug)]
pub struct RunTimeSampler {
    meter: Option<RunTimeMeter>,
    since: Instant,
}

impl RunTimeSampler {
    const MEASURING: Duration = Duration::from_millis(20);
    const RESTING: Duration = Duration::from_millis(300);

    /// Begins, with measuring.
    pub fn start() -> Result<Self, Unavailable> {
        Ok(Self {
            meter: Some(RunTimeMeter::start()?),
            since: Instant::now(),
        })
    }

    /// Begins or ends to measure if it is time to; to be called some times a second.
    pub fn turn(&mut self) {
        let now = Instant::now();
        let length = match self.meter {
            Some(_) => Self::MEASURING,
            None => Self::RESTING,
        };
        if now.duration_since(self.since) < length {
            return;
        }
        self.since = now;
        self.meter = match self.meter.take() {
            Some(_) => None,
            // Where it fails now, what was measured before has to do.
            None => RunTimeMeter::start().ok(),
        };
    }
}

/// Runs of an object's programs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Time in them, ns.
    pub ns: u64,
    /// How many.
    pub runs: u64,
}

impl RunTimeMeter {
    /// Begins to measure.
    pub fn start() -> Result<Self, Unavailable> {
        enable_stats(Stats::RunTime)
            .map(|enabled| Self { _enabled: enabled })
            .map_err(|error| Unavailable::new(Source::BpfRunTime, reason::of(&error)))
    }

    /// The run time of an object's programs, since they were loaded and as long as
    /// there was a meter.
    pub fn read(&self, object: &Object) -> RunTime {
        RunTime::of(object)
    }
}

impl RunTime {
    /// What these runs took, if they were like those that were measured; ns.
    pub(crate) fn of_runs(self, runs: u64) -> u64 {
        let ns = u128::from(self.ns) * u128::from(runs);
        let scaled = ns.checked_div(u128::from(self.runs)).unwrap_or(0);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Of an object's programs since they were loaded, as long as there was a meter.
    pub fn of(object: &Object) -> Self {
        RunTimes::of(object).sum(|_| true)
    }

    fn of_one(program: &Program) -> Option<Self> {
        let info = program.info().ok()?;
        Some(Self {
            ns: u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX),
            runs: info.run_count(),
        })
    }
}

impl AddAssign for RunTime {
    fn add_assign(&mut self, more: Self) {
        self.ns += more.ns;
        self.runs += more.runs;
    }
}

/// Runs of each of an object's programs, by its function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunTimes(BTreeMap<String, RunTime>);

impl RunTimes {
    /// Since they were loaded, as long as there was a meter: one reading of each.
    pub(crate) fn of(object: &Object) -> Self {
        let programs = object.programs();
        let run = programs
            .filter_map(|(name, program)| Some((name.to_owned(), RunTime::of_one(program)?)));
        Self(run.collect())
    }

    /// Since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let since = |(name, now): (&String, &RunTime)| {
            let then = before.0.get(name).copied().unwrap_or_default();
            let added = RunTime {
                ns: now.ns.saturating_sub(then.ns),
                runs: now.runs.saturating_sub(then.runs),
            };
            (name.clone(), added)
        };
        Self(self.0.iter().map(since).collect())
    }

    /// Of those that are wanted.
    pub(crate) fn sum(&self, wanted: impl Fn(&str) -> bool) -> RunTime {
        let mut sum = RunTime::default();
        for (name, run) in &self.0 {
            if wanted(name) {
                sum += *run;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_were_not_measured_took_what_the_others_did() {
        let measured = RunTime { ns: 700, runs: 10 };
        assert_eq!(measured.of_runs(160), 11_200);
        assert_eq!(RunTime::default().of_runs(160), 0);
    }

    #[test]
    fn each_program_has_its_own_runs() {
        let times = |runs: u64| {
            let run = |name: &str, ns| (name.to_owned(), RunTime { ns, runs });
            RunTimes(BTreeMap::from([run("a", runs * 10), run("b", runs * 100)]))
        };
        let added = times(7).since(&times(4));
        assert_eq!(added, times(3));
        assert_eq!(added.sum(|_| true), RunTime { ns: 330, runs: 6 });
        assert_eq!(added.sum(|name| name == "a"), RunTime { ns: 30, runs: 3 });
        // A program that was not there before.
        assert_eq!(added.since(&RunTimes::default()), added);
    }
}
