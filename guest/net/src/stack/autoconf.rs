//! What IPv6's autoconfiguration keeps beside the port's table.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use smoltcp::time::Instant;

use super::config::Ipv6Setup;
use crate::ipv6::dhcp::Transaction;
use crate::ipv6::table::{Until, has_ended};
use crate::random::Random;

/// Name servers that are kept.
const NAME_SERVERS: usize = 3;

/// A request to DHCPv6 servers.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) transaction: Transaction,
    pub(super) sent: u32,
    pub(super) again: Instant,
}

/// What IPv6 keeps beside the port's table.
pub(super) struct Ipv6 {
    pub(super) setup: Ipv6Setup,
    pub(super) secret: [u8; 16],
    /// Solicitations that are left, and when the next is due.
    pub(super) solicitation: Option<(u32, Instant)>,
    pub(super) request: Option<Request>,
    pub(super) random: Random,
    pub(super) has_asked: bool,
    /// Name servers, and until when each counts.
    pub(super) name_servers: Vec<(Ipv6Addr, Until)>,
    /// When this side wants to speak.
    pub(super) deadline: Option<Instant>,
    /// When the next thing that was announced ends. No thread is woken for it: ends are
    /// looked at when something is used, and acted on with the next frame.
    pub(super) next_end: Option<Instant>,
}

impl Ipv6 {
    pub(super) fn off(random: Random) -> Self {
        Self {
            setup: Ipv6Setup::Off,
            secret: [0; 16],
            solicitation: None,
            request: None,
            random,
            has_asked: false,
            name_servers: Vec::new(),
            deadline: None,
            next_end: None,
        }
    }

    /// Name servers of the network that count.
    pub(super) fn name_servers(&self, now: Instant) -> impl Iterator<Item = Ipv6Addr> {
        let servers = self.name_servers.iter();
        servers
            .filter(move |(_, until)| !has_ended(*until, now))
            .map(|(server, _)| *server)
    }

    pub(super) fn note_name_servers(&mut self, servers: &[Ipv6Addr], until: Until, now: Instant) {
        self.name_servers
            .retain(|(server, _)| !servers.contains(server));
        if has_ended(until, now) {
            return;
        }
        // The newest go first, in their order; the oldest make room.
        for server in servers.iter().take(NAME_SERVERS).rev() {
            self.name_servers.truncate(NAME_SERVERS - 1);
            self.name_servers.insert(0, (*server, until));
        }
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.name_servers
            .retain(|(_, until)| !has_ended(*until, now));
    }
}
