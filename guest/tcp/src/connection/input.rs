//! A segment arrives (RFC 9293, 3.10.7; RFC 5961; RFC 7323, 5).

use super::{Connection, Loss, State};
use crate::receive::Taken;
use crate::segment::{Segment, flags};
use crate::seq::Seq;
use crate::time::{Duration, Instant};

/// A timestamp older than this says nothing about a new one (RFC 7323, 5.5).
const TIMESTAMP_LIFETIME: Duration = Duration::from_secs(24 * 24 * 3600);

/// What the checks before the acknowledgement say about a segment.
enum SegmentCheck {
    Take,
    Drop,
}

impl Connection {
    /// Takes a segment that is for this connection.
    pub fn on_segment(&mut self, now: Instant, segment: &Segment<'_>) {
        match self.state {
            State::Closed => {}
            State::SynSent => self.on_segment_in_syn_sent(now, segment),
            _ => {
                if let SegmentCheck::Take = self.check(now, segment) {
                    self.take(now, segment);
                }
            }
        }
    }

    /// Checks in the order of RFC 9293, 3.10.7.4.
    #[inline]
    fn check(&mut self, now: Instant, segment: &Segment<'_>) -> SegmentCheck {
        if segment.has(flags::RST) {
            self.on_reset(now, segment);
            return SegmentCheck::Drop;
        }
        if self.is_old_by_timestamp(now, segment) || !self.is_in_window(segment) {
            self.on_unacceptable(now, segment);
            return SegmentCheck::Drop;
        }
        if segment.has(flags::SYN) {
            self.on_syn(now, segment);
            return SegmentCheck::Drop;
        }
        if !segment.has(flags::ACK) {
            return SegmentCheck::Drop;
        }
        // Neither data never sent nor what is older than any window (RFC 5961, 5.2).
        let oldest = self.una - self.window_max;
        if segment.ack.after(self.next) || segment.ack.before(oldest) {
            self.challenge(now);
            return SegmentCheck::Drop;
        }
        SegmentCheck::Take
    }

    /// Protection against wrapped sequence numbers (RFC 7323, 5.3).
    #[inline]
    fn is_old_by_timestamp(&self, now: Instant, segment: &Segment<'_>) -> bool {
        match segment.options.timestamps {
            Some(stamps) if self.has_timestamps => {
                (stamps.value.wrapping_sub(self.timestamp_recent) as i32) < 0
                    && now.since(self.timestamp_recent_at) < TIMESTAMP_LIFETIME
            }
            _ => false,
        }
    }

    #[inline]
    fn is_in_window(&self, segment: &Segment<'_>) -> bool {
        let next = self.receive.next();
        !(segment.seq + segment.len()).before(next)
            && !segment.seq.after(self.receive.edge().max(next))
    }

    /// A reset counts at exactly the next number; elsewhere in the window it draws a challenge ACK (RFC 5961, 3.2). In TIME-WAIT it is ignored (RFC 1337).
    fn on_reset(&mut self, now: Instant, segment: &Segment<'_>) {
        if self.state == State::TimeWait {
            return;
        }
        let next = self.receive.next();
        if segment.seq == next {
            let loss = if self.state == State::SynReceived {
                Loss::Refused
            } else {
                Loss::Reset
            };
            self.end(Some(loss));
        } else if segment.seq.is_in(next, self.receive.edge()) {
            self.challenge(now);
        }
    }

    /// Old or beyond the window: the peer learns what is expected. Data is
    /// always answered, other segments at a limited rate.
    fn on_unacceptable(&mut self, now: Instant, segment: &Segment<'_>) {
        if self.repeats_syn(segment) {
            return self.resend_syn_ack();
        }
        if segment.has(flags::SYN) {
            return self.challenge(now);
        }
        self.last_heard = now;
        if self.state == State::TimeWait && segment.has(flags::FIN) {
            self.time_wait_end = now + self.config.time_wait;
        }
        if segment.is_empty() {
            return self.challenge(now);
        }
        let end = segment.seq + segment.payload.len() as u32;
        if self.has_sack && !segment.payload.is_empty() && !end.after(self.receive.next()) {
            self.receive.reassembly.note_duplicate(segment.seq, end);
        }
        self.ack_now = true;
    }

    fn repeats_syn(&self, segment: &Segment<'_>) -> bool {
        self.state == State::SynReceived
            && segment.seq == self.irs
            && segment.flags & (flags::SYN | flags::ACK) == flags::SYN
    }

    fn resend_syn_ack(&mut self) {
        self.board.mark_lost(|_| true);
    }

    /// A SYN on a live connection: a peer that lost its state answers the
    /// challenge with a reset (RFC 5961, 4.2).
    fn on_syn(&mut self, now: Instant, segment: &Segment<'_>) {
        if self.repeats_syn(segment) {
            self.resend_syn_ack();
        } else {
            self.challenge(now);
        }
    }

