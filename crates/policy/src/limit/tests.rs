//! Token buckets hold their rate, from above and from below.

use proptest::prelude::*;
use std::vec::Vec;

use super::*;

/// Sends pieces of `sizes` as early as the bucket allows: units, and when the last began.
fn greedy(bucket: &mut TokenBucket, mut now_ns: u64, sizes: &[u64]) -> (u64, u64) {
    let mut sent = 0;
    for size in sizes {
        now_ns = now_ns.max(bucket.ready_at_ns());
        assert!(bucket.is_ready(now_ns));
        bucket.take(now_ns, *size);
        sent += size;
    }
    (sent, now_ns)
}

proptest! {
    #[test]
    fn a_bucket_never_lets_more_pass_than_its_rate_a_burst_and_one_piece(
        rate in 1u64..1_000_000_000,
        sizes in prop::collection::vec(0u64..1_000_000, 1..200),
        start_ns in 0u64..1 << 60,
    ) {
        let mut bucket = TokenBucket::new(rate);
        let (sent, end_ns) = greedy(&mut bucket, start_ns, &sizes);
        let elapsed_ns = u128::from(end_ns - start_ns);
        let by_rate = (elapsed_ns + u128::from(BURST_NS)) * u128::from(rate) / SECOND_NS;
        let largest = sizes.iter().max().copied().unwrap_or(0);
        prop_assert!(u128::from(sent) <= by_rate + u128::from(largest) + 1);
    }

    #[test]
    fn a_hungry_sender_gets_its_rate(
        rate in 1u64..1_000_000,
        sizes in prop::collection::vec(1u64..10_000, 1..200),
    ) {
        let mut bucket = TokenBucket::new(rate);
        let (sent, end_ns) = greedy(&mut bucket, 0, &sizes);
        let by_rate = u128::from(end_ns) * u128::from(rate) / SECOND_NS;
        // Each piece's cost is rounded up to a nanosecond.
        prop_assert!(u128::from(sent) + 1 >= by_rate);
    }

    #[test]
    fn a_changed_rate_keeps_the_debt(
        old in 1u64..1_000_000, new in 1u64..1_000_000, size in 0u64..10_000_000,
    ) {
        let mut bucket = TokenBucket::new(old);
        bucket.take(0, size);
        bucket.set_per_second(0, new);
        let mut expected = TokenBucket::new(new);
        expected.take(0, size);
        let rounding_ns = 2_000_000_000 / new + 1;
        prop_assert!(bucket.full_at_ns.abs_diff(expected.full_at_ns) <= rounding_ns);
    }
}

#[test]
fn without_a_limit_everything_passes() {
    let mut bucket = TokenBucket::new(0);
    for _ in 0..1_000 {
        assert!(bucket.is_ready(0));
        bucket.take(0, u64::MAX);
    }
    bucket.set_per_second(7, 10);
    assert!(bucket.is_ready(7), "no debt from before");
}

#[test]
fn extreme_sizes_saturate() {
    let mut bucket = TokenBucket::new(1);
    bucket.take(u64::MAX - 1, u64::MAX);
    assert!(!bucket.is_ready(u64::MAX - BURST_NS - 1));
    bucket.set_per_second(0, 0);
    assert!(bucket.is_ready(0));
}

#[test]
fn a_disk_waits_for_the_limit_that_is_used_up() {
    let limits = DiskLimits {
        iops: 100,
        bytes_per_s: 1 << 20,
    };
    let mut disk = limits.buckets();
    disk.take(0, 1 << 20);
    assert_eq!(disk.ready_at_ns(), 900_000_000, "bytes");
    let mut disk = limits.buckets();
    let taken: Vec<u64> = (0..30)
        .map(|_| {
            let at_ns = disk.ready_at_ns();
            disk.take(at_ns, 512);
            at_ns
        })
        .collect();
    // The ten that the bucket holds, and one more every 10 ms.
    assert_eq!(taken[10], 0);
    assert_eq!(taken[29] - taken[28], 10_000_000);
    disk.set(0, 0, 0);
    assert!(disk.is_ready(0));
}

#[test]
fn a_network_is_limited_in_frames_and_in_bytes() {
    assert!(!NetLimits::default().any());
    let limits = NetLimits {
        frames_per_s: 0,
        bytes_per_s: 1_000,
    };
    assert!(limits.any());
    let mut frames = limits.buckets();
    frames.take(0, 1_514);
    assert_eq!(frames.ready_at_ns(), 1_414_000_000);
    frames.set(0, 10, 0);
    assert!(
        frames.is_ready(0),
        "the debt of bytes went with their limit"
    );
    frames.take(0, u64::MAX);
    assert!(frames.is_ready(0));
    frames.take(0, 0);
    assert_eq!(frames.ready_at_ns(), 100_000_000, "the bucket holds one");
}
