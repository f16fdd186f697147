//! KVM's statistics of a vCPU as the rule reads them.

use tare_hv::{StatsFd, StatsValue};
use tare_policy::halt::{BUCKETS, Reading};

/// Adds what KVM counted of one vCPU. One that cannot be read adds nothing.
pub(super) fn add(reading: &mut Reading, vcpu: &StatsFd) {
    let (mut attempted, mut successful) = (0u64, 0u64);
    for stat in vcpu.read().unwrap_or_default() {
        match (stat.name, stat.value) {
            ("halt_wait_hist", StatsValue::LogHistogram(counts)) => {
                sum(&mut reading.waited, &counts);
            }
            ("halt_poll_success_hist", StatsValue::LogHistogram(counts)) => {
                sum(&mut reading.caught, &counts);
            }
            ("halt_poll_success_ns", StatsValue::Scalar(ns)) => reading.caught_ns += ns,
            ("halt_poll_fail_ns", StatsValue::Scalar(ns)) => reading.missed_ns += ns,
            ("halt_attempted_poll", StatsValue::Scalar(count)) => attempted = count,
            ("halt_successful_poll", StatsValue::Scalar(count)) => successful = count,
            _ => {}
        }
    }
    reading.missed += attempted.saturating_sub(successful);
}

/// A histogram with more buckets than are known counts them as the longest.
fn sum(into: &mut [u64; BUCKETS], counts: &[u64]) {
    for (bucket, count) in counts.iter().enumerate() {
        into[bucket.min(BUCKETS - 1)] += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_histograms_lose_nothing() {
        let mut buckets = [0; BUCKETS];
        sum(&mut buckets, &[1; BUCKETS + 4]);
        sum(&mut buckets, &[1, 2]);
        assert_eq!(buckets[..3], [2, 3, 1]);
        assert_eq!(buckets[BUCKETS - 1], 5);
    }
}
