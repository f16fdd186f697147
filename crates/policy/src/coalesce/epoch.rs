//! What is measured in an epoch: completions, and commands in flight.

/// The epoch that runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Epoch {
    start_ns: u64,
    end_ns: u64,
    completions: u64,
    /// Sum and number of the peaks of commands in flight.
    peak_sum: u64,
    peaks: u64,
    /// A request was submitted since the last completion.
    rising: bool,
}

/// What an epoch amounted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) completions: u64,
    pub(super) iops: u64,
    /// Mean peak of commands in flight, rounded up.
    pub(super) cif: u32,
}

impl Epoch {
    pub(super) const fn has_lapsed(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns
    }

    pub(super) const fn submitted(&mut self) {
        self.rising = true;
    }

    /// Counts a completion that found `cif` commands in flight.
    ///
    /// Only the peaks count, the completions that follow a submission: while a
    /// batch is being reaped, or its completions are on their way to a driver
    /// that will submit as many again, the number in flight dips without the
    /// load being any lighter.
    pub(super) fn completed(&mut self, cif: u64) {
        self.completions += 1;
        if self.rising {
            self.rising = false;
            self.peak_sum += cif;
            self.peaks += 1;
        }
    }

    /// Ends the epoch at `now_ns` and begins the next, `epoch_ns` long. The
    /// rate is over the time that really passed: after a pause it is low.
    pub(super) fn turn(&mut self, now_ns: u64, epoch_ns: u64) -> Load {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns).max(1);
        let cif = self.peak_sum.div_ceil(self.peaks.max(1));
        let load = Load {
            completions: self.completions,
            iops: self.completions.saturating_mul(1_000_000_000) / elapsed_ns,
            cif: u32::try_from(cif).unwrap_or(u32::MAX),
        };
        *self = Self {
            start_ns: now_ns,
            end_ns: now_ns.saturating_add(epoch_ns),
            rising: self.rising,
            ..Self::default()
        };
        load
    }
}
