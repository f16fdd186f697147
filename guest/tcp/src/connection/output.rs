//! What is to be sent, one segment a poll: resets, retransmissions, new data,
//! acknowledgements (RFC 9293, 3.10.7, 3.8.6; RFC 6675, 5).

use super::{Connection, State, TailProbe};
use crate::congestion::Phase;
use crate::options::{Options, SACK_BLOCKS, Timestamps};
use crate::scoreboard;
use crate::segment::{Outgoing, flags};
use crate::seq::Seq;
use crate::time::Instant;

/// The next segment.
#[derive(Clone, Copy)]
enum Plan {
    Reset(Seq, Seq, u8),
    /// A record of the scoreboard, again.
    Again(usize),
    /// `len` bytes from SND.NXT on, with or without the FIN: a segment, or full ones that the link
    /// cuts.
    New {
        len: u32,
        fin: u32,
    },
    Syn,
    Acknowledgement,
    /// An old number, which makes the peer answer.
    WindowProbe,
}

impl Connection {
    /// The next segment to be sent now, or `None`. It counts as sent.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Outgoing<'_>> {
        // One deadline may make another due: a probe that comes late, the timeout.
        while self.earliest() <= now {
            self.run_timers(now);
        }
        let plan = self.plan(now)?;
        Some(match plan {
            Plan::Reset(seq, ack, bits) => Outgoing {
                ack,
                ..Outgoing::control(bits, seq)
            },
            Plan::Again(at) => self.send_again(at, now),
            Plan::New { len, fin } => self.send_new(len, fin, now),
            Plan::Syn => self.send_syn(now),
            Plan::Acknowledgement => self.send_acknowledgement(self.next, now),
            Plan::WindowProbe => self.send_acknowledgement(self.una - 1, now),
        })
    }

    #[inline]
    fn plan(&mut self, now: Instant) -> Option<Plan> {
        if let Some((seq, ack, bits)) = self.reset.take() {
            return Some(Plan::Reset(seq, ack, bits));
        }
        if self.state == State::Closed {
            return None;
        }
        if self.syn_unsent {
            return Some(Plan::Syn);
        }
        if self.board.lost() > 0
            && let Some(plan) = self.plan_again()
        {
            return Some(plan);
        }
        if !self.is_opening()
            && let Some(plan) = self.plan_new(now)
        {
            return Some(plan);
        }
        if core::mem::take(&mut self.window_probe) {
            return Some(Plan::WindowProbe);
        }
        core::mem::take(&mut self.ack_now).then_some(Plan::Acknowledgement)
    }

    fn plan_again(&mut self) -> Option<Plan> {
        let pipe = self.board.pipe();
        let at = self.board.next_lost(self.mss)?;
        let fits = pipe + self.board.record(at).len <= self.congestion.window();
        let may = fits || pipe == 0 || core::mem::take(&mut self.probe_allowed);
        may.then_some(Plan::Again(at))
    }

    /// New data as far as both windows go, in full segments unless a small one may go
    /// (RFC 9293, 3.8.6.2.1).
    #[inline]
    fn plan_new(&mut self, now: Instant) -> Option<Plan> {
        let end = self.send_base + self.send.len() as u32;
        let unsent = end.since(self.next);
        let fin_due = self.fin_queued && !self.fin_sent;
        if (unsent == 0 && !fin_due) || !self.board.has_room() {
            return None;
        }
        let usable = (self.una + self.window).since(self.next);
        let len = unsent.min(self.mss).min(usable);
        let fin = u32::from(fin_due && len == unsent);
        if !self.is_worth_sending(len, unsent, fin) {
            if len == unsent && self.small.is_corked() {
                self.small.hold(now);
            } else if self.board.is_empty() && unsent > 0 {
                self.arm_persist(now);
            }
            return None;
        }
        let pipe = self.board.pipe();
        let fits = pipe + len <= self.congestion.window() || pipe == 0;
        if !fits && !core::mem::take(&mut self.probe_allowed) {
            return None;
        }
        let most = unsent.min(usable);
        let len = if fits && fin == 0 && most >= 2 * self.mss {
            self.together(most, pipe)
        } else {
            len
        };
        Some(Plan::New { len, fin })
    }

    /// Bytes of the full segments that go at once, with at most `most` bytes of data: one, or as many
    /// as the link cuts and the congestion window and the scoreboard have room for.
    fn together(&mut self, most: u32, pipe: u32) -> u32 {
        let room = self.congestion.window().saturating_sub(pipe);
        let limit = u32::from(self.config.together).min(room).min(most);
        let count = match limit / self.mss {
            // A probe is one segment.
            0 | 1 => 1,
            _ if self.probe_allowed => 1,
            count => self.board.room_for(count).max(1),
        };
        count * self.mss
    }

    #[inline]
    fn is_worth_sending(&self, len: u32, unsent: u32, fin: u32) -> bool {
        if len == self.mss || fin > 0 {
            return true;
        }
        if len == 0 {
            return false;
        }
        if len == unsent {
            let may_go = self.small.may_go(self.una, self.next);
            return self.fin_queued || self.probe_allowed || may_go;
        }
        // The window cuts it.
        self.window_override || (len >= self.window_max / 2 && self.window_max > 0)
    }

    #[inline]
    fn send_new(&mut self, len: u32, fin: u32, now: Instant) -> Outgoing<'_> {
        if self.board.is_empty() {
            self.begin_flight(now);
        }
        let seq = self.next;
        let record_flags = if fin > 0 { scoreboard::FIN } else { 0 };
        // As they are on the wire: each may be lost by itself.
        let (mut first, mut rest) = (seq, len);
        while rest > self.mss {
            self.board.push(first, self.mss, 0, now);
            self.statistics.segments_sent += 1;
            first = first + self.mss;
            rest -= self.mss;
        }
        self.board.push(first, rest + fin, record_flags, now);
        self.next = seq + (len + fin);
        self.fin_sent |= fin > 0;
        self.statistics.segments_sent += 1;
        self.congestion.note_sent(len + fin);
        self.last_sent = now;
        if self.probe_allowed {
            self.probe_allowed = false;
        }
        self.window_override = false;
        self.arm(now);
        let is_last = seq + len == self.send_base + self.send.len() as u32;
        self.small.note_sent(self.next, len < self.mss, is_last);
        let mut bits = flags::ACK;
        if is_last && len > 0 {
            bits |= flags::PSH;
        }
        if fin > 0 {
            bits |= flags::FIN;
        }
        self.emit(seq, bits, len, now)
    }

    /// The first data after a pause.
    #[inline]
    fn begin_flight(&mut self, now: Instant) {
        if now.since(self.last_sent) > self.round_trip.timeout() {
            self.congestion.note_idle();
            self.repair.unproven = 0;
        }
        self.timeout_base = now;
        self.stalled_since = now;
        self.backoff = 0;
        self.tail_probe = None;
    }

    fn send_again(&mut self, at: usize, now: Instant) -> Outgoing<'_> {
        let record = self.board.record(at);
        self.board.resend(at, now);
        self.statistics.segments_retransmitted += 1;
        self.congestion.note_sent(record.len);
        self.last_sent = now;
        if self.congestion.phase() == Phase::Open {
            // A report about a probe must not count for one about a repair.
            self.repair.unproven = 0;
        } else {
            self.repair.unproven += 1;
            if self.has_timestamps {
                let stamp = self.timestamp(now);
                self.retransmitted_at.get_or_insert(stamp);
            }
        }
        self.arm(now);
        if record.has(scoreboard::SYN) {
            return self.emit_syn(now);
        }
        let fin = u32::from(record.has(scoreboard::FIN));
        let mut bits = flags::ACK | flags::PSH;
        if fin > 0 {
            bits |= flags::FIN;
        }
        self.emit(record.seq, bits, record.len - fin, now)
    }

    fn send_syn(&mut self, now: Instant) -> Outgoing<'_> {
        self.syn_unsent = false;
        self.timeout_base = now;
        self.stalled_since = now;
        self.last_sent = now;
        if self.board.has_room() {
            self.board.push(self.iss, 1, scoreboard::SYN, now);
        }
        self.next = self.iss + 1;
        self.statistics.segments_sent += 1;
        self.arm(now);
        self.emit_syn(now)
    }

    fn emit_syn(&mut self, now: Instant) -> Outgoing<'_> {
        let answers = self.state != State::SynSent;
        let mut syn = Outgoing::control(flags::SYN, self.iss);
        syn.options.mss = Some(self.config.mss);
        syn.options.sack_permitted = self.has_sack;
        if self.has_timestamps {
            syn.options.timestamps = Some(Timestamps {
                value: self.timestamp(now),
                echo: self.timestamp_recent,
            });
        }
        // Both sides scale or none does; a scale of 0 may be offered (RFC 7323, 2.2).
        if !answers || self.peer_scales {
            syn.options.window_scale = Some(self.receive.scale());
        }
        if answers {
            syn.flags |= flags::ACK;
            syn.ack = self.receive.next();
            self.last_ack_sent = syn.ack;
            self.ack_now = false;
        }
        syn.window = self.receive.offer_unscaled();
        syn
    }

    fn send_acknowledgement(&mut self, seq: Seq, now: Instant) -> Outgoing<'_> {
        self.delayed_ack.go_alone(now);
        let mut options = self.stamps(now);
        if self.has_sack && self.receive.reassembly.has_report() {
            let max = if self.has_timestamps { 3 } else { SACK_BLOCKS };
            options.sack = self.receive.report(max);
        }
        self.last_ack_sent = self.receive.next();
        Outgoing {
            ack: self.last_ack_sent,
            window: self.receive.offer(),
            options,
            ..Outgoing::control(flags::ACK, seq)
        }
    }

    #[inline]
    fn emit(&mut self, seq: Seq, bits: u8, len: u32, now: Instant) -> Outgoing<'_> {
        self.delayed_ack.carry();
        let options = self.stamps(now);
        self.last_ack_sent = self.receive.next();
        // What arrived out of order is reported at once, without data.
        self.ack_now &= self.receive.reassembly.has_report();
        let window = self.receive.offer();
        let offset = seq.since(self.send_base) as usize;
        Outgoing {
            seq,
            ack: self.last_ack_sent,
            flags: bits,
            window,
            options,
            payload: self.send.slices(offset, len as usize),
            cut: if len > self.mss { self.mss as u16 } else { 0 },
        }
    }

    #[inline]
    fn stamps(&self, now: Instant) -> Options {
        let mut options = Options::default();
        if self.has_timestamps {
            options.timestamps = Some(Timestamps {
                value: self.timestamp(now),
                echo: self.timestamp_recent,
            });
        }
        options
    }

    /// A tail loss probe (RFC 8985, 7.3): new data if there is any, else the
    /// last segment again. It may exceed the congestion window.
    pub(super) fn send_tail_probe(&mut self) {
        let end = self.send_base + self.send.len() as u32;
        let unsent = end.since(self.next).min(self.mss);
        let usable = (self.una + self.window).since(self.next);
        let has_new = unsent > 0 && usable >= unsent;
        self.probe_allowed = true;
        if has_new {
            self.tail_probe = Some(TailProbe {
                end: self.next + unsent,
                was_retransmission: false,
            });
        } else if let Some(at) = self.board.last_index(self.mss) {
            let last = self.board.record(at).seq;
            self.board.mark_lost(|record| record.seq == last);
            self.tail_probe = Some(TailProbe {
                end: self.next,
                was_retransmission: true,
            });
        }
    }
}
