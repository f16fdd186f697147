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
    /// The most in flight since the driver began to answer a delivery, and
    /// whether there was another delivery since.
    peak: u64,
    told: bool,
}

/// What an epoch amounted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) completions: u64,
    pub(super) iops: u64,
    pub(super) elapsed_ns: u64,
    /// Mean peak of commands in flight, rounded up.
    pub(super) cif: u32,
}

impl Epoch {
    pub(super) const fn has_lapsed(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns
    }

    /// A submission. The first after a delivery is the driver's answer to it: the
    /// peak before it counts.
    ///
    /// Only peaks count. While a batch is reaped, and until the driver has taken
    /// in what was delivered and has submitted as many again, fewer commands are
    /// in flight without the load being any lighter; and the more are delivered at a
    /// time, the deeper is that dip, so that a mean over it would undo the ratio
    /// that made it.
    pub(super) const fn submitted(&mut self) {
        if self.told {
            self.told = false;
            self.peak_sum += self.peak;
            self.peaks += 1;
            self.peak = 0;
        }
    }

    /// Counts a completion that found `cif` commands in flight.
    pub(super) const fn completed(&mut self, cif: u64) {
        self.completions += 1;
        if cif > self.peak {
            self.peak = cif;
        }
    }

    /// All completions so far are delivered.
    pub(super) const fn delivered(&mut self) {
        self.told = true;
    }

    /// The driver has nothing in flight any more, and nothing was delivered.
    pub(super) const fn forget(&mut self) {
        (self.peak, self.told) = (0, false);
    }

    /// Changes how long the running epoch is.
    pub(super) const fn shorten(&mut self, epoch_ns: u64) {
        self.end_ns = self.start_ns.saturating_add(epoch_ns);
    }

    /// Ends the epoch at `now_ns` and begins the next, `epoch_ns` long. The
    /// rate is over the time that really passed: after a pause it is low.
    pub(super) fn turn(&mut self, now_ns: u64, epoch_ns: u64) -> Load {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns).max(1);
        let cif = match self.peaks {
            // The driver has answered nothing: what there is must do.
            0 => self.peak,
            peaks => self.peak_sum.div_ceil(peaks),
        };
        let load = Load {
            completions: self.completions,
            elapsed_ns,
            iops: self.completions.saturating_mul(1_000_000_000) / elapsed_ns,
            cif: u32::try_from(cif).unwrap_or(u32::MAX),
        };
        *self = Self {
            start_ns: now_ns,
            end_ns: now_ns.saturating_add(epoch_ns),
            peak: self.peak,
            told: self.told,
            ..Self::default()
        };
        load
    }
}
