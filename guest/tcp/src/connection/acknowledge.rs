//! An acknowledgement is processed: scoreboard, round trip, loss detection,
//! congestion window, timers (RFC 9293, 3.10.7.4; RFC 6675; RFC 8985; RFC 6298).

use super::{Connection, Repair, State, stamp};
use crate::congestion::{Delivery, Phase};
use crate::rack::View;
use crate::scoreboard::Record;
use crate::segment::Segment;
use crate::seq::Seq;
use crate::time::{Duration, Instant};

/// Duplicate acknowledgements that mean loss where the peer has no SACK (RFC 5681, 3.2).
const DUPLICATES: u32 = 3;

/// What one acknowledgement delivered first.
#[derive(Default)]
struct Delivered {
    bytes: u32,
    /// When the latest segment that was sent once was sent.
    sample_from: Option<Instant>,
}

impl Connection {
    pub(super) fn acknowledge(&mut self, now: Instant, segment: &Segment<'_>) {
        if segment.ack.before(self.una) {
            return;
        }
        let (before, pipe, flight) = (self.una, self.board.pipe(), self.flight_size());
        let was_limited = u64::from(pipe) * 2 >= u64::from(self.congestion.window());
        let duplicate = self.note_duplicate_report(segment);
        let delivered = self.mark(now, segment);
        let acked = self.una.since(before);
        if acked > 0 {
            self.advance(now, acked);
        }
        if duplicate {
            self.undo_if_all_were_duplicates(segment);
        }
        if delivered.bytes == 0 && acked == 0 && self.board.is_empty() {
            return;
        }
        let sample = self.measure(now, acked, &delivered, segment);
        if acked > 0 {
            self.undo_if_spurious(segment);
        }
        let found_loss = self.detect_loss(now, acked, segment);
        if found_loss && self.congestion.phase() == Phase::Open {
            self.enter_recovery(flight);
        }
        let was_open = self.congestion.phase() == Phase::Open;
        self.congestion.on_ack(&Delivery {
            now,
            acked,
            delivered: delivered.bytes,
            una: self.una,
            next: self.next,
            pipe: self.board.pipe(),
            found_loss,
            was_limited,
            sample,
            round_trip: self.smoothed(),
        });
        if !was_open && self.congestion.phase() == Phase::Open {
            self.rack.note_recovered();
            self.retransmitted_at = None;
        }
        self.judge_tail_probe(segment, acked, duplicate);
        if acked > 0 || delivered.bytes > 0 {
            self.timeout_base = now;
        }
        self.arm(now);
    }

    /// Updates the scoreboard from the acknowledgement and its SACK blocks, in the order
    /// of their numbers: what one acknowledgement reports was not reordered by that
    /// (RFC 8985, 6.2, step 3).
    #[inline]
    fn mark(&mut self, now: Instant, segment: &Segment<'_>) -> Delivered {
        let mut delivered = Delivered::default();
        let (rack, minimum) = (&mut self.rack, self.round_trip.minimum());
        let stamps = segment.options.timestamps.filter(|_| self.has_timestamps);
        let offset = self.timestamp_offset;
        let mut deliver = |record: &Record| {
            delivered.bytes += record.len;
            // The original arrived if the echo is from before the copy was sent (RFC 8985,
            // 6.2, step 2).
            let is_original = record.is_retransmitted()
                && stamps.is_some_and(|it| is_older(it.echo, stamp(offset, record.sent_at)));
            let least = if is_original { Duration::MAX } else { minimum };
            rack.deliver(record, now, least);
            if !record.is_retransmitted() {
                delivered.sample_from = delivered.sample_from.max(Some(record.sent_at));
            }
        };
        if segment.ack.after(self.una) {
            self.board.acknowledge(segment.ack, &mut deliver);
            self.una = segment.ack;
        }
        if self.has_sack {
            let reported = segment.options.sack.sorted_from(self.una);
            for &(start, end) in reported.as_slice() {
                let is_news = start.before(end) && !start.before(segment.ack);
                if is_news && !end.after(self.next) {
                    self.board.sack(start, end, &mut deliver);
                }
            }
        }
        delivered
    }

    /// New data is acknowledged: it leaves the send buffer.
    #[inline]
    fn advance(&mut self, now: Instant, acked: u32) {
        let data = self.una.since(self.send_base).min(self.send.len() as u32);
        self.send.discard(data as usize);
        self.send_base = self.send_base + data;
        self.backoff = 0;
        self.duplicates = 0;
        self.stalled_since = now;
        if self.send.len() == 0 && data > 0 && self.pool.is_scarce() {
            self.send.release(&self.pool);
        }
        if self.fin_sent && self.una == self.next && acked > 0 {
            self.on_fin_acknowledged(now);
        }
    }

