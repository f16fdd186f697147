//! How a connection begins: actively, from a SYN, or from a SYN cookie.

use super::{Connection, Repair, State, Statistics, Wait};
use crate::challenge::ChallengeLimit;
use crate::config::{Config, Identity};
use crate::congestion::Congestion;
use crate::cookie::{self, Recovered};
use crate::delayed_ack::DelayedAck;
use crate::memory::{Pool, Ring};
use crate::options::Options;
use crate::path_mtu::PathMtu;
use crate::rack::Rack;
use crate::receive::ReceiveQueue;
use crate::rtt::RoundTrip;
use crate::scoreboard::Scoreboard;
use crate::segment::Segment;
use crate::seq::Seq;
use crate::small::SmallSegments;
use crate::time::Instant;

/// The peer's segment size where its SYN has none (RFC 9293, 3.7.1).
const MSS_DEFAULT: u16 = 536;
/// Smaller sizes are not believed: each byte would cost a packet (Linux:
/// `TCP_MIN_SND_MSS`).
const MSS_MIN: u16 = 48;
/// First receive window while memory is scarce.
const RECEIVE_SCARCE: u32 = 4 << 10;

impl Connection {
    /// Opens a connection: the next poll gives its SYN.
    pub fn connect(config: Config, identity: Identity<'_>, pool: &Pool, now: Instant) -> Self {
        let isn = identity.secret.isn(identity.tuple, now);
        let mut connection = Self::new(config, identity, isn, pool, now);
        connection.has_sack = true;
        connection.has_timestamps = true;
        connection
    }

    /// Answers a SYN: the next poll gives the SYN-ACK.
    pub fn accept(
        config: Config,
        identity: Identity<'_>,
        syn: &Segment<'_>,
        pool: &Pool,
        now: Instant,
    ) -> Self {
        let isn = identity.secret.isn(identity.tuple, now);
        let mut connection = Self::new(config, identity, isn, pool, now);
        connection.state = State::SynReceived;
        connection.take_syn(syn.seq, &syn.options, now);
        connection.window = u32::from(syn.window);
        connection
    }

    /// Makes the connection whose SYN a cookie answered, from the
    /// acknowledgement that brought the cookie back. That segment is to be
    /// given to [`Connection::on_segment`] next.
    pub fn from_cookie(
        config: Config,
        identity: Identity<'_>,
        cookie: &Recovered,
        segment: &Segment<'_>,
        pool: &Pool,
        now: Instant,
    ) -> Self {
        let mut connection = Self::new(config, identity, cookie.isn, pool, now);
        connection.state = State::SynReceived;
        connection.syn_unsent = false;
        connection.next = cookie.isn + 1;
        connection.una = connection.next;
        connection.take_syn(segment.seq - 1, &cookie.options, now);
        connection
            .receive
            .note_offered(cookie::first_window(&config));
        connection
    }

    fn new(config: Config, identity: Identity<'_>, isn: Seq, pool: &Pool, now: Instant) -> Self {
        let initial = if pool.is_scarce() {
            config.receive_initial.min(RECEIVE_SCARCE)
        } else {
            config.receive_initial
        };
        let mss = u32::from(config.mss);
        Self {
            state: State::SynSent,
            loss: None,
            config,
            pool: pool.clone(),
            statistics: Statistics::default(),
            iss: isn,
            una: isn,
            next: isn,
            window: 0,
            window_max: 0,
            window_seq: Seq(0),
            window_ack: isn,
            peer_scale: 0,
            peer_scales: false,
            send: Ring::new(),
            send_base: isn + 1,
            syn_unsent: true,
            fin_queued: false,
            fin_sent: false,
            small: SmallSegments::new(isn),
            board: Scoreboard::default(),
            rack: Rack::default(),
            round_trip: RoundTrip::default(),
            congestion: Congestion::new(mss),
            path: PathMtu::new(config.mss),
            mss,
            has_sack: false,
            has_timestamps: false,
            timestamp_offset: identity.secret.timestamp_offset(identity.tuple),
            timestamp_recent: 0,
            timestamp_recent_at: now,
            retransmitted_at: None,
            repair: Repair::default(),
            receive: ReceiveQueue::new(initial, config.receive_max, mss),
            irs: Seq(0),
            peer_fin: None,
            last_ack_sent: Seq(0),
            ack_now: false,
            delayed_ack: DelayedAck::new(),
            challenge: ChallengeLimit::default(),
            timer: Instant::NEVER,
            wait: Wait::Timeout,
            timeout_base: now,
            backoff: 0,
            stalled_since: now,
            reordering_due: None,
            tail_probe: None,
            probe_allowed: false,
            duplicates: 0,
            window_probe: false,
            window_override: false,
            last_sent: now,
            keep_alive: None,
            keep_alive_due: Instant::NEVER,
            keep_alive_probes: 0,
            first_user_timeout: None,
            last_heard: now,
            time_wait_end: Instant::NEVER,
            reset: None,
        }
    }

    /// Takes over what the peer's SYN says.
    pub(super) fn take_syn(&mut self, seq: Seq, options: &Options, now: Instant) {
        self.irs = seq;
        self.receive.start(seq + 1);
        self.last_ack_sent = seq + 1;
        self.window_seq = seq;
        self.has_sack = options.sack_permitted;
        self.has_timestamps = options.timestamps.is_some();
        if let Some(stamps) = options.timestamps {
            self.timestamp_recent = stamps.value;
            self.timestamp_recent_at = now;
        }
        self.peer_scales = options.window_scale.is_some();
        match options.window_scale {
            Some(scale) => self.peer_scale = scale,
            None => self.receive.disable_scale(),
        }
        self.path
            .limit(options.mss.unwrap_or(MSS_DEFAULT).max(MSS_MIN));
        self.apply_mss();
    }
}