    pub(super) fn challenge(&mut self, now: Instant) {
        if self.challenge.allows(now) {
            self.statistics.challenges += 1;
            self.ack_now = true;
        }
    }

    fn take(&mut self, now: Instant, segment: &Segment<'_>) {
        self.last_heard = now;
        self.keep_alive_probes = 0;
        if let Some(stamps) = segment.options.timestamps
            && self.has_timestamps
            && !segment.seq.after(self.last_ack_sent)
        {
            self.timestamp_recent = stamps.value;
            self.timestamp_recent_at = now;
        }
        if self.state == State::SynReceived && !self.complete_handshake(segment) {
            return;
        }
        self.acknowledge(now, segment);
        self.update_window(segment);
        if !segment.payload.is_empty() {
            self.take_data(now, segment);
        }
        if segment.has(flags::FIN) && self.may_recv() {
            let fin = segment.seq + segment.payload.len() as u32;
            if !fin.before(self.receive.next()) && !fin.after(self.receive.edge()) {
                self.peer_fin = Some(fin);
            }
            self.ack_now = true;
        }
        if self.peer_fin == Some(self.receive.next()) {
            self.take_fin(now);
        }
        // Said again behind the peer's end: the acknowledgement was lost (RFC 9293, 3.10.7.4).
        let has_ended = matches!(
            self.state,
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait
        );
        if has_ended && !segment.is_empty() {
            self.ack_now = true;
            if self.state == State::TimeWait && segment.has(flags::FIN) {
                self.time_wait_end = now + self.config.time_wait;
            }
        }
    }

    /// The third segment of the handshake. One that acknowledges something else
    /// is answered by a reset and changes nothing.
    fn complete_handshake(&mut self, segment: &Segment<'_>) -> bool {
        if !segment.ack.after(self.iss) {
            self.reset = Some((segment.ack, Seq(0), flags::RST));
            return false;
        }
        self.state = State::Established;
        self.window_seq = segment.seq;
        self.window_ack = segment.ack;
        self.set_window(u32::from(segment.window) << self.peer_scale);
        true
    }

    fn set_window(&mut self, window: u32) {
        self.window = window;
        self.window_max = self.window_max.max(window);
    }

    /// Takes the window of a segment that is not older than the last one's.
    #[inline]
    fn update_window(&mut self, segment: &Segment<'_>) {
        let newer = self.window_seq.before(segment.seq)
            || self.window_seq == segment.seq && !segment.ack.before(self.window_ack);
        if newer && !segment.ack.before(self.una) {
            self.window_seq = segment.seq;
            self.window_ack = segment.ack;
            self.set_window(u32::from(segment.window) << self.peer_scale);
        }
    }

    #[inline]
    fn take_data(&mut self, now: Instant, segment: &Segment<'_>) {
        if !matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        ) {
            return;
        }
        let mut payload = segment.payload;
        if let Some(fin) = self.peer_fin {
            // Nothing follows a FIN.
            payload = &payload[..payload.len().min(fin.since(segment.seq) as usize)];
        }
        match self.receive.take(segment.seq, payload, &self.pool) {
            Taken::InOrder => {
                let unacknowledged = self.receive.next().since(self.last_ack_sent);
                if unacknowledged >= 2 * self.receive_mss() {
                    self.ack_now = true;
                } else {
                    self.delayed_ack.owe(now);
                }
            }
            Taken::Gap | Taken::Duplicate => self.ack_now = true,
            Taken::Dropped => {
                self.statistics.dropped += 1;
                self.ack_now = true;
            }
        }
    }

    /// A full segment of the peer's is taken to be as large as this side's.
    fn receive_mss(&self) -> u32 {
        self.mss
    }

    fn take_fin(&mut self, now: Instant) {
        self.receive.skip_fin();
        self.peer_fin = Some(self.receive.next() - 1);
        self.ack_now = true;
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }

    /// RFC 9293, 3.10.7.3.
    fn on_segment_in_syn_sent(&mut self, now: Instant, segment: &Segment<'_>) {
        let has_ack = segment.has(flags::ACK);
        let good_ack = has_ack && segment.ack.after(self.iss) && !segment.ack.after(self.next);
        if segment.has(flags::RST) {
            if good_ack {
                self.end(Some(Loss::Refused));
            }
            return;
        }
        if has_ack && !good_ack {
            self.reset = Some((segment.ack, Seq(0), flags::RST));
            return;
        }
        if !segment.has(flags::SYN) {
            return;
        }
        self.take_syn(segment.seq, &segment.options, now);
        // The SYN that was sent offered its window from here on.
        self.receive.offer_unscaled();
        self.window = u32::from(segment.window);
        self.window_max = self.window;
        if good_ack {
            self.window_ack = segment.ack;
            self.state = State::Established;
            self.acknowledge(now, segment);
            self.ack_now = true;
        } else {
            // Both sides opened at once: the SYN is sent again with an ACK.
            self.state = State::SynReceived;
            self.board.mark_lost(|_| true);
        }
        self.last_heard = now;
    }
}
