//! ICMP errors that this side sends. [`ErrorBudget`] bounds them (RFC 1812,
//! 4.3.2.8): without it whoever sends datagrams to closed ports decides how much
//! this side sends to whom.

use alloc::vec::Vec;
use core::net::SocketAddr;

use smoltcp::time::{Duration, Instant};

use crate::frame::Datagram;
use crate::link::Link;
use crate::neighbours::Mac;
use crate::port::Port;

/// Errors that may be sent in a row.
const BURST: u32 = 50;
/// One more may be sent after this time.
const INTERVAL: Duration = Duration::from_millis(10);

/// A bucket of tokens.
pub(super) struct ErrorBudget {
    tokens: u32,
    /// Up to when tokens have been given.
    filled: Instant,
}

impl Default for ErrorBudget {
    fn default() -> Self {
        Self {
            tokens: BURST,
            filled: Instant::ZERO,
        }
    }
}

impl ErrorBudget {
    /// Takes one token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let due = (now - self.filled).total_millis() / INTERVAL.total_millis();
        let due = u32::try_from(due).unwrap_or(BURST);
        if due >= BURST - self.tokens {
            (self.tokens, self.filled) = (BURST, now);
        } else {
            self.tokens += due;
            self.filled += INTERVAL * due;
        }
        let allowed = self.tokens > 0;
        self.tokens -= u32::from(allowed);
        allowed
    }
}

/// Type 3, code 3: no socket takes a datagram (RFC 1122, 4.1.3.1).
const PORT_UNREACHABLE: [u8; 2] = [3, 3];
/// The same in ICMPv6 (RFC 4443, 3.1).
const PORT_UNREACHABLE_V6: [u8; 2] = [1, 4];
const HEADER: usize = 8;
/// Most bytes of the refused packet, so that the answer stays within 576 bytes
/// (RFC 1812, 4.3.2.3).
const QUOTED_MAX: usize = 576 - 20 - HEADER;

/// Answers a datagram that no socket takes.
pub(super) fn send_port_unreachable<L: Link>(
    port: &mut Port<L>,
    neighbor: Mac,
    refused: &Datagram,
    frame: &[u8],
) {
    let packet = frame
        .get(port.ip_offset()..usize::from(refused.end))
        .unwrap_or_default();
    let quoted = &packet[..packet.len().min(QUOTED_MAX)];
    let mut message = Vec::with_capacity(HEADER + quoted.len());
    let kind = match refused.flow.local {
        SocketAddr::V4(_) => PORT_UNREACHABLE,
        SocketAddr::V6(_) => PORT_UNREACHABLE_V6,
    };
    message.extend(kind);
    message.extend([0; HEADER - 2]);
    message.extend(quoted);
    port.send_icmp(neighbor, &refused.flow, &mut message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_in_ten_milliseconds() {
        let mut budget = ErrorBudget::default();
        let mut now = Instant::from_secs(5);
        let mut passed = |now, asked| (0..asked).filter(|_| budget.take(now)).count();
        assert_eq!(passed(now, 300), 50);
        now += Duration::from_millis(25);
        assert_eq!(passed(now, 300), 2);
        now += Duration::from_millis(5);
        assert_eq!(passed(now, 300), 1);
        now += Duration::from_secs(100);
        assert_eq!(passed(now, 300), 50);
    }
}
