//! [`ChallengeLimit`]: how often a connection answers segments that may be
//! forged or stale (RFC 5961, 7). The limit is each connection's own: a global
//! one tells an attacker about others (CVE-2016-5696).

use crate::time::{Duration, Instant};

/// Time between two answers (Linux: `tcp_invalid_ratelimit`).
const INTERVAL: Duration = Duration::from_millis(500);

/// One connection's limit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChallengeLimit(Option<Instant>);

impl ChallengeLimit {
    /// Whether an answer may go now.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        let allowed = self.0.is_none_or(|last| now.since(last) >= INTERVAL);
        if allowed {
            self.0 = Some(now);
        }
        allowed
    }
}
