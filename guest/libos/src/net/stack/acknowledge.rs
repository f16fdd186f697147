//! How long a connection's acknowledgements wait for data to travel with.
//!
//! A pending acknowledgement is a deadline, and a core that falls idle arms its
//! timer for it: an exit, and a wake-up that mostly finds the acknowledgement
//! sent, since the answer carried it. A connection whose answers do so is
//! given longer, as Linux does it with what it calls ping-pong connections: it
//! then costs a timer write in [`INTERACTIVE`], not one in [`DELAY`]. The first
//! acknowledgement that had to go by itself ends that.

use smoltcp::time::Duration;

/// At first (RFC 9293, 3.8.6.3 allows 500 ms; Linux starts with 40 ms).
pub(super) const DELAY: Duration = Duration::from_millis(40);
/// Where answers carry them (Linux: `TCP_DELACK_MAX`).
pub(super) const INTERACTIVE: Duration = Duration::from_millis(200);
/// Answers in a row that make a connection interactive.
const CARRIED: u8 = 4;

/// One connection's account.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements {
    is_owed: bool,
    carried: u8,
}

impl Acknowledgements {
    /// Whether the peer is still owed one after what was to be sent is sent.
    pub(super) fn note_owed(&mut self, is_owed: bool) {
        self.is_owed = is_owed;
    }

    /// Data goes out, and what is owed with it.
    pub(super) fn note_answer(&mut self) {
        if core::mem::take(&mut self.is_owed) {
            self.carried = CARRIED.min(self.carried + 1);
        }
    }

    /// A deadline has passed: what is owed goes by itself.
    pub(super) fn note_deadline(&mut self) {
        if core::mem::take(&mut self.is_owed) {
            self.carried = 0;
        }
    }

    /// How long the next one may wait.
    pub(super) fn delay(&self) -> Duration {
        match self.carried {
            CARRIED => INTERACTIVE,
            _ => DELAY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_answers(count: usize) -> Acknowledgements {
        let mut acknowledgements = Acknowledgements::default();
        for _ in 0..count {
            acknowledgements.note_owed(true);
            acknowledgements.note_answer();
        }
        acknowledgements
    }

    #[test]
    fn answers_in_a_row_buy_time() {
        assert_eq!(after_answers(3).delay(), DELAY);
        assert_eq!(after_answers(4).delay(), INTERACTIVE);
        assert_eq!(after_answers(1000).delay(), INTERACTIVE);
    }

    #[test]
    fn one_that_went_by_itself_takes_it_back() {
        let mut acknowledgements = after_answers(1000);
        acknowledgements.note_deadline();
        assert_eq!(acknowledgements.delay(), INTERACTIVE, "none was owed");
        acknowledgements.note_owed(true);
        acknowledgements.note_deadline();
        assert_eq!(acknowledgements.delay(), DELAY);
    }

    #[test]
    fn data_that_answers_nothing_counts_for_nothing() {
        let mut acknowledgements = Acknowledgements::default();
        (0..1000).for_each(|_| acknowledgements.note_answer());
        assert_eq!(acknowledgements.delay(), DELAY);
    }
}
