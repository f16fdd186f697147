//! [`SlowStart`]: leaves slow start before the queue overflows, when the round
//! trip grows from one round to the next (HyStart++, RFC 9406).
//!
//! Beyond the RFC, conservative slow start ends before its five rounds if the round trip has grown
//! by as much again: then a queue fills, and three times the window would overflow it.

use crate::seq::Seq;
use crate::time::Duration;

const THRESHOLD_MIN: Duration = Duration::from_millis(4);
const THRESHOLD_MAX: Duration = Duration::from_millis(16);
const SAMPLES: u8 = 8;
/// In conservative slow start the window grows by this part.
const GROWTH_DIVISOR: u32 = 4;
const CONSERVATIVE_ROUNDS: u8 = 5;

/// One connection's rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlowStart {
    /// A round ends when this number is acknowledged.
    round_end: Option<Seq>,
    last: Option<Duration>,
    current: Option<Duration>,
    samples: u8,
    conservative: Option<Conservative>,
}

#[derive(Clone, Copy, Debug)]
struct Conservative {
    baseline: Duration,
    rounds: u8,
}

/// What slow start does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Grow by this many bytes.
    Grow(u32),
    /// Go to congestion avoidance.
    Leave,
}

impl SlowStart {
    pub(crate) fn on_ack(
        &mut self,
        acked: u32,
        una: Seq,
        next: Seq,
        sample: Option<Duration>,
    ) -> Step {
        let mut left = false;
        if self.round_end.is_none_or(|end| !una.before(end)) {
            self.round_end = Some(next);
            self.last = self.current.take();
            self.samples = 0;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                left = conservative.rounds >= CONSERVATIVE_ROUNDS;
            }
        }
        if left {
            return Step::Leave;
        }
        if sample.is_some_and(|sample| self.is_queue_filling(sample)) {
            return Step::Leave;
        }
        match self.conservative {
            Some(_) => Step::Grow(acked / GROWTH_DIVISOR),
            None => Step::Grow(acked),
        }
    }

    /// Takes a round trip. Whether it shows, in conservative slow start, that a queue fills.
    fn is_queue_filling(&mut self, sample: Duration) -> bool {
        let current = self.current.map_or(sample, |current| current.min(sample));
        self.current = Some(current);
        self.samples = self.samples.saturating_add(1);
        let Some(last) = self.last.filter(|_| self.samples >= SAMPLES) else {
            return false;
        };
        match self.conservative {
            None if current >= last + threshold(last) => {
                self.conservative = Some(Conservative {
                    baseline: current,
                    rounds: 0,
                });
            }
            Some(Conservative { baseline, .. }) if current < baseline => self.conservative = None,
            Some(Conservative { baseline, .. }) => {
                return current >= baseline + threshold(baseline);
            }
            None => {}
        }
        false
    }
}

/// How much longer than `round_trip` the next round's must be to mean a queue.
fn threshold(round_trip: Duration) -> Duration {
    let eighth = Duration::from_micros(round_trip.as_micros() / 8);
    eighth.clamp(THRESHOLD_MIN, THRESHOLD_MAX)
}
