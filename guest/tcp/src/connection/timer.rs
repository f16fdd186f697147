//! Deadlines: retransmission, tail loss probe, reordering, closed windows,
//! delayed acknowledgements, corks, keepalive and TIME-WAIT.

use super::{Connection, Loss, Wait};
use crate::congestion::Phase;
use crate::rtt;
use crate::time::{Duration, Instant};

/// A peer may hold the acknowledgement of a single segment that long (RFC 8985,
/// 7.2: `WCDelAckT`).
const PEER_DELAY: Duration = Duration::from_millis(200);
/// No probe comes sooner.
const PROBE_MIN: Duration = Duration::from_millis(10);

impl Connection {
    /// When to poll next if nothing arrives; `None`: never.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.earliest().known()
    }

    #[inline]
    pub(super) fn earliest(&self) -> Instant {
        let protocol = self.timer.min(self.delayed_ack.due()).min(self.small.due());
        protocol.min(self.keep_alive_due).min(self.time_wait_end)
    }

    /// Arms the retransmission timer for what is outstanding now.
    #[inline]
    pub(super) fn arm(&mut self, now: Instant) {
        if self.board.is_empty() {
            self.timer = Instant::NEVER;
            return;
        }
        let timeout = self.round_trip.timeout().backed_off(self.backoff, rtt::MAX);
        let give_up = self.silent_since() + self.config.user_timeout;
        self.wait = Wait::Timeout;
        self.timer = self.timeout_base + timeout;
        if !self.is_opening() {
            self.timer = self.timer.min(give_up);
        }
        if let Some(due) = self.reordering_due {
            if due < self.timer {
                (self.wait, self.timer) = (Wait::Reordering, due);
            }
        } else if self.may_probe() {
            let due = now + self.probe_timeout();
            if due < self.timer {
                (self.wait, self.timer) = (Wait::Probe, due);
            }
        }
    }

    /// Since when the peer has given no reason to go on: one that closed its window and answers is
    /// kept (RFC 9293, 3.8.6.1).
    #[inline]
    fn silent_since(&self) -> Instant {
        if self.window == 0 {
            self.stalled_since.max(self.last_heard)
        } else {
            self.stalled_since
        }
    }

    #[inline]
    fn may_probe(&self) -> bool {
        self.has_sack
            && self.tail_probe.is_none()
            && self.backoff == 0
            && self.congestion.phase() == Phase::Open
            && self.board.sacked() == 0
            && !self.is_opening()
    }

    #[inline]
    fn probe_timeout(&self) -> Duration {
        let Some(smoothed) = self.round_trip.smoothed() else {
            return rtt::INITIAL;
        };
        let twice = (smoothed + smoothed).max(PROBE_MIN);
        if self.board.len() == 1 {
            twice + PEER_DELAY
        } else {
            twice
        }
    }

    fn has_window(&self) -> bool {
        (self.una + self.window).since(self.next) > 0
    }

    /// The peer's window is closed, or small: ask from time to time whether it still is.
    pub(super) fn arm_persist(&mut self, now: Instant) {
        if self.timer == Instant::NEVER {
            self.wait = Wait::Persist;
            self.timer = now + self.round_trip.timeout().backed_off(self.backoff, rtt::MAX);
        }
    }

    /// How long a peer with a closed window may leave probes unanswered: at least
    /// one is sent within the timeout, unless the user has set it.
    fn persist_limit(&self) -> Duration {
        match self.first_user_timeout {
            Some(_) => self.config.user_timeout,
            None => self.config.user_timeout + rtt::MAX,
        }
    }

    pub(super) fn run_timers(&mut self, now: Instant) {
        if self.time_wait_end <= now {
            return self.end(None);
        }
        if self.delayed_ack.due() <= now {
            self.ack_now = true;
            self.delayed_ack.go_alone(now);
        }
        if self.small.due() <= now {
            self.small.push();
        }
        if self.keep_alive_due <= now {
            self.on_keep_alive(now);
        }
        if self.timer <= now {
            self.timer = Instant::NEVER;
            match self.wait {
                Wait::Timeout => self.on_timeout(now),
                Wait::Probe => {
                    self.send_tail_probe();
                    self.arm(now);
                }
                Wait::Reordering => {
                    if self.detect_by_time(now) && self.congestion.phase() == Phase::Open {
                        self.enter_recovery(self.flight_size());
                    }
                    self.arm(now);
                }
                Wait::Persist if now.since(self.last_heard) > self.persist_limit() => {
                    self.time_out();
                }
                Wait::Persist => {
                    // Data that the window has room for is the better probe: passt does not
                    // answer an old number.
                    if self.has_window() {
                        self.window_override = true;
                    } else {
                        self.window_probe = true;
                    }
                    self.backoff += 1;
                    self.arm_persist(now);
                }
            }
        }
    }

    /// The retransmission timeout (RFC 6298, 5).
    fn on_timeout(&mut self, now: Instant) {
        let in_handshake = self.is_opening();
        let gives_up = if in_handshake {
            self.backoff >= self.config.handshake_retries
        } else {
            now.since(self.silent_since()) >= self.config.user_timeout
        };
        if gives_up {
            return self.time_out();
        }
        self.statistics.timeouts += 1;
        self.backoff += 1;
        self.timeout_base = now;
        self.reordering_due = None;
        let first = self.board.first().copied();
        if let Some(first) = first
            && !in_handshake
            && self.path.on_timeout(first.len, self.backoff)
        {
            self.apply_mss();
        }
        if in_handshake {
            self.congestion.note_handshake_loss();
        } else {
            if self.congestion.phase() == Phase::Open {
                self.begin_repair();
            }
            self.congestion.on_timeout(self.next);
        }
        self.tail_probe = None;
        if first.is_some_and(|first| first.is_sacked()) {
            self.board.forget_sacks();
        }
        self.board.mark_lost(|_| true);
        self.arm(now);
    }

    fn on_keep_alive(&mut self, now: Instant) {
        let Some(keep) = self.keep_alive else {
            self.keep_alive_due = Instant::NEVER;
            return;
        };
        let silent = now.since(self.last_heard);
        if silent < keep.idle || !self.board.is_empty() || self.is_opening() {
            // Something was heard, or retransmission finds out by itself.
            self.keep_alive_due = (self.last_heard + keep.idle).max(now + keep.interval);
            return;
        }
        // As Linux, which counts probes only where no time is set (`tcp_keepalive_timer`).
        let gives_up = match self.first_user_timeout {
            Some(_) => self.keep_alive_probes > 0 && silent >= self.config.user_timeout,
            None => self.keep_alive_probes >= keep.probes,
        };
        if gives_up {
            self.abort_with(Loss::TimedOut);
            return;
        }
        self.keep_alive_probes += 1;
        self.window_probe = true;
        self.keep_alive_due = now + keep.interval;
    }
}
