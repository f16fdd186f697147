//! [`ErrorBudget`]: how many ICMP errors may be sent (RFC 1812, 4.3.2.8). Without it
//! whoever sends datagrams to closed ports decides how much this side sends to whom.

use smoltcp::time::{Duration, Instant};

/// Errors that may be sent in a row.
const BURST: u32 = 50;
/// One more may be sent after this time.
const INTERVAL: Duration = Duration::from_millis(10);

/// A bucket of tokens.
pub(super) struct ErrorBudget {
    tokens: u32,
    /// Up to when tokens have been given.
    filled: Instant,
}

impl Default for ErrorBudget {
    fn default() -> Self {
        Self {
            tokens: BURST,
            filled: Instant::ZERO,
        }
    }
}

impl ErrorBudget {
    /// Takes one token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let due = (now - self.filled).total_millis() / INTERVAL.total_millis();
        let due = u32::try_from(due).unwrap_or(BURST);
        if due >= BURST - self.tokens {
            (self.tokens, self.filled) = (BURST, now);
        } else {
            self.tokens += due;
            self.filled += INTERVAL * due;
        }
        let allowed = self.tokens > 0;
        self.tokens -= u32::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_in_ten_milliseconds() {
        let mut budget = ErrorBudget::default();
        let mut now = Instant::from_secs(5);
        let mut passed = |now, asked| (0..asked).filter(|_| budget.take(now)).count();
        assert_eq!(passed(now, 300), 50);
        now += Duration::from_millis(25);
        assert_eq!(passed(now, 300), 2);
        now += Duration::from_millis(5);
        assert_eq!(passed(now, 300), 1);
        now += Duration::from_secs(100);
        assert_eq!(passed(now, 300), 50);
    }
}
