//! When requests are sent, and over which connections.

use std::time::Duration;

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// Request `i` at `first + i * interval`, whatever the server does.
    Open {
        /// Time of the first request after the begin.
        first: Duration,
        /// Time between two requests.
        interval: Duration,
        /// How many.
        count: usize,
    },
    /// The next one when one has been answered.
    Closed {
        /// Requests under way at once.
        concurrency: usize,
        /// No further request after this time.
        until: Duration,
        /// At most this many.
        count: usize,
    },
}

impl Schedule {
    /// Evenly spaced requests for `time`, the first after half an interval.
    pub fn steady(rate_per_s: f64, time: Duration) -> Self {
        let interval = Duration::from_secs_f64(1.0 / rate_per_s);
        Self::Open {
            first: interval / 2,
            interval,
            count: (time.as_secs_f64() * rate_per_s).round() as usize,
        }
    }

    /// `count` requests, one after the other.
    pub fn one_by_one(count: usize) -> Self {
        Self::Closed {
            concurrency: 1,
            until: Duration::MAX,
            count,
        }
    }

    /// Greatest number of requests.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        match *self {
            Self::Open { count, .. } | Self::Closed { count, .. } => count,
        }
    }

    /// When request `index` is due, `None` if not before another is answered
    /// or not at all.
    pub fn due(&self, index: usize, pending: usize, now: Duration) -> Option<Duration> {
        match *self {
            Self::Open {
                first,
                interval,
                count,
            } => {
                let index = u32::try_from(index)
                    .ok()
                    .filter(|i| (*i as usize) < count)?;
                Some(first + interval.saturating_mul(index))
            }
            Self::Closed {
                concurrency,
                until,
                count,
            } => (index < count && pending < concurrency && now < until).then_some(now),
        }
    }
}

/// How requests use connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// Kept alive and reused, at most this many.
    KeepAlive(usize),
    /// One for each request, closed by the client after the answer, at most
    /// this many at once.
    PerRequest(usize),
}

impl Connections {
    /// Most connections at once.
    pub fn limit(self) -> usize {
        match self {
            Self::KeepAlive(limit) | Self::PerRequest(limit) => limit.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_load_fills_its_time() {
        let second = Duration::from_secs(1);
        let schedule = Schedule::steady(100.0, second * 60);
        assert_eq!(schedule.count(), 6000);
        let last = schedule.due(5999, 0, Duration::ZERO);
        assert_eq!(
            last,
            Some(Duration::from_millis(5) + Duration::from_millis(10) * 5999)
        );
        assert_eq!(schedule.due(6000, 0, Duration::ZERO), None);
    }

    #[test]
    fn a_closed_loop_waits_for_answers() {
        let schedule = Schedule::Closed {
            concurrency: 2,
            until: Duration::from_secs(1),
            count: 5,
        };
        let now = Duration::from_millis(3);
        assert_eq!(schedule.due(0, 1, now), Some(now));
        assert_eq!(schedule.due(0, 2, now), None);
        assert_eq!(schedule.due(5, 0, now), None);
        assert_eq!(schedule.due(0, 0, Duration::from_secs(1)), None);
    }
}
