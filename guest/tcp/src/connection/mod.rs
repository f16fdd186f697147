//! [`Connection`]: one TCP connection (RFC 9293). [`Connection::on_segment`]
//! takes what arrives, [`Connection::poll`] gives what is to be sent, and
//! [`Connection::next_deadline`] says when to poll without an arrival.

mod acknowledge;
mod input;
mod open;
mod output;
mod timer;

use crate::challenge::ChallengeLimit;
use crate::config::{Config, KeepAlive};
use crate::congestion::Congestion;
use crate::delayed_ack::DelayedAck;
use crate::memory::{Pool, Ring};
use crate::path_mtu::PathMtu;
use crate::rack::Rack;
use crate::receive::ReceiveQueue;
use crate::rtt::RoundTrip;
use crate::scoreboard::Scoreboard;
use crate::segment::{Segment, flags};
use crate::seq::Seq;
use crate::small::SmallSegments;
use crate::time::{Duration, Instant};

/// Least send buffer while memory is not scarce.
const SEND_MIN: u32 = 16 << 10;
/// Probes of an idle connection come no faster.
const KEEP_ALIVE_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Send buffer while it is.
const SEND_SCARCE: u32 = 4 << 10;

/// The states of RFC 9293, 3.3.2. LISTEN is the listener's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the RFC's
pub enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// Why a connection ended before both sides had finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The peer reset it.
    #[error("connection reset by the peer")]
    Reset,
    /// The peer refused to open it.
    #[error("connection refused by the peer")]
    Refused,
    /// The peer acknowledged nothing for too long.
    #[error("the peer does not answer")]
    TimedOut,
    /// This side gave it up.
    #[error("connection aborted")]
    Aborted,
}

/// Why data cannot be queued or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The connection is gone.
    #[error(transparent)]
    Lost(#[from] Loss),
    /// This side has closed its half.
    #[error("this side has closed the connection for sending")]
    Closed,
    /// The pool has no memory for a buffer.
    #[error("no memory for a send buffer")]
    NoMemory,
}

/// What a connection has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Segments with data, SYN or FIN that were sent the first time.
    pub segments_sent: u64,
    /// Segments that were sent again.
    pub segments_retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Segments that were answered by a challenge acknowledgement.
    pub challenges: u64,
    /// Data that was dropped for want of memory or window.
    pub dropped: u64,
}

/// What the retransmission timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The retransmission timeout (RFC 6298).
    Timeout,
    /// A tail loss probe (RFC 8985, 7).
    Probe,
    /// Reordering that may turn out to be loss (RFC 8985, 6).
    Reordering,
    /// A window that stays closed, or too small for a full segment (RFC 9293, 3.8.6.1 and
    /// 3.8.6.2.1).
    Persist,
}

/// A tail loss probe that is under way.
#[derive(Clone, Copy, Debug)]
struct TailProbe {
    end: Seq,
    was_retransmission: bool,
}

/// Retransmissions of the last recovery, of which duplicate reports may show that all
/// were needless (RFC 3708).
#[derive(Clone, Copy, Debug, Default)]
struct Repair {
    /// SND.UNA when it began.
    from: Seq,
    /// Segments sent again that no report has shown to be duplicates.
    unproven: u32,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    state: State,
    loss: Option<Loss>,
    config: Config,
    pool: Pool,
    statistics: Statistics,

    iss: Seq,
    /// SND.UNA and SND.NXT.
    una: Seq,
    next: Seq,
    /// SND.WND, scaled, and the largest ever.
    window: u32,
    window_max: u32,
    /// SND.WL1 and SND.WL2.
    window_seq: Seq,
    window_ack: Seq,
    peer_scale: u8,
    /// Its SYN had the option.
    peer_scales: bool,
    send: Ring,
    /// Number of the first byte in `send`.
    send_base: Seq,
    syn_unsent: bool,
    fin_queued: bool,
    fin_sent: bool,
    small: SmallSegments,
    board: Scoreboard,
    rack: Rack,
    round_trip: RoundTrip,
    congestion: Congestion,
    path: PathMtu,
    /// Payload of a full segment.
    mss: u32,

