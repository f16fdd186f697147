//! `--halt`: how a halted vCPU waits on the host.
//!
//! KVM may poll for a while before it schedules the vCPU's thread out: a wake-up
//! within that time is fast, and costs the CPU that polled
//! (`Documentation/virt/kvm/halt-polling.rst`).

use std::str::FromStr;

/// Longest poll that can be asked for, ns: beyond a second it is no poll.
const LONGEST_NS: u32 = 1_000_000_000;

/// How a halted vCPU waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HaltChoice {
    /// As the kernel's parameters say.
    Kernel,
    /// Scheduled out at once.
    Never,
    /// Polls for up to so many ns.
    Poll(u32),
}

/// A way to wait that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HaltChoiceError {
    /// Not one of the three.
    #[error("a halt is never, kernel or poll=NS")]
    Form,
    /// Not a number of ns within the range.
    #[error("a poll is 0 to {LONGEST_NS} ns")]
    Length,
}

impl HaltChoice {
    /// The longest poll of this machine in ns; `None` leaves it to the kernel.
    pub(crate) const fn poll_ns(self) -> Option<u32> {
        match self {
            Self::Kernel => None,
            Self::Never => Some(0),
            Self::Poll(ns) => Some(ns),
        }
    }
}

impl FromStr for HaltChoice {
    type Err = HaltChoiceError;

    fn from_str(text: &str) -> Result<Self, HaltChoiceError> {
        match text.split_once('=') {
            None if text == "kernel" => Ok(Self::Kernel),
            None if text == "never" => Ok(Self::Never),
            Some(("poll", ns)) => match ns.parse() {
                Ok(ns) if ns <= LONGEST_NS => Ok(Self::Poll(ns)),
                _ => Err(HaltChoiceError::Length),
            },
            _ => Err(HaltChoiceError::Form),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ways_to_wait_have_names() {
        let poll_ns = |text: &str| text.parse().map(HaltChoice::poll_ns);
        assert_eq!(poll_ns("kernel"), Ok(None));
        assert_eq!(poll_ns("never"), Ok(Some(0)));
        assert_eq!(poll_ns("poll=200000"), Ok(Some(200_000)));
    }

    #[test]
    fn other_words_and_lengths_are_refused() {
        let parse = |text: &str| text.parse::<HaltChoice>();
        for text in ["", "poll", "always", "never=1"] {
            assert_eq!(parse(text), Err(HaltChoiceError::Form), "{text}");
        }
        for text in ["poll=", "poll=-1", "poll=1us", "poll=1000000001"] {
            assert_eq!(parse(text), Err(HaltChoiceError::Length), "{text}");
        }
    }
}
