//! [`SmallSegments`]: when a segment that is not full may go (RFC 9293, 3.7.4; Linux'
//! `tcp_nagle_check`, tcp(7)).
//!
//! Nagle's rule holds it while earlier data is unacknowledged. With Minshall's amendment, which
//! Linux has too, only an earlier *small* segment counts: else the rest of an answer that is
//! longer than a segment waits for the acknowledgement of its full segments, which a peer that
//! got one of them delays.

use crate::seq::Seq;
use crate::time::{Duration, Instant};

/// Longest time for which a cork holds data (tcp(7), `TCP_CORK`).
const CORKED_MAX: Duration = Duration::from_millis(200);

/// One connection's state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallSegments {
    nodelay: bool,
    corked: bool,
    /// The last write said that more follows.
    more: bool,
    /// What is queued goes, whatever holds it.
    pushed: bool,
    /// End of the last small segment that was sent.
    end: Seq,
    /// When data that a cork holds goes; [`Instant::NEVER`]: none is held.
    due: Instant,
}

impl SmallSegments {
    pub(crate) const fn new(iss: Seq) -> Self {
        Self {
            nodelay: false,
            corked: false,
            more: false,
            pushed: false,
            end: iss,
            due: Instant::NEVER,
        }
    }

    #[inline]
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Small segments go at once, or by Nagle's rule. Switching the rule off pushes what is
    /// queued, also out of a cork.
    pub(crate) fn set_nodelay(&mut self, nodelay: bool) {
        self.nodelay = nodelay;
        if nodelay {
            self.push();
        }
    }

    /// Holds small segments back, whatever is acknowledged.
    pub(crate) fn set_corked(&mut self, corked: bool) {
        self.corked = corked;
        if !corked {
            self.more = false;
            self.due = Instant::NEVER;
        }
    }

    /// Data is written; `more` follows.
    #[inline]
    pub(crate) fn note_write(&mut self, more: bool) {
        self.more = more;
    }

    /// Whether the last bytes that are queued may go, with `una` and `next` for SND.UNA and
    /// SND.NXT.
    #[inline]
    pub(crate) fn may_go(&self, una: Seq, next: Seq) -> bool {
        self.pushed || !self.is_corked() && (self.nodelay || !self.is_unacknowledged(una, next))
    }

    /// Whether a cork, and not the peer, holds data back.
    #[inline]
    pub(crate) fn is_corked(&self) -> bool {
        (self.corked || self.more) && !self.pushed
    }

    #[inline]
    fn is_unacknowledged(&self, una: Seq, next: Seq) -> bool {
        self.end.after(una) && !self.end.after(next)
    }

    /// A cork holds data from now on, if none was held.
    #[inline]
    pub(crate) fn hold(&mut self, now: Instant) {
        if self.due == Instant::NEVER {
            self.due = now + CORKED_MAX;
        }
    }

    /// What is queued goes.
    pub(crate) fn push(&mut self) {
        self.pushed = true;
        self.due = Instant::NEVER;
    }

    /// A segment up to `end` goes: full or small, with all that was queued or a part.
    #[inline]
    pub(crate) fn note_sent(&mut self, end: Seq, is_small: bool, is_all: bool) {
        if is_small {
            self.end = end;
        }
        self.pushed &= !is_all;
        self.due = Instant::NEVER;
    }

    /// Nothing is queued any more.
    pub(crate) fn clear(&mut self) {
        self.pushed = false;
        self.due = Instant::NEVER;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNA: Seq = Seq(0xffff_fff0);

    #[test]
    fn a_small_segment_waits_for_an_earlier_small_one_only() {
        let mut small = SmallSegments::new(UNA);
        assert!(small.may_go(UNA, UNA));
        small.note_sent(UNA + 1000, false, true);
        assert!(small.may_go(UNA, UNA + 1000));
        small.note_sent(UNA + 1010, true, true);
        assert!(!small.may_go(UNA, UNA + 1010));
        assert!(!small.may_go(UNA + 1000, UNA + 1010));
        assert!(small.may_go(UNA + 1010, UNA + 1010));
        // Billions of bytes later its number looks as if it were still to come.
        let later = UNA + 1010 + (1 << 31) + 5;
        assert!(small.may_go(later, later + 5));
        small.set_nodelay(true);
        assert!(small.may_go(UNA, UNA + 1010));
    }

    #[test]
    fn a_cork_is_stronger_than_nodelay_and_ends_in_time() {
        let now = Instant::from_micros(7);
        let mut small = SmallSegments::new(UNA);
        small.set_nodelay(true);
        small.clear();
        small.set_corked(true);
        assert!(!small.may_go(UNA, UNA));
        small.hold(now);
        small.hold(now + Duration::from_millis(100));
        assert_eq!(small.due(), now + CORKED_MAX);
        small.push();
        assert!(small.may_go(UNA, UNA) && small.due() == Instant::NEVER);
        small.note_sent(UNA + 9, true, true);
        assert!(!small.may_go(UNA + 9, UNA + 9), "what is written later");
        small.set_corked(false);
        assert!(small.may_go(UNA + 9, UNA + 9));
    }

    #[test]
    fn a_write_that_says_that_more_follows_holds_until_the_next() {
        let mut small = SmallSegments::new(UNA);
        small.note_write(true);
        assert!(!small.may_go(UNA, UNA));
        small.note_write(false);
        assert!(small.may_go(UNA, UNA));
    }
}
