//! [`SlowStart`]: leaves slow start before the queue overflows, when the round
//! trip grows from one round to the next (HyStart++, RFC 9406).

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
        if let Some(sample) = sample {
            self.note(sample);
        }
        match self.conservative {
            Some(_) => Step::Grow(acked / GROWTH_DIVISOR),
            None => Step::Grow(acked),
        }
    }

    fn note(&mut self, sample: Duration) {
        let current = self.current.map_or(sample, |current| current.min(sample));
        self.current = Some(current);
        self.samples = self.samples.saturating_add(1);
        let Some(last) = self.last.filter(|_| self.samples >= SAMPLES) else {
            return;
        };
        let eighth = Duration::from_micros(last.as_micros() / 8);
        let threshold = eighth.clamp(THRESHOLD_MIN, THRESHOLD_MAX);
        match self.conservative {
            None if current >= last + threshold => {
                self.conservative = Some(Conservative {
                    baseline: current,
                    rounds: 0,
                });
            }
            Some(conservative) if current < conservative.baseline => self.conservative = None,
            _ => {}
        }
    }
}
