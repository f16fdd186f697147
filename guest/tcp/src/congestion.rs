//! [`Congestion`]: the congestion window: slow start, avoidance, recovery with
//! proportional rate reduction (RFC 9937) and the state after a timeout.

use crate::cubic::{Cubic, Growth};
use crate::seq::Seq;
use crate::slow_start::{SlowStart, Step};
use crate::time::{Duration, Instant};

/// Initial window in segments (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;
/// Slow start counts at most this much of one acknowledgement (RFC 9406, 4.2).
const ACK_COUNTED_SEGMENTS: u32 = 8;
/// Largest window; the send buffer is smaller.
const WINDOW_MAX: u32 = 1 << 28;

/// Whether loss is being repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No loss is known.
    Open,
    /// Loss was detected; the window is taken back in proportion.
    Recovery,
    /// A timeout has expired; everything is sent again from one segment on.
    Loss,
}

/// One connection's window, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    window: u32,
    /// The largest window since the last pause.
    peak: u32,
    threshold: u32,
    mss: u32,
    phase: Phase,
    /// Recovery ends when this number is acknowledged.
    point: Seq,
    cubic: Cubic,
    slow_start: SlowStart,
    reduction: Reduction,
    before: Option<Before>,
}

/// Proportional rate reduction's account of one recovery.
#[derive(Clone, Copy, Debug, Default)]
struct Reduction {
    delivered: u32,
    out: u32,
    flight: u32,
}

/// What a reduction that turns out to be wrong goes back to.
#[derive(Clone, Copy, Debug)]
struct Before {
    window: u32,
    threshold: u32,
    cubic: Cubic,
}

/// What one acknowledgement delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) now: Instant,
    /// Bytes below the acknowledgement that it covers first.
    pub(crate) acked: u32,
    /// Bytes acknowledged or SACKed first.
    pub(crate) delivered: u32,
    pub(crate) una: Seq,
    pub(crate) next: Seq,
    pub(crate) pipe: u32,
    pub(crate) found_loss: bool,
    /// Whether the window was what limited sending.
    pub(crate) was_limited: bool,
    pub(crate) sample: Option<Duration>,
    pub(crate) round_trip: Duration,
}

impl Congestion {
    pub(crate) fn new(mss: u32) -> Self {
        Self {
            window: initial(mss),
            peak: initial(mss),
            threshold: WINDOW_MAX,
            mss,
            phase: Phase::Open,
            point: Seq(0),
            cubic: Cubic::default(),
            slow_start: SlowStart::default(),
            reduction: Reduction::default(),
            before: None,
        }
    }

