//! Signals to a machine whose program gets them: which are the program's, and which end the machine.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A signal that comes again within this is the same request: a job's processes and the process
/// outside each pass it on (`timeout`, service managers).
const SAME: Duration = Duration::from_secs(1);

/// What a key of the terminal means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keys {
    /// They are signals as all others.
    #[default]
    Signals,
    /// The guest has the terminal as its console: Ctrl-C is for what is in its foreground, as often as it is
    /// typed, and Ctrl-\\ ends the machine.
    Consoles,
}

/// What a signal becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// What is in the foreground of the guest's terminal gets it.
    Foregrounds,
    /// The program gets it. It requests no end.
    Passed,
    /// The program gets it, as a request to end.
    Programs,
    /// It has it already.
    Same,
    /// The machine ends at once.
    Ends,
}

/// The requests to end that have come: the first SIGINT or SIGTERM is the program's, one that comes later ends
/// the machine.
#[derive(Debug, Default)]
pub struct EndRequests {
    keys: Keys,
    first: Option<Instant>,
    /// A bit for each signal since, at its number.
    passed: u64,
    /// Whether the program was asked to end by `tare stop`.
    was_asked: bool,
}

impl EndRequests {
    /// None yet, with a terminal whose keys mean this.
    pub fn new(keys: Keys) -> Self {
        Self {
            keys,
            ..Self::default()
        }
    }

    /// What keys of the terminal mean.
    pub fn keys(&self) -> Keys {
        self.keys
    }

    /// One of `tare stop` came. Whether it is the first: who asks again fears that nothing heard it.
    pub fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.was_asked, true)
    }

    /// A signal came, at `now`.
    pub fn next(&mut self, signal: i32, now: Instant) -> Turn {
        match (signal, self.keys) {
            (libc::SIGINT, Keys::Consoles) => Turn::Foregrounds,
            // The way out of a guest that keeps Ctrl-C for itself.
            (libc::SIGQUIT, Keys::Consoles) => Turn::Ends,
            (libc::SIGINT | libc::SIGTERM, _) => self.request(signal, now),
            _ => Turn::Passed,
        }
    }

    fn request(&mut self, signal: i32, now: Instant) -> Turn {
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
        assert_eq!(requests.next(libc::SIGQUIT, at(5000)), Turn::Passed);
    }

    #[test]
    fn keys_of_a_console_are_for_the_foreground_and_the_machine() {
        let mut requests = EndRequests::new(Keys::Consoles);
        let begin = Instant::now();
        for second in 0..3 {
            let at = begin + Duration::from_secs(second);
            assert_eq!(requests.next(libc::SIGINT, at), Turn::Foregrounds);
            assert_eq!(requests.next(libc::SIGQUIT, at), Turn::Ends);
            assert_eq!(requests.next(libc::SIGHUP, at), Turn::Passed);
        }
        assert_eq!(requests.next(libc::SIGTERM, begin), Turn::Programs);
    }
}