    fn on_fin_acknowledged(&mut self, now: Instant) {
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.end(None),
            _ => {}
        }
    }

    /// The round trip, from a segment that was sent once (Karn), else from the
    /// echoed timestamp (RFC 7323, 4).
    fn measure(
        &mut self,
        now: Instant,
        acked: u32,
        delivered: &Delivered,
        segment: &Segment<'_>,
    ) -> Option<Duration> {
        let sample = match (delivered.sample_from, segment.options.timestamps) {
            (Some(sent_at), _) => now.since(sent_at),
            (None, Some(stamps)) if acked > 0 && self.has_timestamps && stamps.echo != 0 => {
                let ms = self.timestamp(now).wrapping_sub(stamps.echo);
                if ms > crate::rtt::MAX.as_millis() as u32 {
                    return None;
                }
                Duration::from_millis(u64::from(ms))
            }
            _ => return None,
        };
        self.round_trip.measure(sample);
        Some(sample)
    }

    /// The peer had everything before it was sent again, as its echo of an older
    /// timestamp shows (Eifel: RFC 3522, RFC 4015).
    fn undo_if_spurious(&mut self, segment: &Segment<'_>) {
        if let Some(sent) = self.retransmitted_at
            && let Some(stamps) = segment.options.timestamps
            && self.has_timestamps
            && is_older(stamps.echo, sent)
        {
            self.congestion.undo();
            self.board.unmark_lost();
            self.retransmitted_at = None;
        }
    }

    /// Everything that was sent again in the last recovery has arrived twice (RFC 3708;
    /// Linux: `tcp_try_undo_dsack`): nothing was lost. What is marked lost and was not sent
    /// again is in flight once more; loss detection, which comes next, judges it anew.
    fn undo_if_all_were_duplicates(&mut self, segment: &Segment<'_>) {
        let Some(&(start, _)) = segment.options.sack.as_slice().first() else {
            return;
        };
        if start.before(self.repair.from) || self.repair.unproven == 0 {
            return;
        }
        self.repair.unproven -= 1;
        if self.repair.unproven == 0 {
            self.congestion.undo();
            self.board.unmark_lost();
            self.retransmitted_at = None;
        }
    }

    /// Loss was detected with `flight` bytes outstanding.
    pub(super) fn enter_recovery(&mut self, flight: u32) {
        self.begin_repair();
        self.congestion.enter_recovery(flight, self.next);
    }

    /// Begins to count what is sent again. Copies from before may be on their way, among them
    /// a tail loss probe's even if its segment was reported already; reports about them must
    /// not count for the repair's (Linux: `tcp_init_undo`).
    pub(super) fn begin_repair(&mut self) {
        let probe = self.tail_probe.filter(|probe| probe.was_retransmission);
        let is_copied = |record: &Record| {
            record.is_retransmitted()
                && !record.is_sacked()
                && probe.is_none_or(|probe| probe.end != record.end())
        };
        self.repair = Repair {
            from: self.una,
            unproven: self.board.count(is_copied) + u32::from(probe.is_some()),
        };
    }

    fn detect_loss(&mut self, now: Instant, acked: u32, segment: &Segment<'_>) -> bool {
        if !self.has_sack {
            return self.detect_loss_without_sack(acked, segment);
        }
        self.reordering_due = None;
        if self.board.sacked() == 0 && self.congestion.phase() == Phase::Open {
            return false;
        }
        self.detect_by_time(now)
    }

    pub(super) fn detect_by_time(&mut self, now: Instant) -> bool {
        let view = View {
            now,
            minimum: self.round_trip.minimum(),
            smoothed: self.smoothed(),
            in_recovery: self.congestion.phase() != Phase::Open,
        };
        let (lost, again) = self.rack.detect(&mut self.board, view);
        self.reordering_due = again;
        lost
    }

    /// NewReno (RFC 6582): three duplicates, then each partial acknowledgement,
    /// mean that the first segment is lost.
    fn detect_loss_without_sack(&mut self, acked: u32, segment: &Segment<'_>) -> bool {
        let is_lost = if acked > 0 {
            self.congestion.phase() == Phase::Recovery
        } else {
            let is_duplicate = segment.is_empty()
                && !self.board.is_empty()
                && u32::from(segment.window) << self.peer_scale == self.window;
            self.duplicates += u32::from(is_duplicate);
            is_duplicate && self.duplicates == DUPLICATES
        };
        let first: Seq = self.una;
        let lost = is_lost && self.board.mark_lost(|record| record.seq == first);
        // Duplicates do not say what left the network: one segment goes anyway.
        self.probe_allowed |= lost;
        lost
    }

    /// Whether the first SACK block reports a duplicate (RFC 2883, 4).
    fn note_duplicate_report(&mut self, segment: &Segment<'_>) -> bool {
        let blocks = segment.options.sack.as_slice();
        let Some(&(start, end)) = blocks.first().filter(|_| self.has_sack) else {
            return false;
        };
        let within = |other: &(Seq, Seq)| !start.before(other.0) && !end.after(other.1);
        let is_duplicate = start.before(segment.ack) || blocks.get(1).is_some_and(within);
        if is_duplicate {
            self.rack.note_duplicate(self.una, self.next);
        }
        is_duplicate
    }

    /// Whether a tail loss probe repaired a loss that otherwise no check would
    /// have noticed (RFC 8985, 7.4.2).
    fn judge_tail_probe(&mut self, segment: &Segment<'_>, acked: u32, duplicate: bool) {
        let Some(probe) = self.tail_probe else {
            return;
        };
        if segment.ack.before(probe.end) {
            return;
        }
        let has_sack = !segment.options.sack.as_slice().is_empty();
        if !probe.was_retransmission || duplicate || (acked == 0 && !has_sack) {
            self.tail_probe = None;
        } else if segment.ack.after(probe.end) {
            self.tail_probe = None;
            self.congestion.note_repaired();
        }
    }
}

/// Whether a timestamp is from before another.
fn is_older(stamp: u32, other: u32) -> bool {
    (stamp.wrapping_sub(other) as i32) < 0
}
