//! IPv6 on the wire: addresses from router advertisements (RFC 4862, made by RFC
//! 7217), neighbour discovery (RFC 4861), groups (RFC 3810), stateless DHCPv6.
//!
//! A new address is used at once, as optimistic ones are (RFC 4429): waiting for
//! duplicate address detection would delay each start. Redirects are ignored.

use core::net::{IpAddr, Ipv6Addr};

use smoltcp::time::{Duration, Instant};

use super::autoconf::Request;
use super::config::Ipv6Setup;
use super::{Stack, Wake, reports};
use crate::flow::Flow;
use crate::frame::{Datagram, Icmpv6};
use crate::ipv6::address::{
    ALL_MLD_ROUTERS, ALL_NODES, ALL_ROUTERS, LINK_LOCAL, group_mac, is_within, solicited_node,
    stable,
};
use crate::ipv6::dhcp;
use crate::ipv6::message::{
    self, Advertisement, Message, Occasion, PrefixInformation, RouterAdvertisement,
};
use crate::ipv6::table::{Own, Until};
use crate::link::Link;
use crate::neighbours::{Mac, is_unicast};
use crate::transmit::Alert;

/// Router solicitations at the start, and the time between two (RFC 4861, 10).
const SOLICITATIONS: u32 = 3;
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// How long after an address was taken a claim to it means that it was not free.
const PROBATION: Duration = Duration::from_secs(2);
/// Addresses that are tried in one network (RFC 7217, 6).
const TRIES_MAX: u8 = 3;
/// No advertisement shortens the rest of an address's life below this, since any host
/// can send one (RFC 4862, 5.5.3 e).
const SHORTEST_LIFE: Duration = Duration::from_secs(2 * 3600);
/// Requests to DHCPv6 servers; the time between two doubles.
const REQUESTS: u32 = 4;
const REQUEST_INTERVAL: Duration = Duration::from_secs(1);
const INFINITE: u32 = u32::MAX;

/// The point `seconds` from now, where all ones are without end.
fn until(seconds: u32, now: Instant) -> Until {
    (seconds != INFINITE).then(|| now + Duration::from_secs(u64::from(seconds)))
}

impl<L: Link, W: Wake> Stack<L, W> {
    /// Starts IPv6 on the wire. `secret` makes addresses that neither the hardware
    /// address nor other networks tell anything about.
    pub fn start_ipv6(&mut self, setup: Ipv6Setup, secret: [u8; 16], now: Instant) {
        self.ipv6.setup = setup;
        self.ipv6.secret = secret;
        match setup {
            Ipv6Setup::Off => return,
            Ipv6Setup::Auto => {
                self.take_stable(LINK_LOCAL, (None, None), 0, now);
                self.ipv6.solicitation = Some((SOLICITATIONS, now));
            }
            Ipv6Setup::Static {
                address,
                prefix_len,
                gateway,
            } => {
                self.take_stable(LINK_LOCAL, (None, None), 0, now);
                let (preferred, valid) = (None, None);
                self.take_address(Own {
                    address,
                    prefix_len,
                    preferred,
                    valid,
                    taken: now,
                    tries: TRIES_MAX,
                });
                self.wire.ipv6.note_prefix(address, prefix_len, None, now);
                if let Some(gateway) = gateway {
                    self.wire.ipv6.note_router(gateway, None, now);
                }
            }
        }
        self.run_ipv6(now);
    }

    /// Whether this host has an address that counts beyond the link.
    pub fn has_global_ipv6(&self) -> bool {
        self.wire.ipv6.has_global()
    }

    /// Does what is due, and finds out when something will be.
    pub(super) fn run_ipv6(&mut self, now: Instant) {
        self.wire.ipv6.expire(now);
        self.ipv6.expire(now);
        self.loopback.ipv6.mirror(&self.wire.ipv6);
        if let Some((left, due)) = self.ipv6.solicitation
            && due <= now
        {
            self.solicit_routers();
            let more = (left > 1).then_some((left - 1, now + SOLICITATION_INTERVAL));
            self.ipv6.solicitation = more;
        }
        if let Some(request) = self.ipv6.request
            && request.again <= now
        {
            self.send_request(request, now);
        }
        let due = [
            self.ipv6.solicitation.map(|(_, due)| due),
            self.ipv6.request.map(|request| request.again),
        ];
        self.ipv6.deadline = due.into_iter().flatten().min();
        let servers = self
            .ipv6
            .name_servers
            .iter()
            .filter_map(|(_, until)| *until);
        self.ipv6.next_end = servers.chain(self.wire.ipv6.next_end()).min();
        self.wire.link.flush();
    }

