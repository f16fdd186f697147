//! What KVM counted, and the waits that lie behind it.

use super::{BUCKETS, bucket_of, middle_of};

/// KVM's counters of a machine at some time, summed over its vCPUs. All only
/// grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// When, ns of a monotonic clock.
    pub now_ns: u64,
    /// `halt_wait_hist`: what was left of waits after polling.
    pub waited: [u64; BUCKETS],
    /// `halt_poll_success_hist`: waits that ended while polled.
    pub caught: [u64; BUCKETS],
    /// Polls that did not catch theirs: `halt_attempted_poll` without
    /// `halt_successful_poll`.
    pub missed: u64,
    /// `halt_poll_success_ns`.
    pub caught_ns: u64,
    /// `halt_poll_fail_ns`.
    pub missed_ns: u64,
    /// Time that the vCPUs' threads had a CPU.
    pub run_ns: u64,
    /// Time that they wanted one and had none.
    pub steal_ns: u64,
}

impl Reading {
    /// What was counted since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |now: &[u64; BUCKETS], then: &[u64; BUCKETS]| {
            core::array::from_fn(|n| now[n].saturating_sub(then[n]))
        };
        Self {
            now_ns: self.now_ns.saturating_sub(earlier.now_ns),
            waited: less(&self.waited, &earlier.waited),
            caught: less(&self.caught, &earlier.caught),
            missed: self.missed.saturating_sub(earlier.missed),
            caught_ns: self.caught_ns.saturating_sub(earlier.caught_ns),
            missed_ns: self.missed_ns.saturating_sub(earlier.missed_ns),
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
        }
    }

    /// Time spent polling.
    pub const fn polled_ns(&self) -> u64 {
        self.caught_ns.saturating_add(self.missed_ns)
    }

    /// Polls that saw the wake-up.
    pub(crate) fn catches(&self) -> u64 {
        sum(&self.caught)
    }

    /// Halts that ended.
    pub fn halts(&self) -> u64 {
        sum(&self.waited).saturating_add(sum(&self.caught))
    }
}

fn sum(counts: &[u64; BUCKETS]) -> u64 {
    counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// Waits by their whole length, and the time in which they came. Old ones fade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// In units of 1/[`Self::UNIT`].
    counts: [u64; BUCKETS],
    elapsed_ns: u64,
}

impl Waits {
    /// How many units a wait counts.
    pub(super) const UNIT: u64 = 256;

    /// No bucket counts more: products of costs stay far from overflow.
    const MOST: u64 = 1 << 44;

    /// None so far.
    pub const fn new() -> Self {
        Self {
            counts: [0; BUCKETS],
            elapsed_ns: 0,
        }
    }

    /// Adds what was counted in a stretch of time; what came before weighs as
    /// if `memory_ns` had passed in all.
    pub fn add(&mut self, counted: &Reading, memory_ns: u64) {
        self.fade(counted.now_ns, memory_ns);
        self.elapsed_ns = self.elapsed_ns.saturating_add(counted.now_ns);
        for (bucket, count) in counted.caught.iter().enumerate() {
            self.put(bucket, count.saturating_mul(Self::UNIT));
        }
        let waited = sum(&counted.waited);
        if waited == 0 {
            return;
        }
        // Which of the waits had been polled is not counted: all in proportion.
        let polled = counted.missed.min(waited);
        let before_ns = counted.missed_ns / counted.missed.max(1);
        for (bucket, count) in counted.waited.iter().enumerate() {
            let units = count.saturating_mul(Self::UNIT);
            let after_poll = mul_div(units, polled, waited);
            let whole_ns = middle_of(bucket).saturating_add(before_ns);
            self.put(bucket_of(whole_ns), after_poll);
            self.put(bucket, units - after_poll);
        }
    }

    /// Lets the past weigh `memory / (memory + elapsed)` of what it did.
    fn fade(&mut self, elapsed_ns: u64, memory_ns: u64) {
        let all_ns = memory_ns.saturating_add(elapsed_ns).max(1);
        for count in &mut self.counts {
            *count = mul_div(*count, memory_ns, all_ns);
        }
        self.elapsed_ns = mul_div(self.elapsed_ns, memory_ns, all_ns);
    }

    fn put(&mut self, bucket: usize, units: u64) {
        let sum = self.counts[bucket].saturating_add(units);
        self.counts[bucket] = sum.min(Self::MOST);
    }

    /// Waits by bucket, in units of 1/256.
    pub const fn counts(&self) -> &[u64; BUCKETS] {
        &self.counts
    }

    /// The mean time from one to the next; `None` without any.
    pub(super) fn mean_every_ns(&self) -> Option<u64> {
        let units = sum(&self.counts);
        (units > 0).then(|| mul_div(self.elapsed_ns, Self::UNIT, units))
    }

    /// The time in which they came, ns.
    pub const fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self::new()
    }
}

/// `a * b / c` without overflow on the way.
pub(super) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    let result = u128::from(a) * u128::from(b) / u128::from(c.max(1));
    u64::try_from(result).unwrap_or(u64::MAX)
}