    has_sack: bool,
    has_timestamps: bool,
    timestamp_offset: u32,
    timestamp_recent: u32,
    timestamp_recent_at: Instant,
    /// Timestamp of the first retransmission since loss was found.
    retransmitted_at: Option<u32>,
    /// What was sent again since the window was last reduced.
    repair: Repair,

    receive: ReceiveQueue,
    irs: Seq,
    peer_fin: Option<Seq>,
    last_ack_sent: Seq,
    ack_now: bool,
    delayed_ack: DelayedAck,
    challenge: ChallengeLimit,

    timer: Instant,
    wait: Wait,
    /// Since when the retransmission timeout runs.
    timeout_base: Instant,
    backoff: u32,
    /// Since when nothing has been acknowledged.
    stalled_since: Instant,
    reordering_due: Option<Instant>,
    tail_probe: Option<TailProbe>,
    /// A probe may send new data beyond the congestion window.
    probe_allowed: bool,
    duplicates: u32,
    window_probe: bool,
    /// The next segment may be as small as the peer's window (RFC 9293, 3.8.6.2.1).
    window_override: bool,
    last_sent: Instant,

    keep_alive: Option<KeepAlive>,
    keep_alive_due: Instant,
    keep_alive_probes: u32,
    /// The configuration's limit, where the user has set another.
    first_user_timeout: Option<Duration>,
    last_heard: Instant,
    time_wait_end: Instant,
    reset: Option<(Seq, Seq, u8)>,
}

impl Connection {
    /// The state of RFC 9293.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it ended, if it did not end well.
    pub fn loss(&self) -> Option<Loss> {
        self.loss
    }

    #[inline]
    fn is_opening(&self) -> bool {
        matches!(self.state, State::SynSent | State::SynReceived)
    }

    /// What it has counted.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Queues as much of `data` as there is room for; 0 is "not now".
    pub fn send(&mut self, data: &[u8]) -> Result<usize, IoError> {
        self.queue(data, false)
    }

    /// The same for data that more follows: a last segment that is not full waits for it, at
    /// most 200 ms (Linux: `MSG_MORE`).
    pub fn send_with_more(&mut self, data: &[u8]) -> Result<usize, IoError> {
        self.queue(data, true)
    }

    fn queue(&mut self, data: &[u8], more: bool) -> Result<usize, IoError> {
        match self.state {
            State::Closed => return Err(self.loss.unwrap_or(Loss::Reset).into()),
            // Would be lost if the peer refuses (`sk_stream_wait_connect` in Linux's
            // net/core/stream.c).
            State::SynSent => return Ok(0),
            State::SynReceived | State::Established | State::CloseWait => {}
            _ => return Err(IoError::Closed),
        }
        let room = self.send_capacity().saturating_sub(self.send.len());
        let data = &data[..data.len().min(room)];
        if !self.send.reserve(self.send.len() + data.len(), &self.pool) && self.send.capacity() == 0
        {
            return Err(IoError::NoMemory);
        }
        self.small.note_write(more);
        Ok(self.send.push(data))
    }

