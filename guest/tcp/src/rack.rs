//! [`Rack`]: loss detection by time (RFC 8985, 6). A segment is lost when one
//! that was sent later has arrived and enough time for reordering has passed.

use crate::scoreboard::{Record, Scoreboard, SendOrder};
use crate::seq::Seq;
use crate::time::{Duration, Instant};

/// SACKed segments that mean loss while no reordering was seen (RFC 5681).
const DUPLICATES: u32 = 3;
/// A wider reordering window is kept for this many recoveries (RFC 8985, 6.2).
const PERSIST: u8 = 16;
const MULTIPLIER_MAX: u8 = 32;

/// One connection's state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rack {
    /// The most recent transmission that has arrived, and its round trip.
    latest: Option<SendOrder>,
    round_trip: Duration,
    /// Highest end that has arrived.
    highest: Option<Seq>,
    reordering_seen: bool,
    multiplier: u8,
    persist: u8,
    /// A duplicate report counts once before this number is acknowledged.
    duplicate_round: Option<Seq>,
}

/// What loss detection sees besides its own state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) now: Instant,
    pub(crate) minimum: Duration,
    pub(crate) smoothed: Duration,
    pub(crate) in_recovery: bool,
}

impl Rack {
    /// A segment has arrived at the peer. If it was sent again, and that less than `least`
    /// ago, it was the original that arrived.
    #[inline]
    pub(crate) fn deliver(&mut self, record: &Record, now: Instant, least: Duration) {
        let end = record.end();
        match self.highest {
            Some(highest) if end.before(highest) => {
                self.reordering_seen |= !record.is_retransmitted();
            }
            _ => self.highest = Some(end),
        }
        let round_trip = now.since(record.sent_at);
        if record.is_retransmitted() && round_trip < least {
            return;
        }
        if self.latest.is_none_or(|it| record.order.is_after(it)) {
            self.latest = Some(record.order);
            self.round_trip = round_trip;
        }
    }

    /// The peer got something twice (RFC 2883): the window was too short.
    pub(crate) fn note_duplicate(&mut self, una: Seq, next: Seq) {
        if self.duplicate_round.is_some_and(|round| una.before(round)) {
            return;
        }
        self.duplicate_round = Some(next);
        self.multiplier = (self.multiplier.max(1) + 1).min(MULTIPLIER_MAX);
        self.persist = PERSIST;
    }

    /// A recovery has ended.
    pub(crate) fn note_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }

    /// Marks lost segments. Says whether there are new ones, and when to look again.
    pub(crate) fn detect(&self, board: &mut Scoreboard, view: View) -> (bool, Option<Instant>) {
        let Some(latest) = self.latest else {
            return (false, None);
        };
        let allowance = self.round_trip + self.window(board, view);
        let mut again: Option<Instant> = None;
        let lost = board.mark_lost(|record| {
            if !latest.is_after(record.order) {
                return false;
            }
            let due = record.sent_at + allowance;
            if due > view.now {
                again = Some(again.map_or(due, |other| other.max(due)));
            }
            due <= view.now
        });
        (lost, again)
    }

    /// How much later than expected a segment may arrive.
    fn window(&self, board: &Scoreboard, view: View) -> Duration {
        if !self.reordering_seen && (view.in_recovery || board.sacked() >= DUPLICATES) {
            return Duration::ZERO;
        }
        let quarters = u64::from(self.multiplier.max(1));
        Duration::from_micros(view.minimum.as_micros() / 4 * quarters).min(view.smoothed)
    }
}