    fn solicit_routers(&mut self) {
        let Some(own) = self.wire.ipv6.link_local() else {
            return;
        };
        let mut solicitation = message::router_solicitation(self.own_mac());
        self.send_on_link(own, ALL_ROUTERS, Alert::None, &mut solicitation);
    }

    fn send_on_link(&mut self, from: Ipv6Addr, to: Ipv6Addr, alert: Alert, message: &mut [u8]) {
        self.wire
            .send_on_link(group_mac(to), (from, to), alert, message);
    }

    /// Takes this host's address in a network.
    fn take_stable(
        &mut self,
        network: Ipv6Addr,
        (preferred, valid): (Until, Until),
        tries: u8,
        now: Instant,
    ) {
        let address = stable(network, self.own_mac(), tries, &self.ipv6.secret);
        self.take_address(Own {
            address,
            prefix_len: 64,
            preferred,
            valid,
            taken: now,
            tries,
        });
    }

    /// Takes an address: joins its group and asks whether another host has it.
    fn take_address(&mut self, own: Own) {
        if !self.wire.ipv6.add(own) {
            return;
        }
        self.loopback.ipv6.mirror(&self.wire.ipv6);
        let mut report = message::group_report([own.address].into_iter());
        let from = self.wire.ipv6.link_local().unwrap_or(Ipv6Addr::UNSPECIFIED);
        self.send_on_link(from, ALL_MLD_ROUTERS, Alert::Router, &mut report);
        let group = solicited_node(own.address);
        let mut probe = message::probe(own.address);
        self.send_on_link(Ipv6Addr::UNSPECIFIED, group, Alert::None, &mut probe);
        self.configured.wake_all();
    }

    /// A message of ICMPv6.
    pub(super) fn ingress_icmpv6(&mut self, found: &Icmpv6, frame: &[u8], now: Instant) {
        let bytes = usize::from(found.start)..usize::from(found.end);
        let Some(bytes) = frame.get(bytes) else {
            return;
        };
        let sender = super::sender(frame);
        if self.ipv6.setup == Ipv6Setup::Off || sender == self.own_mac() {
            return;
        }
        if found.source.is_multicast() || found.source.is_loopback() {
            self.counters.martian += 1;
            return;
        }
        match Message::parse(bytes, found.hop_limit) {
            Some(Message::Solicitation {
                target,
                sender: named,
            }) => {
                // Only one to a group must name its sender (RFC 4861, 4.3).
                let from = (!found.destination.is_multicast()).then_some(sender);
                self.on_solicitation(found.source, target, [named, from], now);
            }
            // What is for all answers none (RFC 4861, 7.1.2).
            Some(Message::Advertisement(said))
                if said.is_solicited && found.destination.is_multicast() =>
            {
                self.counters.malformed += 1;
            }
            Some(Message::Advertisement(said)) => self.on_advertisement(&said, now),
            Some(Message::Router(router)) if found.source.is_unicast_link_local() => {
                self.on_router(found.source, &router, now);
            }
            Some(Message::GroupQuery) if found.source.is_unicast_link_local() => {
                if self.may_send_error(now) {
                    self.report_groups();
                }
            }
            Some(Message::Router(_) | Message::GroupQuery) => self.counters.martian += 1,
            None if !self.wire.ipv6.has(found.destination) => self.counters.broadcast += 1,
            None => self.on_unicast(found, bytes, sender, now),
        }
        self.wire.link.flush();
    }

    fn report_groups(&mut self) {
        let Some(own) = self.wire.ipv6.link_local() else {
            return;
        };
        let addresses = self.wire.ipv6.own().iter().map(|own| own.address);
        let mut report = message::group_report(addresses);
        self.send_on_link(own, ALL_MLD_ROUTERS, Alert::Router, &mut report);
    }

