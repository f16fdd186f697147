//! What BPF programs cost, as the kernel measures it.

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
        let infos = object.programs().filter_map(|program| info(program).ok());
        infos.fold(RunTime::default(), |sum, info| RunTime {
            ns: sum.ns + u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX),
            runs: sum.runs + info.run_count(),
        })
    }
}

fn info(program: &Program) -> Result<aya::programs::ProgramInfo, aya::programs::ProgramError> {
    program.info()
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
}
