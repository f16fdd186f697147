//! From a reason to end to the end of the process: the output of a guest that ended by itself is
//! drained first ([`crate::drain`]), unless another process requests the end meanwhile. Where a user
//! requested the end of its program, readers have a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tare_hv::KickHandle;

use crate::drain::Drain;
use crate::exit_reason::ExitReason;

/// How long the end of a machine that a user ends waits for readers of its output.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// The state between a reason and the end.
pub(crate) struct Ending {
    /// `None` if there is nothing to drain.
    drain: Option<Drain>,
    /// Set before a kick: vCPU threads return.
    stop: Arc<AtomicBool>,
    kicks: Vec<KickHandle>,
    waiting: Option<ExitReason>,
    is_drained: bool,
    /// When output that has not been read is given up.
    until: Option<Instant>,
}

impl Ending {
    pub(crate) fn new(drain: Option<Drain>, stop: Arc<AtomicBool>, kicks: Vec<KickHandle>) -> Self {
        Self {
            drain,
            stop,
            kicks,
            waiting: None,
            is_drained: false,
            until: None,
        }
    }

    /// Whether the guest has ended, and its output has not been read.
    pub(crate) fn has_begun(&self) -> bool {
        self.waiting.is_some()
    }

    /// A user requested the end: readers have [`DRAIN_LIMIT`] from when the guest has ended.
    pub(crate) fn hurry(&mut self, now: Instant) {
        if self.has_begun() {
            self.until.get_or_insert(now + DRAIN_LIMIT);
        }
    }

    /// How long to wait for readers yet, if that has an end.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let until = self.until.filter(|_| self.has_begun());
        until.map(|until| until.saturating_duration_since(now))
    }

    /// Gives up output that nothing has read in time.
    pub(crate) fn look(&mut self, now: Instant) {
        self.is_drained |= self.left(now) == Some(Duration::ZERO);
    }

    /// The host has all output.
    pub(crate) fn drained(&mut self) {
        self.is_drained = true;
    }

    /// The reason to end with, if it is time; `new` is one that has just arrived.
    pub(crate) fn next(&mut self, new: Option<ExitReason>) -> Option<ExitReason> {
        match new {
            Some(reason) if reason.is_urgent() => return Some(reason),
            // What happens to another vCPU after the guest has ended is irrelevant.
            Some(_) if self.waiting.is_some() => {}
            Some(reason) => match &self.drain {
                None => return Some(reason),
                Some(drain) => {
                    self.stop.store(true, Ordering::Release);
                    self.kicks.iter().for_each(KickHandle::kick);
                    drain.ask();
                    self.waiting = Some(reason);
                }
            },
            None => {}
        }
        if self.is_drained {
            return self.waiting.take();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use tare_abi::exit::GuestExit;
    use tare_control::api::Stop;

    use super::*;

    fn ending(drain: Option<Drain>) -> Ending {
        Ending::new(drain, Arc::default(), Vec::new())
    }

    fn status(number: u8) -> ExitReason {
        ExitReason::Guest(GuestExit::Status(number))
    }

    fn number(reason: Option<ExitReason>) -> Option<u8> {
        match reason? {
            ExitReason::Guest(GuestExit::Status(number)) => Some(number),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_ports_a_reason_ends_at_once() {
        assert_eq!(number(ending(None).next(Some(status(3)))), Some(3));
    }

    #[test]
    fn output_is_drained_before_the_first_reason_ends() {
        let mut ending = ending(Some(Drain::new().unwrap()));
        assert!(ending.next(None).is_none());
        assert!(ending.next(Some(status(3))).is_none());
        assert!(ending.stop.load(Ordering::Relaxed), "vCPUs stop");
        assert!(ending.next(Some(ExitReason::GuestCrash)).is_none());
        ending.drained();
        assert_eq!(number(ending.next(None)), Some(3));
    }

    #[test]
    fn readers_have_a_second_once_a_user_requested_the_end() {
        let now = Instant::now();
        let mut ending = ending(Some(Drain::new().unwrap()));
        // The program has still to end.
        ending.hurry(now);
        assert_eq!(ending.left(now), None);
        assert!(ending.next(Some(status(3))).is_none());
        assert_eq!(ending.left(now), None);
        ending.hurry(now);
        ending.hurry(now + DRAIN_LIMIT);
        assert_eq!(ending.left(now), Some(DRAIN_LIMIT));
        ending.look(now + DRAIN_LIMIT / 2);
        assert!(ending.next(None).is_none());
        ending.look(now + DRAIN_LIMIT);
        assert_eq!(number(ending.next(None)), Some(3));
    }

    #[test]
    fn who_asks_for_the_end_waits_for_no_reader() {
        for asked in [
            ExitReason::Interrupted,
            ExitReason::Terminated,
            ExitReason::Stopped(Stop::Kill),
            ExitReason::Failed("x".to_owned()),
        ] {
            let mut ending = ending(Some(Drain::new().unwrap()));
            assert!(ending.next(Some(status(3))).is_none());
            assert!(!matches!(
                ending.next(Some(asked)),
                None | Some(ExitReason::Guest(_))
            ));
        }
    }
}