    /// A message to this host alone: an echo request, or one about a packet of its.
    fn on_unicast(&mut self, found: &Icmpv6, bytes: &[u8], sender: Mac, now: Instant) {
        match bytes[0] {
            message::ECHO_REQUEST => {
                let flow = Flow {
                    local: (found.destination, 0).into(),
                    remote: (found.source, 0).into(),
                };
                let mut reply = bytes.to_vec();
                reply[..4].copy_from_slice(&[message::ECHO_REPLY, 0, 0, 0]);
                self.wire.send_icmp(sender, &flow, &mut reply);
            }
            message::PACKET_TOO_BIG | message::UNREACHABLE => {
                if let Some(report) = reports::report_v6(bytes) {
                    self.follow_report(report, now);
                }
            }
            _ => {}
        }
    }

    /// A host solicits an address, or whether it is free (RFC 4861, 7.2.3); its hardware address as
    /// it names it, and where the frame came from.
    fn on_solicitation(
        &mut self,
        source: Ipv6Addr,
        target: Ipv6Addr,
        [named, from]: [Option<Mac>; 2],
        now: Instant,
    ) {
        if !self.wire.ipv6.has(target) {
            return;
        }
        let own = self.wire.ipv6.link_local().unwrap_or(target);
        if source.is_unspecified() {
            // Both take it at the same time, or it is ours and the other learns so.
            self.note_ipv6_conflict(target, now);
            if self.wire.ipv6.has(target) {
                let mac = self.own_mac();
                let mut answer = message::advertisement(target, mac, Occasion::Announcement);
                self.send_on_link(own, ALL_NODES, Alert::None, &mut answer);
            }
            return;
        }
        let named = named.filter(|mac| is_unicast(*mac));
        let Some(mac) = named.or(from) else {
            return;
        };
        if named.is_some() {
            self.note_neighbor(source.into(), mac, now);
        }
        let mut answer = message::advertisement(target, self.own_mac(), Occasion::Asked);
        self.wire
            .send_on_link(mac, (own, source), Alert::None, &mut answer);
        self.retry_unresolved(now);
    }

    /// A neighbour says where it is, or that it is still there (RFC 4861, 7.2.5).
    fn on_advertisement(&mut self, said: &Advertisement, now: Instant) {
        if self.wire.ipv6.has(said.target) {
            return self.note_ipv6_conflict(said.target, now);
        }
        let target = IpAddr::V6(said.target);
        let neighbours = &mut self.wire.neighbours;
        let known = neighbours.get(target, now);
        match said.mac {
            // An answer to a request at a hardware address need not repeat it.
            None if said.is_solicited => neighbours.confirm(target, now),
            None => return,
            Some(mac) if said.is_solicited && known == Some(mac) => {
                neighbours.confirm(target, now);
            }
            Some(mac) => {
                let is_wanted = is_unicast(mac)
                    && (said.overrides || known.is_none())
                    && (neighbours.knows(target) || neighbours.awaits(target));
                if !is_wanted {
                    return;
                }
                self.note_neighbor(target, mac, now);
            }
        }
        self.retry_unresolved(now);
    }

    /// Another host has an address of this one. A new address is given up for the
    /// next one of the same network.
    fn note_ipv6_conflict(&mut self, address: Ipv6Addr, now: Instant) {
        self.counters.address_conflicts += 1;
        let own = self.wire.ipv6.own().iter();
        let Some(own) = own.copied().find(|own| own.address == address) else {
            return;
        };
        if now >= own.taken + PROBATION {
            return;
        }
        self.wire.ipv6.remove(address);
        self.loopback.ipv6.mirror(&self.wire.ipv6);
        if own.tries < TRIES_MAX {
            self.take_stable(address, (own.preferred, own.valid), own.tries + 1, now);
        }
    }