    /// Queues what `fill` writes into the room that it gets, and says how much that is; `None` is
    /// "not now", and `fill` was not called. The room grows with what is written, so that a
    /// connection that sends little holds little.
    pub fn send_with(
        &mut self,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<Option<usize>, IoError> {
        if !self.may_send() {
            return self.send(&[]).map(Some);
        }
        let most = self.send_capacity();
        if !self.send.make_room(most, &self.pool) {
            return Ok(None);
        }
        self.small.note_write(false);
        Ok(Some(self.send.fill(most, fill)))
    }

    /// Bytes that wait to be sent or acknowledged.
    #[inline]
    pub fn send_queue(&self) -> usize {
        self.send.len()
    }

    /// Bytes that wait to be sent.
    #[inline]
    pub fn unsent(&self) -> usize {
        let end = self.send_base + self.send.len() as u32;
        // Before the SYN has gone its number comes first.
        (end.since(self.next) as usize).min(self.send.len())
    }

    /// How much may wait: grows with the congestion window, as far as memory goes.
    #[inline]
    pub fn send_capacity(&self) -> usize {
        let wanted = if self.pool.is_scarce() {
            SEND_SCARCE
        } else {
            self.congestion.peak().saturating_mul(2).max(SEND_MIN)
        };
        wanted.min(self.config.send_max) as usize
    }

    /// Copies received data; `Ok(0)` is the end if [`Connection::is_finished`],
    /// else "not now".
    pub fn recv(&mut self, buf: &mut [u8], now: Instant) -> Result<usize, IoError> {
        if self.receive.len() == 0 {
            return self.at_end();
        }
        let (n, update) = self.receive.read(buf, &self.pool);
        self.note_read(update, now);
        Ok(n)
    }

    fn note_read(&mut self, update: bool, now: Instant) {
        if update {
            self.ack_now = true;
        }
        if let Some(round_trip) = self.round_trip.smoothed() {
            self.receive.tune(now, round_trip, &self.pool);
        }
    }

    /// Gives received data, or the first part of it, to `take`, which says how much it took.
    pub fn recv_with(&mut self, now: Instant, take: impl FnOnce(&[u8]) -> usize) -> usize {
        let (n, update) = self.receive.read_with(take, &self.pool);
        self.note_read(update, now);
        n
    }

    /// Whether the peer should learn of a larger window: then [`Connection::poll`]
    /// has an acknowledgement.
    #[inline]
    pub fn has_update(&self) -> bool {
        self.ack_now
    }

    /// Copies received data and leaves it.
    pub fn peek(&self, buf: &mut [u8]) -> Result<usize, IoError> {
        match self.receive.len() {
            0 => self.at_end(),
            _ => Ok(self.receive.peek(buf)),
        }
    }

    fn at_end(&self) -> Result<usize, IoError> {
        match self.loss {
            Some(loss) if !self.is_finished() => Err(loss.into()),
            _ => Ok(0),
        }
    }

    /// Bytes that wait to be read.
    #[inline]
    pub fn recv_queue(&self) -> usize {
        self.receive.len()
    }

    /// Whether the peer has finished sending and all before its FIN has arrived.
    #[inline]
    pub fn is_finished(&self) -> bool {
        matches!(
            self.state,
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait
        ) || self
            .peer_fin
            .is_some_and(|fin| self.receive.next().after(fin))
    }

    /// Whether data can still arrive.
    #[inline]
    pub fn may_recv(&self) -> bool {
        matches!(
            self.state,
            State::SynSent
                | State::SynReceived
                | State::Established
                | State::FinWait1
                | State::FinWait2
        )
    }

    /// Whether data can still be queued.
    #[inline]
    pub fn may_send(&self) -> bool {
        matches!(
            self.state,
            State::SynSent | State::SynReceived | State::Established | State::CloseWait
        )
    }

    /// Ends this side: a FIN follows what is queued.
    pub fn close(&mut self) {
        match self.state {
            State::SynSent => self.end(None),
            State::SynReceived | State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => return,
        }
        self.fin_queued = true;
    }

    /// Gives the connection up; the peer gets a reset if it knows of it.
    pub fn abort(&mut self) {
        self.abort_with(Loss::Aborted);
    }

    /// Gives the connection up because its peer does not answer.
    pub fn time_out(&mut self) {
        self.abort_with(Loss::TimedOut);
    }

    /// Since when the peer has acknowledged nothing new.
    pub fn stalled_since(&self) -> Instant {
        self.stalled_since
    }

    /// Ends the connection without a word to the peer.
    pub fn forget(&mut self) {
        self.end(None);
    }

    fn abort_with(&mut self, loss: Loss) {
        if !matches!(self.state, State::SynSent | State::TimeWait | State::Closed) {
            self.reset = Some((self.next, self.receive.next(), flags::RST | flags::ACK));
        }
        self.end(Some(loss));
    }

    /// Sends small writes at once instead of waiting for acknowledgements (RFC 9293, 3.7.4).
    /// What is queued goes with the next [`Connection::poll`], also out of a cork.
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.small.set_nodelay(nodelay);
        if self.unsent() == 0 {
            self.small.clear();
        }
    }

    /// Holds a last segment that is not full back for what is written next, at most 200 ms
    /// (Linux: `TCP_CORK`).
    pub fn set_corked(&mut self, corked: bool) {
        self.small.set_corked(corked);
    }

