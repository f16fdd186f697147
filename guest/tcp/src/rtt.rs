//! [`RoundTrip`]: the smoothed round-trip time and the retransmission timeout
//! (RFC 6298, with Linux's minimum of 200 ms above the round trip).

use crate::time::Duration;

/// The timeout before the first measurement (RFC 6298, 2.1).
pub(crate) const INITIAL: Duration = Duration::from_secs(1);
/// The timeout is at least this much longer than the round trip. A peer may
/// delay an acknowledgement for that long (Linux: `TCP_RTO_MIN`).
const VARIANCE_MIN_US: u64 = 200_000;
/// Longest timeout, back-off included.
pub(crate) const MAX: Duration = Duration::from_secs(60);
/// How long a minimum counts (RFC 8985, 4: a windowed minimum).
const MINIMUM_SAMPLES: u32 = 1024;

/// One connection's estimate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    /// Eight times the smoothed round trip in microseconds; 0 is unknown.
    smoothed_8: u64,
    /// Four times the smoothed deviation in microseconds.
    deviation_4: u64,
    minimum: Duration,
    samples: u32,
}

impl RoundTrip {
    /// Takes a measurement.
    pub(crate) fn measure(&mut self, sample: Duration) {
        let us = sample.as_micros().max(1);
        if self.smoothed_8 == 0 {
            self.smoothed_8 = us * 8;
            self.deviation_4 = us * 2;
        } else {
            let difference = us.abs_diff(self.smoothed_8 / 8);
            self.deviation_4 = self.deviation_4 - self.deviation_4 / 4 + difference;
            self.smoothed_8 = self.smoothed_8 - self.smoothed_8 / 8 + us;
        }
        self.samples += 1;
        if self.samples == 1 || sample < self.minimum || self.samples > MINIMUM_SAMPLES {
            self.minimum = sample;
            self.samples = 1;
        }
    }

    /// The smoothed round trip, if one was measured.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        (self.smoothed_8 > 0).then(|| Duration::from_micros(self.smoothed_8 / 8))
    }

    /// The shortest recent round trip.
    pub(crate) fn minimum(&self) -> Duration {
        self.minimum
    }

    /// The retransmission timeout without back-off.
    pub(crate) fn timeout(&self) -> Duration {
        if self.smoothed_8 == 0 {
            return INITIAL;
        }
        let us = self.smoothed_8 / 8 + self.deviation_4.max(VARIANCE_MIN_US);
        Duration::from_micros(us).min(MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_sets_and_later_ones_smooth() {
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.timeout(), Duration::from_secs(1));
        rtt.measure(Duration::from_millis(400));
        assert_eq!(rtt.smoothed(), Some(Duration::from_millis(400)));
        // RTO = R + 4 * R / 2.
        assert_eq!(rtt.timeout(), Duration::from_millis(1200));
        for _ in 0..100 {
            rtt.measure(Duration::from_millis(400));
        }
        assert!(
            rtt.timeout() <= Duration::from_millis(601),
            "{:?}",
            rtt.timeout()
        );
    }

    #[test]
    fn a_fast_network_waits_200_ms() {
        let mut rtt = RoundTrip::default();
        for _ in 0..100 {
            rtt.measure(Duration::from_micros(50));
        }
        assert_eq!(rtt.timeout(), Duration::from_micros(200_050));
        assert_eq!(rtt.minimum(), Duration::from_micros(50));
    }
}