    #[inline]
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// The largest window since the last pause: what was sent under it stays buffered
    /// while a loss is repaired under a smaller one.
    #[inline]
    pub(crate) fn peak(&self) -> u32 {
        self.peak
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// A segment size learned from the handshake or from the path.
    pub(crate) fn set_mss(&mut self, mss: u32) {
        if self.window == initial(self.mss) && self.phase == Phase::Open {
            self.window = initial(mss);
        }
        self.mss = mss;
        self.window = self.window.max(mss);
    }

    /// A SYN had to be sent again: begin with one segment (RFC 5681, 3.1).
    pub(crate) fn note_handshake_loss(&mut self) {
        self.window = self.mss;
    }

    /// An acknowledgement arrived; loss detection has looked at it.
    pub(crate) fn on_ack(&mut self, delivery: &Delivery) {
        // After a timeout one acknowledgement may cover much that the peer had
        // already: it counts as one segment (RFC 3465, 2.3).
        let counted = if self.phase == Phase::Loss {
            delivery.acked.min(self.mss)
        } else {
            delivery.acked.min(ACK_COUNTED_SEGMENTS * self.mss)
        };
        if self.phase != Phase::Open && !delivery.una.before(self.point) {
            self.finish();
        }
        match self.phase {
            Phase::Recovery => self.reduce_in_proportion(delivery),
            _ if delivery.acked > 0 && delivery.was_limited => self.grow(delivery, counted),
            _ => {}
        }
        self.peak = self.peak.max(self.window);
    }

    #[inline]
    fn grow(&mut self, delivery: &Delivery, counted: u32) {
        if self.window < self.threshold {
            let (una, next) = (delivery.una, delivery.next);
            let step = self.slow_start.on_ack(counted, una, next, delivery.sample);
            match step {
                Step::Grow(by) if self.phase == Phase::Open => self.window += by,
                // After a timeout: no more than the threshold.
                Step::Grow(by) => self.window = (self.window + by).min(self.threshold),
                Step::Leave => self.threshold = self.window,
            }
        } else {
            self.window = self.cubic.grow(Growth {
                now: delivery.now,
                acked: delivery.acked,
                window: self.window,
                mss: self.mss,
                round_trip: delivery.round_trip,
            });
        }
        self.window = self.window.min(WINDOW_MAX);
    }

    fn finish(&mut self) {
        if self.phase == Phase::Recovery {
            self.window = self.threshold;
        }
        self.phase = Phase::Open;
    }

    fn reduce_in_proportion(&mut self, delivery: &Delivery) {
        let reduction = &mut self.reduction;
        reduction.delivered = reduction.delivered.saturating_add(delivery.delivered);
        let allowed = if delivery.pipe > self.threshold {
            let share = u64::from(reduction.delivered) * u64::from(self.threshold);
            let share = share.div_ceil(u64::from(reduction.flight.max(1))) as u32;
            share.saturating_sub(reduction.out)
        } else {
            let mut allowed = reduction.delivered.saturating_sub(reduction.out);
            allowed = allowed.max(delivery.delivered);
            if delivery.acked > 0 && !delivery.found_loss {
                allowed += self.mss;
            }
            allowed.min(self.threshold - delivery.pipe)
        };
        // The first retransmission always goes.
        let allowed = if reduction.out == 0 {
            allowed.max(self.mss)
        } else {
            allowed
        };
        self.window = delivery.pipe + allowed;
    }

    /// Bytes went out, new or again.
    #[inline]
    pub(crate) fn note_sent(&mut self, bytes: u32) {
        if self.phase == Phase::Recovery {
            self.reduction.out = self.reduction.out.saturating_add(bytes);
        }
    }

    /// Loss was detected with `flight` bytes outstanding up to `next`.
    pub(crate) fn enter_recovery(&mut self, flight: u32, next: Seq) {
        self.remember();
        self.threshold = self.cubic.reduce(self.window).max(2 * self.mss);
        self.phase = Phase::Recovery;
        self.point = next;
        self.reduction = Reduction {
            flight: flight.max(self.mss),
            ..Reduction::default()
        };
    }

    /// A retransmission timeout expired.
    pub(crate) fn on_timeout(&mut self, next: Seq) {
        if self.phase != Phase::Loss {
            if self.phase == Phase::Open {
                self.remember();
                self.threshold = self.cubic.reduce(self.window).max(2 * self.mss);
            }
            self.point = next;
        }
        self.phase = Phase::Loss;
        self.cubic.restart();
        self.slow_start = SlowStart::default();
        self.window = self.mss;
    }

    /// A probe repaired a single loss at the tail (RFC 8985, 7.4.2).
    pub(crate) fn note_repaired(&mut self) {
        if self.phase == Phase::Open {
            self.threshold = self.cubic.reduce(self.window).max(2 * self.mss);
            self.window = self.threshold;
        }
    }

    fn remember(&mut self) {
        self.before = Some(Before {
            window: self.window,
            threshold: self.threshold,
            cubic: self.cubic,
        });
    }

    /// The last reduction was for nothing (RFC 3522, RFC 4015, RFC 3708).
    pub(crate) fn undo(&mut self) {
        if let Some(before) = self.before.take() {
            self.window = self.window.max(before.window);
            self.threshold = before.threshold;
            self.cubic = before.cubic;
            self.cubic.restart();
        }
        self.phase = Phase::Open;
    }

    /// Nothing was in flight for longer than a timeout: the window is not known
    /// to fit any more (RFC 5681, 4.1).
    pub(crate) fn note_idle(&mut self) {
        self.threshold = self.threshold.max(self.window / 4 * 3);
        self.window = self.window.min(initial(self.mss));
        self.peak = self.window;
        // A late report about what was sent before the pause brings its window not back.
        self.before = None;
        self.cubic.restart();
        self.slow_start = SlowStart::default();
    }
}

/// RFC 6928: ten segments, at most 14,600 bytes where segments are large.
fn initial(mss: u32) -> u32 {
    (INITIAL_SEGMENTS * mss).min(14_600.max(2 * mss))
}
