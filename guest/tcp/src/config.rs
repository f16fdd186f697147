//! [`Config`]: what a connection is given at its start.

use crate::secret::{FourTuple, Secret};
use crate::time::Duration;

/// Limits and times of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Largest segment that fits the link: its MTU without 40 bytes of headers
    /// (60 for IPv6).
    pub mss: u16,
    /// Most payload of one [`Outgoing`](crate::Outgoing): full segments that the link cuts, or 0 if
    /// it cuts none.
    pub together: u16,
    /// First receive window in bytes.
    pub receive_initial: u32,
    /// Largest receive window in bytes.
    pub receive_max: u32,
    /// Largest send buffer in bytes.
    pub send_max: u32,
    /// How long a closed connection answers old segments (RFC 9293, 3.6.1).
    pub time_wait: Duration,
    /// A peer that acknowledges nothing for this long is given up (RFC 5482).
    pub user_timeout: Duration,
    /// How often a SYN or SYN-ACK is sent again.
    pub handshake_retries: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mss: 1460,
            together: 0,
            receive_initial: 64 << 10,
            receive_max: 1 << 20,
            send_max: 1 << 20,
            time_wait: Duration::from_secs(60),
            user_timeout: Duration::from_secs(60),
            handshake_retries: 5,
        }
    }
}

/// Probes of an idle connection (RFC 9293, 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without answer before the peer is given up.
    pub probes: u32,
}

/// The numbers that make a connection's own unpredictable.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The key of this boot.
    pub secret: &'a Secret,
    /// Whose connection it is.
    pub tuple: &'a FourTuple,
}
