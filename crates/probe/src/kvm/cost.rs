//! What the BPF programs cost over a window, without the measuring itself costing
//! more than they do.
//!
//! The kernel reads the clock twice for each run that it measures, which is several
//! times the cost of a run that finds the gate closed. While the gate is narrowed,
//! runs are therefore measured in one look of [`CYCLE`] only, and taken to go on
//! like that in the others.

use rustix::time::{ClockId, clock_gettime};

use crate::Unavailable;
use crate::bpf::{Object, RunTime, RunTimeMeter};

/// Looks of which one measures.
pub(super) const CYCLE: u32 = 4;
/// What a run costs that finds the gate closed, ns: measured, and not.
pub(super) const CLOSED_MEASURED_NS: f64 = 50.0;
pub(super) const CLOSED_ALONE_NS: f64 = 10.0;
/// What a call costs that the kernel does not measure: the trace point, and the way to the
/// program and back.
pub(super) const DISPATCH_NS: f64 = 20.0;
/// What measuring a run takes beside what the kernel says of it: half of the two readings of
/// its clock, and the sums.
pub(super) const METER_NS: f64 = 37.0;

/// The cost of one object's programs.
#[derive(Debug)]
pub(super) struct Cost {
    meter: Option<RunTimeMeter>,
    /// Looks until the meter is wanted again.
    rest: u32,
    last: RunTime,
    looked_ns: u64,
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
    pub(super) elapsed_ns: u64,
}

impl Measured {
    /// This, and what the next look measured.
    pub(super) fn and(self, next: Self) -> Self {
        Self {
            spent: RunTime {
                ns: self.spent.ns + next.spent.ns,
                runs: self.spent.runs + next.spent.runs,
            },
            elapsed_ns: self.elapsed_ns + next.elapsed_ns,
        }
    }
}

impl Cost {
    /// Begins to measure.
    pub(super) fn start() -> Result<Self, Unavailable> {
        Ok(Self {
            meter: Some(RunTimeMeter::start()?),
            rest: 0,
            last: RunTime::default(),
            looked_ns: now_ns(),
            rate: Rate::default(),
            sum: Rate::default(),
        })
    }

    /// A window begins.
    pub(super) fn begin(&mut self, object: &Object) {
        self.sum = Rate::default();
        self.last = RunTime::of(object);
        self.looked_ns = now_ns();
    }

    /// The time since the last look, or beginning, ends; what was measured in it.
    pub(super) fn look(&mut self, object: &Object) -> Option<Measured> {
        let now = now_ns();
        let elapsed_ns = now.saturating_sub(self.looked_ns);
        self.looked_ns = now;
        let read = RunTime::of(object);
        let spent = RunTime {
            ns: read.ns.saturating_sub(self.last.ns),
            runs: read.runs.saturating_sub(self.last.runs),
        };
        self.last = read;
        if self.meter.is_none() {
            self.sum.add(self.rate.unmeasured().over(elapsed_ns));
            return None;
        }
        let spent_now = Rate {
            ns: spent.ns as f64,
            runs: spent.runs as f64,
        };
        self.rate = spent_now.by(elapsed_ns);
        self.sum.add(spent_now.with_meter());
        Some(Measured { spent, elapsed_ns })
    }

    /// Rests from measuring if `narrowed`, or ends a rest that is over.
    pub(super) fn rest(&mut self, narrowed: Narrowed) {
        match (narrowed, &self.meter) {
            (Narrowed::Yes, Some(_)) => {
                self.meter = None;
                self.rest = CYCLE - 1;
            }
            (_, None) => {
                self.rest = self.rest.saturating_sub(1);
                if self.rest == 0 || narrowed == Narrowed::No {
                    self.meter = RunTimeMeter::start().ok();
                }
            }
            (Narrowed::No, Some(_)) => {}
        }
    }

    /// What the window has cost until the last look, with what calls cost beside.
    pub(super) fn total(&self) -> RunTime {
        let calls = self.sum.runs * DISPATCH_NS;
        RunTime {
            ns: (self.sum.ns + calls).round() as u64,
            runs: self.sum.runs.round() as u64,
        }
    }
}

/// Whether the gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Narrowed {
    Yes,
    No,
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

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let whole = u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000;
    whole + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measured_costs_its_runs_without_the_measuring() {
        let close = |rate: Rate, ns: f64| assert!((rate.ns - ns).abs() < 1e-9, "{rate:?}");
        let runs = 1_000.0;
        close(Rate { ns: 60_000.0, runs }.unmeasured(), 20_000.0);
        close(Rate { ns: 30_000.0, runs }.unmeasured(), 10_000.0);
        assert_eq!(Rate::default().unmeasured(), Rate::default());
    }
}
