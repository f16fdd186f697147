//! What BPF programs cost, as the kernel measures it.

use std::os::fd::OwnedFd;

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
