//! [`DelayedAck`]: how long an acknowledgement waits for data to travel with
//! (RFC 9293, 3.8.6.3; RFC 5681, 4.2).
//!
//! A pending acknowledgement is a deadline, and a CPU that falls idle arms its
//! timer for it. A connection whose answers carry the acknowledgements gets
//! more time, as Linux does for what it calls ping-pong connections; the first
//! acknowledgement that has to go alone ends that.

use crate::time::{Duration, Instant};

/// At first (RFC 9293 allows 500 ms; Linux starts with 40 ms).
const DELAY: Duration = Duration::from_millis(40);
/// Where answers carry them (Linux: `TCP_DELACK_MAX`).
const INTERACTIVE: Duration = Duration::from_millis(200);
/// Answers in a row that make a connection interactive.
const CARRIED: u8 = 4;

/// One connection's state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayedAck {
    /// When the acknowledgement goes alone; [`Instant::NEVER`]: none is owed.
    due: Instant,
    carried: u8,
}

impl DelayedAck {
    pub(crate) const fn new() -> Self {
        Self {
            due: Instant::NEVER,
            carried: 0,
        }
    }

    #[inline]
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Data arrived that may be acknowledged later.
    #[inline]
    pub(crate) fn owe(&mut self, now: Instant) {
        if self.due == Instant::NEVER {
            let delay = match self.carried {
                CARRIED => INTERACTIVE,
                _ => DELAY,
            };
            self.due = now + delay;
        }
    }

    /// Data goes out and carries what is owed.
    #[inline]
    pub(crate) fn carry(&mut self) {
        if self.due != Instant::NEVER {
            self.due = Instant::NEVER;
            self.carried = CARRIED.min(self.carried + 1);
        }
    }

    /// An acknowledgement goes alone.
    pub(crate) fn go_alone(&mut self, now: Instant) {
        if self.due <= now {
            self.carried = 0;
        }
        self.due = Instant::NEVER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_micros(5);

    fn after_answers(count: usize) -> DelayedAck {
        let mut ack = DelayedAck::new();
        for _ in 0..count {
            ack.owe(NOW);
            ack.carry();
        }
        ack
    }

    fn delay(mut ack: DelayedAck) -> Duration {
        ack.owe(NOW);
        ack.due().since(NOW)
    }

    #[test]
    fn answers_in_a_row_buy_time() {
        assert_eq!(delay(after_answers(3)), DELAY);
        assert_eq!(delay(after_answers(4)), INTERACTIVE);
        assert_eq!(delay(after_answers(1000)), INTERACTIVE);
    }

    #[test]
    fn one_that_expires_takes_it_back() {
        let mut ack = after_answers(1000);
        ack.owe(NOW);
        ack.go_alone(NOW + INTERACTIVE);
        assert_eq!(delay(ack), DELAY);
    }

    #[test]
    fn data_that_answers_nothing_counts_for_nothing() {
        let mut ack = DelayedAck::new();
        (0..1000).for_each(|_| ack.carry());
        assert_eq!(delay(ack), DELAY);
    }
}