    fn on_router(&mut self, router: Ipv6Addr, found: &RouterAdvertisement, now: Instant) {
        if self.ipv6.setup != Ipv6Setup::Auto {
            return;
        }
        self.ipv6.solicitation = None;
        let table = &mut self.wire.ipv6;
        table.note_router(router, until(u32::from(found.lifetime_s), now), now);
        if let Some(mtu) = found.mtu {
            table.note_mtu(mtu);
        }
        for prefix in &found.prefixes {
            self.follow_prefix(prefix, now);
        }
        if let Some(mac) = found.mac.filter(|mac| is_unicast(*mac)) {
            self.note_neighbor(router.into(), mac, now);
        }
        for (servers, seconds) in &found.name_servers {
            let until = until(*seconds, now);
            self.ipv6.note_name_servers(servers, until, now);
        }
        if found.name_servers.is_empty() && found.ask_dhcp && !self.ipv6.has_asked {
            self.begin_request(now);
        }
        self.run_ipv6(now);
        self.retry_unresolved(now);
    }

    /// A network that a router announced (RFC 4862, 5.5.3).
    fn follow_prefix(&mut self, prefix: &PrefixInformation, now: Instant) {
        let valid = until(prefix.valid_s, now);
        let preferred = until(prefix.preferred_s, now);
        if prefix.is_on_link {
            let (network, len) = (prefix.network, prefix.len);
            self.wire.ipv6.note_prefix(network, len, valid, now);
        }
        if !prefix.is_autonomous || prefix.len != 64 {
            return;
        }
        let mut is_known = false;
        let mut own = self.wire.ipv6.own_mut();
        for own in own
            .by_ref()
            .filter(|own| is_within(own.address, prefix.network, 64) && own.prefix_len == 64)
        {
            is_known = true;
            own.preferred = preferred;
            let least = now + SHORTEST_LIFE;
            let least = own.valid.map_or(least, |old| old.min(least));
            own.valid = valid.map(|valid| valid.max(least));
        }
        drop(own);
        if !is_known && prefix.valid_s > 0 {
            self.take_stable(prefix.network, (preferred, valid), 0, now);
        }
    }

    fn begin_request(&mut self, now: Instant) {
        self.ipv6.has_asked = true;
        let [.., a, b, c] = self.ipv6.random.draw().to_le_bytes();
        let request = Request {
            transaction: [a, b, c],
            sent: 0,
            again: now,
        };
        self.ipv6.request = Some(request);
    }

    fn send_request(&mut self, request: Request, now: Instant) {
        self.ipv6.request = (request.sent < REQUESTS).then_some(Request {
            sent: request.sent + 1,
            again: now + REQUEST_INTERVAL * (1 << request.sent.min(REQUESTS)),
            ..request
        });
        let (Some(_), Some(own)) = (self.ipv6.request, self.wire.ipv6.link_local()) else {
            return;
        };
        let flow = Flow {
            local: (own, dhcp::CLIENT_PORT).into(),
            remote: (dhcp::SERVERS, dhcp::SERVER_PORT).into(),
        };
        let message = dhcp::information_request(request.transaction, self.own_mac());
        if self.wire.link.send_ready() {
            self.wire
                .send_datagram(group_mac(dhcp::SERVERS), &flow, &message);
        }
    }

    /// Whether a datagram is a DHCPv6 server's answer, which no socket gets. It goes
    /// to the address that asked, which no packet from elsewhere reaches.
    pub(super) fn is_for_dhcpv6_client(&self, found: &Datagram) -> bool {
        let flow = &found.flow;
        self.ipv6.request.is_some()
            && flow.local.port() == dhcp::CLIENT_PORT
            && flow.remote.port() == dhcp::SERVER_PORT
            && self.wire.ipv6.link_local().map(IpAddr::V6) == Some(flow.local.ip())
    }

    pub(super) fn ingress_dhcpv6(&mut self, found: &Datagram, frame: &[u8], now: Instant) {
        let message = frame.get(usize::from(found.start)..usize::from(found.end));
        if let (Some(message), Some(request)) = (message, self.ipv6.request)
            && let Some(servers) = dhcp::name_servers(message, request.transaction)
        {
            self.ipv6.request = None;
            self.ipv6.note_name_servers(&servers, None, now);
            self.run_ipv6(now);
        }
    }
}