    /// Probes the peer while the connection is idle; `None` never does.
    pub fn set_keep_alive(&mut self, keep_alive: Option<KeepAlive>, now: Instant) {
        self.keep_alive = keep_alive.map(|keep| KeepAlive {
            interval: keep.interval.max(KEEP_ALIVE_INTERVAL_MIN),
            ..keep
        });
        self.keep_alive_probes = 0;
        self.keep_alive_due = keep_alive.map_or(Instant::NEVER, |keep| now + keep.idle);
    }

    /// A peer that acknowledges nothing for this long is given up, also one that answers neither probes of
    /// a closed window nor those of keepalive (RFC 5482; Linux: `TCP_USER_TIMEOUT`); `None` is the
    /// configuration's limit again.
    pub fn set_user_timeout(&mut self, limit: Option<Duration>, now: Instant) {
        let first = self.first_user_timeout.unwrap_or(self.config.user_timeout);
        self.config.user_timeout = limit.unwrap_or(first);
        self.first_user_timeout = limit.map(|_| first);
        self.arm(now);
    }

    /// A router cannot forward a segment that began at `seq` (RFC 1191; RFC
    /// 5927, 4.1: only for what is outstanding). `mss` is the next hop's MTU
    /// without the IP header and the fixed part of TCP's.
    pub fn on_packet_too_big(&mut self, seq: Seq, mss: u16, now: Instant) {
        if !seq.is_in(self.una, self.next) || !self.path.on_too_big(mss) {
            return;
        }
        self.apply_mss();
        let max = self.mss;
        self.board.mark_lost(|record| record.len > max);
        self.arm(now);
    }

    /// Whether a SYN may open a new connection on the ports of this one, which
    /// is in TIME-WAIT (RFC 6191; RFC 9293, 3.6.1).
    pub fn may_reopen(&self, syn: &Segment<'_>) -> bool {
        if self.state == State::Closed {
            return true;
        }
        if self.state != State::TimeWait {
            return false;
        }
        match syn.options.timestamps {
            Some(stamps) if self.has_timestamps => {
                let newer = stamps.value.wrapping_sub(self.timestamp_recent) as i32;
                newer > 0 || newer == 0 && syn.seq.after(self.receive.next())
            }
            _ => syn.seq.after(self.receive.next()),
        }
    }

    /// Ends the connection at once.
    fn end(&mut self, loss: Option<Loss>) {
        self.state = State::Closed;
        self.loss = self.loss.or(loss);
        self.timer = Instant::NEVER;
        self.keep_alive_due = Instant::NEVER;
        self.time_wait_end = Instant::NEVER;
        self.delayed_ack = DelayedAck::new();
        self.ack_now = false;
        self.release_send();
    }

    /// Gives the storage of empty queues back while memory is scarce.
    pub fn trim(&mut self) {
        if self.pool.is_scarce() {
            self.send.release_empty(&self.pool);
            self.receive.release_empty(&self.pool);
        }
    }

    fn release_send(&mut self) {
        self.send.release(&self.pool);
        self.small.clear();
        self.board.clear();
    }

    /// Enters TIME-WAIT and gives all memory but unread data back.
    fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.time_wait_end = now + self.config.time_wait;
        self.timer = Instant::NEVER;
        self.keep_alive_due = Instant::NEVER;
        self.release_send();
        if self.receive.len() == 0 {
            self.receive.release(&self.pool);
        }
    }

    fn apply_mss(&mut self) {
        let options = if self.has_timestamps {
            crate::options::TIMESTAMPS_LEN as u32
        } else {
            0
        };
        self.mss = u32::from(self.path.mss()).saturating_sub(options).max(1);
        self.congestion.set_mss(self.mss);
    }

    fn timestamp(&self, now: Instant) -> u32 {
        stamp(self.timestamp_offset, now)
    }

    fn flight_size(&self) -> u32 {
        self.next.since(self.una)
    }

    fn smoothed(&self) -> Duration {
        self.round_trip.smoothed().unwrap_or(crate::rtt::INITIAL)
    }
}

/// The timestamp of a connection whose clock is `offset` ahead (RFC 7323, 5.4).
fn stamp(offset: u32, at: Instant) -> u32 {
    offset.wrapping_add(at.as_millis() as u32)
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.send.release(&self.pool);
        self.receive.release(&self.pool);
    }
}
