//! Requests to end a machine whose program gets signals: which are the program's, and which end the machine.

use std::time::{Duration, Instant};

/// A signal that comes again within this is the same request: a job's processes and the process
/// outside each pass it on (`timeout`, service managers).
const SAME: Duration = Duration::from_secs(1);

/// What a request to end becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The program gets the signal.
    Programs,
    /// It has it already.
    Same,
    /// The machine ends at once.
    Ends,
}

/// The requests to end that came as signals: the first is the program's, one that comes later ends the
/// machine.
#[derive(Debug, Default)]
pub struct EndRequests {
    first: Option<Instant>,
    /// A bit for each signal since, at its number.
    passed: u64,
    /// Whether the program was asked to end through the control socket.
    was_asked: bool,
}

impl EndRequests {
    /// One came through the control socket. Whether it is the first: who asks again fears that
    /// nothing heard it.
    pub fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.was_asked, true)
    }

    /// A signal came, at `now`.
    pub fn next(&mut self, signal: i32, now: Instant) -> Turn {
        let first = *self.first.get_or_insert(now);
        if now.duration_since(first) >= SAME {
            return Turn::Ends;
        }
        let bit = 1 << (signal & 63);
        let is_new = self.passed & bit == 0;
        self.passed |= bit;
        if is_new { Turn::Programs } else { Turn::Same }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_comes_again_later_ends_the_machine() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut requests = EndRequests::default();
        assert_eq!(requests.next(libc::SIGINT, at(0)), Turn::Programs);
        assert_eq!(requests.next(libc::SIGINT, at(2)), Turn::Same);
        // Whoever sends another signal soon after means it.
        assert_eq!(requests.next(libc::SIGTERM, at(500)), Turn::Programs);
        assert_eq!(requests.next(libc::SIGTERM, at(999)), Turn::Same);
        assert_eq!(requests.next(libc::SIGINT, at(1000)), Turn::Ends);
        assert_eq!(requests.next(libc::SIGTERM, at(5000)), Turn::Ends);
    }
}
